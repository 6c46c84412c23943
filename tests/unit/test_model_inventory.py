# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a model is read once; what changed is read again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import checksums, model_inventory
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import (
    fingerprint,
    inventory,
    remember,
    remembered,
)

from tests.checkpoints import checkpoint, written


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint whose shards count as large."""
    monkeypatch.setattr(model_inventory, "HASHED_WHOLE_BYTES", 1 << 20)
    return written(tmp_path / "model", checkpoint(3 << 20))


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened from now on."""
    seen: list[str] = []
    real = open

    def watched(file: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(os.path.basename(str(file)))
        return real(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", watched)
    return seen


def test_a_second_look_at_an_intact_model_opens_none_of_its_files(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = inventory(str(model))
    seen = reads(monkeypatch)
    assert inventory(str(model), first) == first
    assert seen == []


def test_a_file_that_was_written_to_is_read_again_and_no_other(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = inventory(str(model))
    (model / "config.json").write_text("{}")
    seen = reads(monkeypatch)
    assert inventory(str(model), first) != first
    assert seen == ["config.json"]


def test_the_fingerprint_is_the_same_for_a_copy_and_another_for_other_weights_of_the_same_sizes(
    model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy, copy_function=shutil.copyfile)
    other = written(tmp_path / "other", checkpoint(3 << 20, seed=9))
    assert fingerprint(inventory(str(copy))) == fingerprint(inventory(str(model)))
    sizes = [{name: entry["size"] for name, entry in inventory(str(each)).items()} for each in (model, other)]
    assert sizes[0] == sizes[1]
    assert fingerprint(inventory(str(other))) != fingerprint(inventory(str(model)))


def test_a_hash_that_was_checked_does_not_change_the_fingerprint(model: Path) -> None:
    files = inventory(str(model))
    before = fingerprint(files)
    for entry in files.values():
        entry["checked_sha256"] = "0" * 64
    assert fingerprint(files) == before


def test_git_folders_and_caches_are_no_part_of_a_model_and_a_dangling_link_is_no_crash(model: Path) -> None:
    before = inventory(str(model))
    written(model, {".git/lfs/objects/big": b"x", ".cache/huggingface/lock": b""})
    assert inventory(str(model)) == before
    (model / "gone").symlink_to("/nowhere")
    assert inventory(str(model))["gone"] == {"size": None, "mtime_ns": None}


def test_what_is_remembered_outside_of_the_model_comes_back_and_a_torn_memory_counts_as_none(
    model: Path, tmp_path: Path
) -> None:
    root, files = str(tmp_path / "root"), inventory(str(model))
    (tmp_path / "root" / "state").mkdir(parents=True)
    before = sorted(os.listdir(model))
    remember(root, str(model), files, whole=True)
    assert remembered(root, str(model))["files"] == files
    assert sorted(os.listdir(model)) == before
    Path(model_inventory.memory_path(root, str(model))).write_text("{torn")
    assert remembered(root, str(model)) == {"files": {}, "whole": False, "quantization": None}


# --- SHA-256 lists ---------------------------------------------------------------------------------------------------


def hashes(model: Path) -> dict[str, str]:
    import hashlib

    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in model.iterdir()}


def test_a_list_of_sha256sum_is_read_and_a_line_that_is_none_is_named(model: Path) -> None:
    wanted = hashes(model)
    text = "".join(f"{digest} {mark}{name}\n" for (name, digest), mark in zip(wanted.items(), " * *" * 9, strict=False))
    assert checksums.parse("# made yesterday\n\n" + text) == wanted
    with pytest.raises(ValueError, match="line 2"):
        checksums.parse("0" * 64 + "  a\nnonsense\n")
    with pytest.raises(ValueError, match="no file"):
        checksums.parse("\n")


def test_listed_files_are_hashed_once_and_a_wrong_or_missing_one_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, files = hashes(model), inventory(str(model))
    shard = "model-00001-of-00002.safetensors"
    assert checksums.not_hashed(files, wanted) == [shard, "model-00002-of-00002.safetensors"]
    checksums.hash_slice(str(model), files, wanted, None, lambda: None)
    assert checksums.not_hashed(files, wanted) == checksums.faults(files, wanted) == []
    again = inventory(str(model), files)
    assert checksums.not_hashed(again, wanted) == []
    (fault,) = checksums.faults(again, {**wanted, shard: "f" * 64})
    assert fault.startswith(f"{shard} has the SHA-256 {wanted[shard]}")
    assert checksums.faults(again, {"gone": "f" * 64}) == ["gone is missing (pd_model.sha256 names it)"]


def test_a_slice_of_no_time_hashes_nothing_and_a_tick_that_raises_ends_it(model: Path) -> None:
    wanted, files = hashes(model), inventory(str(model))
    checksums.hash_slice(str(model), files, wanted, 0, lambda: None)
    assert len(checksums.not_hashed(files, wanted)) == 2

    def gone() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checksums.hash_slice(str(model), files, wanted, None, gone)


def test_a_memory_that_an_earlier_pdlab_wrote_leaves_open_what_it_did_not_know(model: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    remember(root, str(model), inventory(str(model)), whole=True)
    path = Path(model_inventory.memory_path(root, str(model)))
    kept = json.loads(path.read_text())
    del kept["quantization"]
    path.write_text(json.dumps(kept))
    assert remembered(root, str(model))["quantization"] is None
