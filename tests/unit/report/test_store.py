# SPDX-License-Identifier: Apache-2.0
"""The run folder: found by name, written whole, readable whatever happened to the run."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout

from pdlab.controller import controller_alive
from pdlab.run_stages import pair_stages
from pdlab.store import RunFolder, StoreError
from pdlab.topology import Plan
from tests.unit.report import run_folder_factory as factory

FIRST = "20260131T120000Z-1a2b3c"
SECOND = "20260131T130000Z-4d5e6f"


def create(runs_dir: Path) -> RunFolder:
    return RunFolder.create(
        runs_dir, command=["pdlab", "up"], inventory="inventory/local", rehearsal=True, pdlab_version="0.1.0"
    )


def test_a_new_run_is_named_by_time_and_id_and_says_that_it_runs(tmp_path: Path) -> None:
    run = create(tmp_path / "runs")
    document = json.loads((run.path / "run.json").read_text())
    assert len(run.name) == len(FIRST)
    assert document["run"] == run.name
    assert document["status"] == "running"
    assert document["controller"]["pid"] == os.getpid()
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert run.read().controller_alive is True
    assert not run.read().died


def test_finishing_a_run_keeps_the_other_fields_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.finish("failed", 6, "point c16 failed")
    document = json.loads((run.path / "run.json").read_text())
    assert (document["status"], document["exit_code"], document["why"]) == ("failed", 6, "point c16 failed")
    assert document["command"] == ["pdlab", "up"]
    assert document["ended"] >= document["started"]
    assert [path for path in run.path.iterdir() if path.name.endswith(".tmp")] == []


def test_runs_are_found_by_latest_name_id_prefix_and_path(tmp_path: Path) -> None:
    for name in (FIRST, SECOND):
        factory.good_run(tmp_path, name=name)
    (tmp_path / "findings.md").write_text("not a run")
    (tmp_path / "notes").mkdir()
    assert [run.name for run in RunFolder.all_runs(tmp_path)] == [FIRST, SECOND]
    for reference, name in {
        "latest": SECOND,
        FIRST: FIRST,
        "1a2b3c": FIRST,
        "20260131T13": SECOND,
        str(tmp_path / FIRST): FIRST,
    }.items():
        assert RunFolder.find(tmp_path, reference).name == name


def test_a_reference_that_fits_no_run_or_several_names_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="pdlab up"):
        RunFolder.find(tmp_path / "none")
    for name in (FIRST, SECOND):
        factory.good_run(tmp_path, name=name)
    with pytest.raises(StoreError, match=f"fits 2 runs.*{FIRST}, {SECOND}"):
        RunFolder.find(tmp_path, "2026")
    with pytest.raises(StoreError, match=f"no run 'abc'.*latest is {SECOND}"):
        RunFolder.find(tmp_path, "abc")
    with pytest.raises(StoreError, match="not a directory"):
        RunFolder.find(tmp_path, str(tmp_path / "missing"))
    with pytest.raises(StoreError, match=r"no run folder.*run\.json"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("number", "cure"),
    [(errno.EROFS, "read-only"), (errno.ENOSPC, "full"), (errno.EACCES, "writable"), (errno.ENOTDIR, "in the way")],
)
def test_a_runs_directory_that_cannot_be_written_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(layout, "create_run", refuse)
    with pytest.raises(StoreError, match=cure) as caught:
        create(tmp_path / "runs")
    assert str(tmp_path / "runs") in str(caught.value)


def test_a_file_where_the_runs_directory_should_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StoreError, match="a file is in the way"):
        create(tmp_path / "runs")


def test_a_full_disk_while_finishing_keeps_the_old_run_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"run\.json.*full"):
        run.finish("ok", 0)
    assert json.loads((run.path / "run.json").read_text())["status"] == "running"


def test_a_run_that_died_says_in_which_stage_and_keeps_what_it_had(tmp_path: Path) -> None:
    contents = factory.died_run(tmp_path).read()
    assert contents.died
    assert contents.open_stage == "benchmark"
    assert [stage.name for stage in contents.stages] == ["preflight", "deploy", "ready", "verify", "benchmark"]
    assert contents.stages[1].seconds == pytest.approx(74.2)
    assert contents.stages[-1].finished is False
    assert contents.record("answers") is not None
    assert contents.record("stability") is None
    assert contents.damaged == ()


def test_points_come_in_sweep_order_with_the_missing_ones_empty(tmp_path: Path) -> None:
    contents = factory.failed_point_run(tmp_path).read()
    assert [point.label for point in contents.points] == ["c1-n8", "c16-n48", "c64-n96"]
    assert contents.points[2].record is None
    assert contents.points[2].raw is None
    assert contents.points[2].planned is not None


def test_damaged_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    (run.path / "records" / "oracle.json").write_text('{"ok": tr')
    (run.path / "plan.json").write_text("[]")
    raw = run.raw_path("c16-n48")
    raw.write_text("garbage\n" + raw.read_text() + '{"cut": ')
    contents = run.read()
    assert contents.record("oracle") is None
    assert contents.record("answers") is not None
    assert {line.split(":")[0] for line in contents.damaged} == {
        "records/oracle.json",
        "plan.json",
        "bench/c16-n48.jsonl",
    }
    assert next(point.raw for point in contents.points if point.label == "c16-n48")


def test_an_empty_run_folder_reads_as_a_run_that_died(tmp_path: Path) -> None:
    (tmp_path / FIRST).mkdir()
    contents = RunFolder.find(tmp_path).read()
    assert contents.died
    assert contents.stages == ()
    assert contents.points == ()


def test_only_the_tail_of_a_server_log_is_read_from_a_whole_line(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    (run.path / "logs" / "decode-0.log").write_text("".join(f"line {number}\n" for number in range(20_000)))
    tail = run.read().logs["decode-0"]
    assert len(tail) < 70_000
    assert tail.startswith("line ")
    assert tail.endswith("line 19999\n")


def test_a_pid_taken_over_by_a_later_process_is_not_the_controller(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path).run
    assert controller_alive({**run, "started": "2001-01-01T00:00:00+00:00"}) is False
    assert controller_alive({**run, "started": "2999-01-01T00:00:00+00:00"}) is True
    assert controller_alive({**run, "controller": {**run["controller"], "host": "elsewhere"}}) is None


def test_a_stage_that_starts_twice_leaves_the_first_unfinished() -> None:
    events: list[dict[str, Any]] = [
        {"stage": "deploy", "event": "start", "time": 1.0},
        {"stage": "deploy", "event": "start", "time": 5.0},
        {"stage": "deploy", "event": "end", "time": 7.0, "ok": True},
        {"stage": "report", "event": "end", "time": 8.0, "ok": False, "why": "x"},
        {"stage": "verify", "event": "start"},
    ]
    first, second, orphan = pair_stages(events)
    assert (first.finished, second.seconds, second.ok) == (False, 2.0, True)
    assert (orphan.name, orphan.seconds, orphan.ok, orphan.why) == ("report", None, False, "x")


def test_finishing_a_run_ends_the_stage_that_a_failure_left_open(tmp_path: Path) -> None:
    run = create(tmp_path)
    layout.append_stage(str(run.path), "preflight", "start")
    layout.append_stage(str(run.path), "preflight", "end", True)
    layout.append_stage(str(run.path), "deploy", "start")
    run.finish("failed", 4, "no space for the engine")
    first, second = run.read().stages
    assert (first.ok, first.why) == (True, None)
    assert (second.finished, second.ok, second.why) == (True, False, "no space for the engine")


def test_the_folders_that_these_tests_make_hold_plans_as_pdlab_makes_them() -> None:
    for rehearsal in (True, False):
        assert Plan.model_validate(factory.plan(rehearsal)).rehearsal is rehearsal
