# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a run goes on."""

from __future__ import annotations

from io import StringIO
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_progress import PROGRESS_PREFIX
from rich.console import Console

from pdlab.progress import Progress
from pdlab.runner import TaskResult


def plain() -> tuple[Progress, StringIO]:
    stream = StringIO()
    return Progress(Console(file=stream, width=80)), stream


def stage(name: str, state: str = "started", ok: bool = True) -> TaskResult:
    return TaskResult("h", "t", "pdlab.pdlab.stage", {"stage": name, "state": state, "stage_ok": ok})


def failing(**result: Any) -> TaskResult:
    return TaskResult("h", "t", "pdlab.pdlab.x", {"failed": True, **result})


def test_each_stage_has_a_line_when_it_starts_and_one_with_its_time_when_it_ends() -> None:
    progress, stream = plain()
    with progress:
        progress.task_done(stage("deploy"))
        progress.task_done(stage("deploy", "finished"))
    first, second = stream.getvalue().splitlines()
    assert first == "deploy ..."
    assert second.split()[:2] == ["deploy", "ok"] and second.endswith(" s")


def test_a_stage_in_which_a_task_failed_is_said_to_have_failed() -> None:
    progress, stream = plain()
    with progress:
        progress.task_done(stage("verify"))
        progress.task_failed(failing(msg="wrong"))
    assert "FAILED" in stream.getvalue()


def test_a_stage_that_says_of_itself_that_it_is_not_ok_has_failed() -> None:
    progress, stream = plain()
    with progress:
        progress.task_done(stage("benchmark"))
        progress.task_done(stage("benchmark", "finished", ok=False))
    assert "FAILED" in stream.getvalue()


def test_a_cut_run_does_not_claim_that_its_open_stage_went_well() -> None:
    progress, stream = plain()
    with progress:
        progress.task_done(stage("benchmark"))
    assert " ok " not in stream.getvalue()


def test_the_benchmarks_own_progress_is_shown_and_ansibles_chatter_is_not() -> None:
    progress, stream = plain()
    with progress:
        progress.task_done(stage("benchmark"))
        progress.said(f"{PROGRESS_PREFIX}benchmark c16-n48  31/48 requests  42 s\nUsing /etc/ansible.cfg")
    assert "c16-n48  31/48 requests" in stream.getvalue()
    assert "ansible.cfg" not in stream.getvalue()


def test_what_preflight_found_and_does_not_forbid_is_said_at_once() -> None:
    progress, stream = plain()
    verdicts = [
        {"severity": "info", "ok": False, "seen": "2 GPUs, and this rehearses", "cure": "pdlab up -i inventory/gpu"},
        {"severity": "warn", "ok": True, "seen": "fine", "cure": None},
    ]
    with progress:
        progress.task_done(stage("preflight"))
        progress.task_done(TaskResult("h", "t", "pdlab.pdlab.preflight", {"verdicts": verdicts}))
    assert "info: 2 GPUs, and this rehearses -> pdlab up -i inventory/gpu" in stream.getvalue()
    assert "fine" not in stream.getvalue()


def test_warnings_of_a_task_are_shown() -> None:
    progress, stream = plain()
    with progress:
        progress.task_done(stage("deploy"))
        progress.task_done(TaskResult("h", "t", "x", {"warnings": ["numactl is missing"]}))
    assert "warning: numactl is missing" in stream.getvalue()
