# SPDX-License-Identifier: Apache-2.0
"""What preflight saw below the root spares the later modules a look, and only where they would say the same."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.doc_fragments.kept_probe import ModuleDocFragment
from ansible_collections.pdlab.pdlab.plugins.module_utils import oracle_run
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.kept import read_kept
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import COLLECTIVES, KV, OPTIONS, KeptProbe
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import digest
from ansible_collections.pdlab.pdlab.plugins.modules import collectives_probe, kv_probe, locked_venv, pd_oracle

from tests.unit.verify.module_runner import run_module

ADDED_BY_ANSIBLE = ("invocation", "failed", "gid", "group", "mode", "owner", "size", "state", "uid")


def sight(name: str, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
    """What the action plug-in makes of what was seen."""
    plugin = importlib.import_module(f"ansible_collections.pdlab.pdlab.plugins.action.{name}").ActionModule
    result: dict[str, Any] | None = plugin.from_sight(plugin.__new__(plugin), arguments, seen)
    return result


def said(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ADDED_BY_ANSIBLE}


# --- environments ----------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, Any]:
    """A whole environment at root/engine, and the arguments under which it is what is wanted."""
    site = tmp_path / "engine/lib/python3.11/site-packages"
    (site / "sglang-0.5.23.dist-info").mkdir(parents=True)
    (tmp_path / "engine/bin").mkdir()
    (tmp_path / "engine/bin/python").touch()
    hashes = {"lock_sha256": "ab", "distributions_sha256": "cd"}
    stamp = {**hashes, "python_version": "3.11.7", "fingerprint": "ef", "packages": {"sglang": "0.5.23"}}
    (tmp_path / "engine/pdlab-lock.json").write_text(json.dumps(stamp))
    return {"path": str(tmp_path / "engine"), **hashes}


def test_a_whole_environment_is_described_as_the_module_itself_describes_it(
    environment: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = sight("locked_venv", environment, read_kept(str(tmp_path)))
    assert seen is not None
    assert seen["fingerprint"] == "ef"
    assert seen == said(run_module(locked_venv, capsys, environment))


@pytest.mark.parametrize(
    "other",
    [
        {"lock_sha256": "other"},
        {"distributions_sha256": "other"},
        {"rebuild": True},
        {"python": "/usr/bin/python3"},
        {"wheelhouse": "/srv/wheels"},
        {"path": "/somewhere/else"},
    ],
)
def test_an_environment_that_may_need_something_is_looked_at(
    environment: dict[str, Any], tmp_path: Path, other: dict[str, Any]
) -> None:
    assert sight("locked_venv", {**environment, **other}, read_kept(str(tmp_path))) is None


PATCH = {
    "patch": "1.patch",
    "distribution": "sglang",
    "version": "0.5.23",
    "reason": "a test",
    "text": "",
    "files": {"sglang/a.py": {"before": "0" * 64, "after": hashlib.sha256(b"patched").hexdigest()}},
}


@pytest.fixture
def overlaid(environment: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The same with an overlay that is applied and wanted."""
    document = {"patches": [PATCH]}
    stamp = tmp_path / "engine/pdlab-lock.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "overlay_sha256": digest(document)}))
    (tmp_path / "engine/pdlab-overlay.json").write_text(json.dumps(document))
    (tmp_path / "engine/lib/python3.11/site-packages/sglang").mkdir()
    (tmp_path / "engine/lib/python3.11/site-packages/sglang/a.py").write_bytes(b"patched")
    return {**environment, "overlay_sha256": digest(document)}


