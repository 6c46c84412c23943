# SPDX-License-Identifier: Apache-2.0
"""A model that preflight saw untouched is told as model_files itself tells it; any doubt, and the host is asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.kept import read_kept
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import MANIFEST, inventory, remember
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_state import canary_content
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.modules import model_files

from tests.checkpoints import checkpoint
from tests.unit.preflight.test_kept import said, sight
from tests.unit.verify.module_runner import run_module

CONFIG = {"quantization_config": {"quant_method": "fp8"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint that is whole."""
    folder = tmp_path / "models" / "one"
    folder.mkdir(parents=True)
    for name, data in checkpoint(**CONFIG).items():
        (folder / name).write_bytes(data)
    return folder


def manifest_of(source: str, path: Path) -> dict[str, Any]:
    files = inventory(str(path))
    if source == "canary":
        return {"maker": "m1", "files": canary_content(files)}
    fetched = {name: {"size": entry["size"], "mtime_ns": entry["mtime_ns"]} for name, entry in files.items()}
    pinned = {"repo": "owner/name", "revision": "v1", "commit": "c" * 40, "exclude": ["*.bin"]}
    return {"source": "hub", **pinned, "files": fetched}


@pytest.fixture(params=["local", "canary", "hub"])
def deployed(
    request: pytest.FixtureRequest, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """The options of a model that was judged by an earlier run."""
    options = {"source": request.param, "path": str(path), "root": str(tmp_path), "python": "/x/python", "maker": "m1"}
    if request.param != "local":
        write_json(str(path / MANIFEST), manifest_of(request.param, path))
    if request.param == "hub":
        options |= {"repo": "owner/name", "revision": "v1", "exclude": ["*.bin"]}
    assert not run_module(model_files, capsys, options)["failed"]
    return options


def seen(options: dict[str, Any]) -> dict[str, Any] | None:
    return sight("model_files", options, read_kept(options["root"], options["path"]))


def test_an_untouched_model_is_told_as_the_module_itself_tells_it(
    deployed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ({}, {"quantization": "fp8"}, {"sha256": {"tokenizer.json": hashlib.sha256(b"{}").hexdigest()}}):
        options = {**deployed, **more}
        found = seen(options)
        assert found is not None, more
        module = said(run_module(model_files, capsys, options))
        assert found == {key: value for key, value in module.items() if key in found} and not set(module) - set(found)


def grown(path: Path) -> None:
    with (path / "tokenizer.json").open("ab") as stream:
        stream.write(b" ")


def written_to(path: Path) -> None:
    os.utime(path / "config.json", ns=(1, 1))


def one_more(path: Path) -> None:
    (path / "new.json").write_text("{}")


def one_less(path: Path) -> None:
    (path / "README.md").unlink()


def gone(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


@pytest.mark.parametrize("touch", [grown, written_to, one_more, one_less, gone])
def test_a_model_of_which_any_file_was_touched_is_looked_at(
    deployed: dict[str, Any], path: Path, touch: Callable[[Path], None]
) -> None:
    touch(path)
    assert seen(deployed) is None


@pytest.mark.parametrize(
    "other",
    [
        {"path": "/srv/another"},
        {"root": "/srv/another-root"},
        {"state": "absent"},
        {"warm_up": True},
        {"quantization": "mxfp4"},
        {"sha256": {"tokenizer.json": "0" * 64}},
        {"sha256": {"missing.json": "0" * 64}},
    ],
)
def test_a_model_of_which_more_is_wanted_is_looked_at(deployed: dict[str, Any], other: dict[str, Any]) -> None:
    kept = read_kept(deployed["root"], deployed["path"])
    assert sight("model_files", {**deployed, **other}, kept) is None


@pytest.mark.parametrize("deployed", ["canary", "hub"], indirect=True)
def test_a_model_of_another_maker_or_revision_is_looked_at(deployed: dict[str, Any], path: Path) -> None:
    changes = [{"maker": "m2"}] if deployed["source"] == "canary" else []
    changes += [] if changes else [{"repo": "owner/other"}, {"revision": "v2"}, {"exclude": []}, {"python": None}]
    for change in changes:
        assert seen({**deployed, **change}) is None, change
    (path / MANIFEST).unlink()
    assert seen(deployed) is None


@pytest.mark.parametrize("deployed", ["hub"], indirect=True)
def test_a_revision_may_be_written_as_its_commit(deployed: dict[str, Any]) -> None:
    assert seen({**deployed, "revision": "c" * 40}) is not None


def test_what_was_not_found_whole_or_is_not_known_is_looked_at(path: Path, tmp_path: Path) -> None:
    options = {"source": "local", "path": str(path), "root": str(tmp_path)}
    assert seen(options) is None, "nobody has looked yet"
    files = inventory(str(path))
    remember(str(tmp_path), str(path), files, whole=False, quantization={"label": "fp8"})
    assert seen(options) is None
    remember(str(tmp_path), str(path), files, whole=True, quantization=None)
    assert seen(options) is None, "an earlier pdlab did not write down how it is quantized"


def test_nothing_is_opened_to_see_whether_a_model_was_touched(
    deployed: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [str(each) for each in path.glob("*.safetensors")]
    real = open

    def guarded(file: Any, *arguments: Any, **options: Any) -> Any:
        assert str(file) not in shards
        return real(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", guarded)
    assert seen(deployed) is not None
