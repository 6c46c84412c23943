# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import http.server
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import ControllerGone
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_wait import Probe, await_ready, ending
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    FAILED,
    RUNNING,
    STARTING,
    ServiceManager,
    ServiceStatus,
)

PATHS = ("/ready", "/health")


class OneService(ServiceManager):
    """A manager that only says how its one service is, from a list; the last answer stays."""

    def __init__(self, *answers: ServiceStatus) -> None:
        self.answers = list(answers)

    def status(self, name: str) -> ServiceStatus:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    path = render = read = write = remove = start = stop = services = None  # type: ignore[assignment]


OneService.__abstractmethods__ = frozenset()


@contextmanager
def answering(statuses: dict[str, list[int]]) -> Iterator[tuple[str, list[str]]]:
    """A server that answers each path with the next of its statuses, the last for ever; yields its URL and what came."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            left = statuses.get(self.path, [404])
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        yield sleeper
        sleeper.kill()


def silent() -> Probe:
    return Probe("http://127.0.0.1:1", PATHS)


def test_ready_is_when_the_server_says_so(process: subprocess.Popen[bytes]) -> None:
    with answering({"/ready": [503, 503, 200]}) as (url, asked):
        outcome = await_ready(OneService(ServiceStatus(RUNNING, process.pid)), "x", Probe(url, PATHS), 20)
    assert (outcome.ready, outcome.pid) == (True, process.pid)
    assert asked == ["/ready"] * 3


@pytest.mark.parametrize("status", [401, 403, 404])
def test_health_is_asked_where_ready_is_unknown_or_closed(process: subprocess.Popen[bytes], status: int) -> None:
    with answering({"/ready": [status], "/health": [503, 200]}) as (url, asked):
        outcome = await_ready(OneService(ServiceStatus(RUNNING, process.pid)), "x", Probe(url, PATHS), 20)
    assert outcome.ready
    assert asked == ["/ready", "/health", "/health"]


def test_a_process_that_ends_is_told_at_once_with_its_exit_code(process: subprocess.Popen[bytes]) -> None:
    manager = OneService(ServiceStatus(RUNNING, process.pid), ServiceStatus(FAILED, exit_code=3))
    threading.Timer(0.4, process.kill).start()
    threading.Timer(0.5, process.wait).start()
    began = time.monotonic()
    outcome = await_ready(manager, "x", silent(), 60)
    assert outcome.died
    assert f"(PID {process.pid}) ended with exit code 3" in outcome.seen
    assert time.monotonic() - began < 3


def test_a_service_that_waits_to_be_started_again_has_died() -> None:
    manager = OneService(ServiceStatus(STARTING, exit_code=-9, detail="activating/auto-restart"))
    outcome = await_ready(manager, "x", silent(), 60, between_lives_s=0.2)
    assert outcome.died
    assert "killed by a signal (9)" in outcome.seen


def test_a_service_may_take_the_time_to_come_back_that_it_is_given(process: subprocess.Popen[bytes]) -> None:
    manager = OneService(*[ServiceStatus(STARTING)] * 5, ServiceStatus(RUNNING, process.pid))
    with answering({"/ready": [200]}) as (url, _):
        assert await_ready(manager, "x", Probe(url, PATHS), 60, between_lives_s=30).ready


def test_a_failed_service_has_died_without_waiting() -> None:
    assert await_ready(OneService(ServiceStatus(FAILED, exit_code=1)), "x", silent(), 60).died


def test_a_live_server_that_is_not_ready_in_time_has_not_died(process: subprocess.Popen[bytes]) -> None:
    with answering({"/ready": [503]}) as (url, _):
        outcome = await_ready(OneService(ServiceStatus(RUNNING, process.pid)), "x", Probe(url, PATHS), 0.6)
    assert (outcome.ready, outcome.died) == (False, False)
    assert outcome.seen.startswith("/ready: HTTP 503")


def test_waiting_ends_when_the_controller_is_gone(process: subprocess.Popen[bytes]) -> None:
    def gone() -> None:
        raise ControllerGone

    with pytest.raises(ControllerGone):
        await_ready(OneService(ServiceStatus(RUNNING, process.pid)), "x", silent(), 60, stop=gone)


def test_an_answer_on_the_way_does_not_hide_that_the_process_ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    manager = OneService(ServiceStatus(RUNNING, process.pid), ServiceStatus(FAILED, exit_code=-9))
    with answering({"/ready": [200]}) as (url, _):
        assert not await_ready(manager, "x", Probe(url, PATHS), 5).ready


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (ServiceStatus(FAILED, exit_code=203, detail="failed/failed, exit-code"), "ended with exit code 203"),
        (ServiceStatus(FAILED, exit_code=-1), "was killed by a signal;"),
        (ServiceStatus(FAILED), "its process ended; its service manager says failed"),
    ],
)
def test_an_end_is_described(status: ServiceStatus, said: str) -> None:
    assert said in ending(None, status)
