# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plug-ins that started something on the target, and end it when the run is cancelled."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

CLEAN_UP_S = 15


class Interrupted(BaseException):
    """The run is being cancelled."""


@contextlib.contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """While a job runs, let a signal unwind the stack: Ansible's worker would otherwise end where it stands."""
    interrupted = False
    before: dict[signal.Signals, Any] = {}

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        # Ansible sends SIGTERM right after SIGINT; the job is ended first, within a time that is kept.
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CLEAN_UP_S)
        raise Interrupted(signal.Signals(number).name)

    # Elsewhere than in a main thread signals are not to be had.
    with contextlib.suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)
