# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a server itself says that it is ready, or until it is certain that this life of it will not be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json, processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    STARTING,
    ServiceManager,
    ServiceStatus,
)

POLL_S = 0.1
# An engine writes a line for each question that it answers.
ASK_EVERY_S = 0.25
# /health makes a token and may take as long as SGLANG_HEALTH_CHECK_TIMEOUT, 20 s.
ANSWER_TIMEOUT_S = 25.0
# From the start to a visible process there is a shell and an exec; longer means that it waits to be started again.
BETWEEN_LIVES_S = 1.5
# 401 and 403: this question needs the API key. 404: this version does not know it.
_ASK_OTHERWISE = (401, 403, 404)


@dataclass(frozen=True)
class Readiness:
    """`ready`, or `died`, or neither: the time was over. `seen` says what was last seen, for a message."""

    ready: bool
    died: bool
    seen: str
    pid: int | None = None


class Probe:
    """Asks a server in the background, so that whoever waits keeps seeing everything else."""

    def __init__(self, url: str, paths: tuple[str, str]) -> None:
        self._url = url
        self._paths = paths
        self._path = paths[0]
        self._thread: threading.Thread | None = None
        self._ready = False
        self._asked = 0.0
        self.seen = "it was not asked yet"

    def poll(self) -> bool:
        """Tell whether the server has said that it is ready; asks again when no question is under way."""
        idle = self._thread is None or not self._thread.is_alive()
        if not self._ready and idle and time.monotonic() - self._asked >= ASK_EVERY_S:
            self._asked = time.monotonic()
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self._thread.start()
            self._thread.join(POLL_S)
        return self._ready

    def _ask(self) -> None:
        reply = http_json.get(self._url + self._path, timeout_s=ANSWER_TIMEOUT_S)
        if reply.status in _ASK_OTHERWISE and self._path != self._paths[1]:
            self._path = self._paths[1]
            reply = http_json.get(self._url + self._path, timeout_s=ANSWER_TIMEOUT_S)
        self.seen = f"{self._path}: {reply.describe()}"
        self._ready = reply.status == 200


def await_ready(
    manager: ServiceManager,
    name: str,
    probe: Probe,
    timeout_s: float,
    between_lives_s: float = BETWEEN_LIVES_S,
    stop: Callable[[], None] = processes.stop_if_controller_gone,
) -> Readiness:
    """Wait until the server is ready, its process has ended, or `timeout_s` is over.

    A process that ends is a failure at once, also when the manager would start it again. `between_lives_s` is how
    long there may be no process at first, not counting the time for which the manager holds it back. Raises
    ControllerGone.
    """
    began = last_held_back = time.monotonic()
    life: tuple[int, int] | None = None
    while True:
        stop()
        if life is None or not processes.is_alive(*life):
            status = manager.status(name)
            if life is not None:
                return Readiness(False, True, ending(life[0], status))
            process = processes.read_process(status.pid) if status.pid else None
            if process is not None:
                life = (process.pid, process.start_ticks)
            elif status.held_back:
                last_held_back = time.monotonic()
            elif status.state != STARTING or time.monotonic() - last_held_back > between_lives_s:
                return Readiness(False, True, ending(None, status))
        if life is not None and probe.poll() and processes.is_alive(*life):
            return Readiness(True, False, probe.seen, life[0])
        if time.monotonic() - began > timeout_s:
            return Readiness(False, False, probe.seen, life[0] if life else None)
        time.sleep(POLL_S)


def ending(pid: int | None, status: ServiceStatus) -> str:
    """Say how a process ended."""
    subject = f"its process (PID {pid})" if pid else "its process"
    if status.exit_code is None:
        how = "ended"
    elif status.exit_code < 0:
        how = "was killed by a signal" + (f" ({-status.exit_code})" if status.exit_code < -1 else "")
    else:
        how = f"ended with exit code {status.exit_code}"
    return f"{subject} {how}; its service manager says {status.detail or status.state}"
