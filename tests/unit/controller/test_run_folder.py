# SPDX-License-Identifier: Apache-2.0
"""The run folder's writers."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder


def test_a_new_run_has_its_document_and_its_folders(tmp_path: Path) -> None:
    run = Path(run_folder.create_run(str(tmp_path / "runs"), {"status": "running"}))
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", run.name)
    assert json.loads((run / "run.json").read_text()) == {"run": run.name, "status": "running"}
    assert {"records", "bench", "logs"} <= {path.name for path in run.iterdir()}


def test_runs_sort_by_time() -> None:
    assert run_folder.new_run_name(0) < run_folder.new_run_name(1) < run_folder.new_run_name()


def test_a_write_that_fails_leaves_the_old_document_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    run_folder.write_json(str(path), {"a": 1})
    with pytest.raises(UnicodeEncodeError):
        run_folder.write_text(str(path), "\udcff")
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_stage_lines_carry_their_outcome_only_at_the_end(tmp_path: Path) -> None:
    run_folder.append_stage(str(tmp_path), "deploy", "start")
    run_folder.append_stage(str(tmp_path), "deploy", "end", ok=False, why="no disk")
    start, end = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert set(start) == {"stage", "event", "time"}
    assert (end["ok"], end["why"]) == (False, "no disk")


def test_letters_of_any_language_are_kept_as_they_are(tmp_path: Path) -> None:
    run_folder.write_record(str(tmp_path), "answers", {"got": "Köln 東京"})
    assert "Köln 東京" in (tmp_path / "records" / "answers.json").read_text(encoding="utf-8")
