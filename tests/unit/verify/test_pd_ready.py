# SPDX-License-Identifier: Apache-2.0
"""The module around the ready gate: its arguments, its result, and the processes it watches."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.modules import pd_ready

from tests.unit.verify.module_runner import run_module
from tests.unit.verify.stack import Stack

Capture = pytest.CaptureFixture[str]


def arguments(stack: Stack, **more: Any) -> dict[str, Any]:
    return {"servers": stack.servers(), "router": stack.router_of_plan(), "timeout_s": 1, "poll_s": 0.02, **more}


def test_a_healthy_stack_gives_the_ready_record(stack: Stack, capsys: Capture) -> None:
    result = run_module(pd_ready, capsys, arguments(stack))
    assert (result["failed"], result["changed"], result["ok"], result["why"]) == (False, False, True, None)
    assert [set(step) for step in result["steps"]] == [{"id", "name", "ok", "seconds", "seen", "why"}] * 6


def test_a_failed_step_fails_the_module_with_the_record_and_the_reason(stack: Stack, capsys: Capture) -> None:
    stack.workers["workers"].pop()
    result = run_module(pd_ready, capsys, arguments(stack, timeout_s=0.1))
    assert result["failed"] and result["ok"] is False
    assert result["msg"] == result["why"]
    assert len(result["steps"]) == 5


def test_check_mode_sends_nothing(stack: Stack, capsys: Capture) -> None:
    result = run_module(pd_ready, capsys, arguments(stack), check=True)
    assert result["skipped"] and not result["failed"]
    assert not any(s.requests for s in (stack.prefill, stack.bootstrap, stack.decode, stack.router))


def test_every_fault_of_the_arguments_is_listed_at_once(capsys: Capture) -> None:
    servers = [{"name": "a", "role": "prefil"}, {"name": "b", "role": "prefill", "address": "x", "port": 1, "url": "u"}]
    result = run_module(pd_ready, capsys, {"servers": servers, "router": {"name": "router"}, "services": [{"pid": 1}]})
    for words in (
        "servers[0]: address, port, url missing",
        "servers[0].role",
        "servers[1].bootstrap_port",
        "router.url",
        "services[0].name",
    ):
        assert words in result["msg"]


def test_a_watched_process_that_dies_ends_the_waiting_with_its_error_lines(
    stack: Stack, capsys: Capture, tmp_path: Path
) -> None:
    log = tmp_path / "prefill-0.log"
    log.write_text("ValueError: of the start before, not of this one\n")
    offset = log.stat().st_size
    stack.prefill.routes["GET /ready"] = (503, "")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
    with log.open("a") as stream:
        stream.write("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n")
    service = {"name": "prefill-0", "pid": child.pid, "log": str(log), "log_offset": offset}
    started = time.monotonic()
    try:
        result = run_module(pd_ready, capsys, arguments(stack, timeout_s=60, services=[service]))
    finally:
        child.wait()
    assert time.monotonic() - started < 10
    assert f"prefill-0, PID {child.pid}, has ended" in result["msg"]
    assert "Not enough memory" in result["msg"]
    assert "of the start before" not in result["msg"]


def test_results_of_pd_server_can_be_watched_as_they_are(stack: Stack, capsys: Capture) -> None:
    service = {"name": "decode-0", "role": "decode", "pid": os.getpid(), "pids": [1], "argv": ["x"], "changed": True}
    assert run_module(pd_ready, capsys, arguments(stack, services=[service]))["ok"]


def test_a_process_that_lives_or_has_no_pid_is_no_reason_to_stop() -> None:
    assert pd_ready.stop_reason([{"name": "a", "pid": os.getpid()}, {"name": "b", "pid": None}]) is None


def test_a_rank_port_of_another_process_is_found(stack: Stack, capsys: Capture) -> None:
    # The ports of the stack are this process's, and so not those of the watched one.
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        result = run_module(pd_ready, capsys, arguments(stack, services=[{"name": "prefill-0", "pid": child.pid}]))
    finally:
        child.kill()
        child.wait()
    assert [step["id"] for step in result["steps"]][-1] == "ranks"
    assert f"PID {os.getpid()}" in result["why"]


def test_a_rank_port_of_the_watched_process_passes(stack: Stack, capsys: Capture) -> None:
    services = [{"name": "prefill-0", "pid": os.getpid()}]
    assert run_module(pd_ready, capsys, arguments(stack, services=services))["ok"]


def test_a_controller_that_is_gone_ends_the_waiting(
    stack: Stack, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "controller_gone", lambda: True)
    stack.prefill.routes["GET /ready"] = (503, "")
    started = time.monotonic()
    result = run_module(pd_ready, capsys, arguments(stack, timeout_s=60))
    assert "controller is gone" in result["msg"]
    assert time.monotonic() - started < 5
