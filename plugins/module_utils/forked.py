# SPDX-License-Identifier: GPL-3.0-or-later
"""A child process that goes on with what this one has imported: fork without exec. Linux.

It is used as subprocess.Popen is where only its pid, poll and wait are asked for. Fork while this process has one
Python thread: a lock that another thread holds would never be released in the child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from ansible_collections.pdlab.pdlab.plugins.module_utils import leased_job

TICK_S = 0.02
FAILED = 1


class Forked:
    """Runs `work` in a child and ends it with the status that `work` returns.

    A negative status -N ends it by signal N, an exception as Python ends a script: with its traceback and status 1.
    The child starts as a program does: signals at their defaults, nothing on its standard input, with `environment`
    when it is given and in a session of its own when `session` is true. It is killed when this process ends.
    """

    def __init__(
        self, work: Callable[[], int], environment: Mapping[str, str] | None = None, session: bool = False
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            # Whatever happens, the child never goes on with what its parent does after the fork.
            code = FAILED
            try:
                code = _status(parent, environment, session, work)
            finally:
                _end(code)

    def poll(self) -> int | None:
        """How it ended, -N for signal N; None while it runs."""
        if self.returncode is None:
            self._look(os.WNOHANG)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; how it ended. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        if timeout is None and self.returncode is None:
            self._look(0)
        deadline = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(TICK_S)
        return code

    def _look(self, options: int) -> None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)


def _become_a_program(parent: int, environment: Mapping[str, str] | None, session: bool) -> None:
    leased_job.end_with(parent)
    if session:
        os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)


def _status(parent: int, environment: Mapping[str, str] | None, session: bool, work: Callable[[], int]) -> int:
    """The exit status of `work`, whatever it does."""
    try:
        _become_a_program(parent, environment, session)
        return work()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    return FAILED


def _end(code: int) -> None:
    """End this process, by signal N when `code` is -N; never returns."""
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if code < 0:
            # The one signal that has no handler to be taken away refuses.
            with contextlib.suppress(OSError):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        os._exit(code & 0xFF)