def test_an_applied_overlay_is_described_without_its_text_and_spares_the_look(
    overlaid: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = sight("locked_venv", overlaid, read_kept(str(tmp_path)))
    assert seen is not None
    assert seen["overlay"] == [{key: PATCH[key] for key in PATCH if key != "text"}]
    assert seen == said(run_module(locked_venv, capsys, overlaid))


@pytest.mark.parametrize("how", ["no longer wanted", "another one", "edited file", "removed file", "removed note"])
def test_an_overlay_that_is_not_as_it_was_applied_is_looked_at(
    overlaid: dict[str, Any], tmp_path: Path, how: str
) -> None:
    patched = tmp_path / "engine/lib/python3.11/site-packages/sglang/a.py"
    if how == "edited file":
        patched.write_bytes(b"mine")
    elif how == "removed file":
        patched.unlink()
    elif how == "removed note":
        (tmp_path / "engine/pdlab-overlay.json").unlink()
    else:
        overlaid["overlay_sha256"] = "" if how == "no longer wanted" else "other"
    assert sight("locked_venv", overlaid, read_kept(str(tmp_path))) is None


@pytest.mark.parametrize(
    "gone", ["bin/python", "lib/python3.11/site-packages/sglang-0.5.23.dist-info", "pdlab-lock.json"]
)
def test_an_environment_of_which_something_is_gone_is_looked_at(
    environment: dict[str, Any], tmp_path: Path, gone: str
) -> None:
    path = tmp_path / "engine" / gone
    path.rmdir() if path.is_dir() else path.unlink()
    assert sight("locked_venv", environment, read_kept(str(tmp_path))) is None


# --- KV probe --------------------------------------------------------------------------------------------------------


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The arguments of a probe whose good result is kept."""
    arguments = {"python": "/x/python", "memory": "dram", "fingerprint": "ef", "state_dir": str(tmp_path / "state")}
    monkeypatch.setattr(kv_probe, "probe", lambda _params: {"ok": True, "gib_s": 2.0})
    assert run_module(kv_probe, capsys, arguments)["kept"] is False
    return arguments


def test_a_kept_probe_is_told_as_the_module_itself_tells_it(
    probe: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = sight("kv_probe", probe, read_kept(str(tmp_path))["kv_probe"])
    assert seen is not None
    assert seen == said(run_module(kv_probe, capsys, probe))


@pytest.mark.parametrize(
    "other",
    [
        {"fingerprint": "new"},
        {"memory": "vram"},
        {"devices": [0, 1]},
        {"pairs": [[2, 3]]},
        {"environments": [{"UCX_TLS": "tcp"}, {}]},
        {"force": True},
    ],
)
def test_a_probe_of_something_else_is_run(probe: dict[str, Any], tmp_path: Path, other: dict[str, Any]) -> None:
    assert sight("kv_probe", {**probe, **other}, read_kept(str(tmp_path))["kv_probe"]) is None


def test_a_probe_from_before_a_reboot_is_run_again(probe: dict[str, Any], tmp_path: Path) -> None:
    assert sight("kv_probe", probe, {**read_kept(str(tmp_path))["kv_probe"], "boot": "another"}) is None


# --- references ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the question whether a reference is there, with an index file that names one."""
    arguments = {
        "state": "present",
        "settings": {"args": {"page-size": 16}, "env": {}, "device": "cpu", "tp": 1},
        "reference_dir": str(tmp_path / "state/references"),
        "model_fingerprint": "m",
        "engine_fingerprint": "e",
    }
    oracle_run.note_settings({**oracle_run.CASES, **arguments}, str(tmp_path / "state/references/abc.json"))
    (tmp_path / "state/references/abc.json").write_text('{"identity": {}}')
    monkeypatch.setattr(oracle_run.oracle_cases, "read_reference", lambda document, _identity: document)
    return arguments


def test_an_intact_reference_is_told_as_the_module_itself_tells_it(
    reference: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = sight("pd_oracle", reference, read_kept(str(tmp_path)))
    assert seen is not None
    assert seen == said(run_module(pd_oracle, capsys, reference))


def test_a_reference_of_another_engine_or_a_broken_one_is_looked_for(reference: dict[str, Any], tmp_path: Path) -> None:
    assert sight("pd_oracle", {**reference, "engine_fingerprint": "new"}, read_kept(str(tmp_path))) is None
    (tmp_path / "state/references/abc.json").write_text("{")
    assert sight("pd_oracle", reference, read_kept(str(tmp_path))) is None


def test_nothing_below_the_root_is_nothing_kept(tmp_path: Path) -> None:
    kept = read_kept(str(tmp_path / "not-there"))
    assert kept["references"] == {}
    assert kept["kv_probe"]["document"] is None
    assert not any(state["exists"] for state in kept["environments"].values())


# --- what a probe says when it fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "probe", "document", "options"),
    [
        (
            kv_probe,
            KV,
            {"ok": True, "memory": "VRAM", "transport": "tcp/lo", "gib_s": 0.4, "copy_gib_s": 150.0},
            {"memory": "vram", "devices": [0, 1]},
        ),
        (kv_probe, KV, {"ok": False, "why": "no agent"}, {"memory": "vram", "devices": [0, 1]}),
        (collectives_probe, COLLECTIVES, {"ok": False, "why": "it hangs", "groups": []}, {"devices": [0, 1]}),
    ],
)
def test_a_probe_that_fails_says_its_cure_once_and_its_record_leaves_it_to_preflight(
    module: Any,
    probe: KeptProbe,
    document: dict[str, Any],
    options: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "run_for_document", lambda *_: dict(document))
    result = run_module(module, capsys, {"python": "/usr/bin/python3", "state_dir": str(tmp_path), **options})
    assert result["failed"]
    assert result["msg"].count(probe.cure) == 1
    assert probe.cure not in result["why"]


def test_the_options_that_all_probes_have_are_declared_once_and_documented_once() -> None:
    documented = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    assert {
        name: {key: value for key, value in option.items() if key != "description"}
        for name, option in documented.items()
    } == OPTIONS
    for module in (kv_probe, collectives_probe):
        own = yaml.safe_load(module.DOCUMENTATION)
        assert own["extends_documentation_fragment"] == ["pdlab.pdlab.kept_probe"]
        assert not set(own["options"]) & set(OPTIONS)
