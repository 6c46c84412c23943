# SPDX-License-Identifier: Apache-2.0
"""Files are put in a file's place whole, with the mode that is meant, and nothing is left beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import replace_bytes, replace_text


@pytest.fixture(params=[0o022, 0o077], ids=["umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_targets_file_has_the_mode_that_is_meant_and_a_runs_file_what_the_umask_leaves(
    tmp_path: Path, umask: int
) -> None:
    replace_text(str(tmp_path / "unit"), "x", mode=0o644)
    replace_text(str(tmp_path / "secret"), "x", mode=0o600)
    run_folder.write_text(str(tmp_path / "findings.md"), "x")
    modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}
    assert modes == {"unit": 0o644, "secret": 0o600, "findings.md": 0o666 & ~umask}


def test_what_shares_the_old_content_keeps_it(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    os.link(path, link)
    replace_bytes(str(path), b"new", 0o644)
    assert (path.read_text(), link.read_text()) == ("new", "old")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for mode in (0o644, None):
        with pytest.raises(OSError, match="No space left"):
            replace_bytes(str(path), b"new", mode)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
