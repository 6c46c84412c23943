# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the benchmark client in this process, unchanged, and notes whether it was the bottleneck. Stdlib.

The client's module runs as `python -m MODULE ARGUMENT…` would (runpy). Whoever calls run() has imported it before, which
takes most of a client's start, so that the measurement begins at once when the word for it comes.

Watched are two things, neither of which touches the client's code:
- Its event loop. A loop policy of asyncio gives the loop a timer that asks to be woken every 20 ms and notes how late
  it was. The client stamps tokens from the same loop, so its stamps are as late as that. Linux rounds a loop's timers
  up to whole milliseconds: up to 1 ms is nobody's fault.
- Its words. The measured run begins when the first progress bar follows "Starting main benchmark run", and ends with
  the last one. Between them the processor time of this process and the timer's delays are taken: what comes before
  (prompts) and after (adding up) is no measurement.

The report is JSON, written whole at the end: {"started", "ended" (Unix times of the measured run), "window_s", "cpu_s",
"cpu_share" (of one core), "loop_lag_ms": {"n", "mean", "p99", "max"}}; null for what was not seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

EVERY_S = 0.02
BEGINS = "Starting main benchmark run"
ENDS = "Serving Benchmark Result"
BAR = re.compile(r"\d+/\d+ \[")
EXIT_NO_GO = 75


class Watch:
    """The measured run as it is seen from outside: when it was, and how busy this process was meanwhile."""

    def __init__(self) -> None:
        self.armed = False
        self.first: tuple[float, float, float] | None = None
        self.last: tuple[float, float, float] | None = None
        self.lags: list[tuple[float, float]] = []

    def said(self, text: str) -> None:
        """Something went to the client's standard output or error."""
        if BEGINS in text:
            self.armed = True
        elif ENDS in text:
            self.armed = False
        elif self.armed and BAR.search(text):
            now = (time.time(), time.perf_counter(), time.process_time())
            self.first = self.first or now
            self.last = now

    def probe(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop wake itself, and note how late it did."""
        wanted = loop.time() + EVERY_S

        def woken() -> None:
            nonlocal wanted
            now = loop.time()
            if self.armed:
                self.lags.append((time.perf_counter(), now - wanted))
            wanted = now + EVERY_S
            loop.call_at(wanted, woken)

        loop.call_at(wanted, woken)

    def report(self) -> dict[str, Any]:
        """What was seen."""
        if self.first is None or self.last is None:
            return dict.fromkeys(("started", "ended", "window_s", "cpu_s", "cpu_share", "loop_lag_ms"))
        window, cpu = self.last[1] - self.first[1], self.last[2] - self.first[2]
        begun, over = self.first[1], self.last[1]
        # What the loop was late before the run began is no part of it: the client of 0.5.17 sleeps a second there.
        lags = sorted(min(lag, at - begun) * 1000.0 for at, lag in self.lags if begun <= at <= over)
        return {
            "started": self.first[0],
            "ended": self.last[0],
            "window_s": round(window, 6),
            "cpu_s": round(cpu, 6),
            "cpu_share": round(cpu / window, 4) if window > 0 else None,
            "loop_lag_ms": {
                "n": len(lags),
                "mean": round(sum(lags) / len(lags), 3),
                "p99": round(lags[int(0.99 * (len(lags) - 1))], 3),
                "max": round(lags[-1], 3),
            }
            if lags
            else None,
        }


class Stream:
    """A standard stream that lets a Watch hear what is written; all else is the stream's own."""

    def __init__(self, stream: Any, watch: Watch) -> None:
        self._stream = stream
        self._watch = watch

    def write(self, text: str) -> Any:
        """Write, and let it be heard."""
        self._watch.said(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def policy(watch: Watch) -> asyncio.AbstractEventLoopPolicy:
    """A loop policy whose loops wake themselves."""

    class Probed(asyncio.DefaultEventLoopPolicy):  # type: ignore[misc,unused-ignore]
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop = super().new_event_loop()
            watch.probe(loop)
            return loop

    return Probed()


def write_report(path: str, watch: Watch) -> None:
    """Replace the report, whole. Raises OSError."""
    with open(path + ".tmp", "w", encoding="utf-8") as stream:
        json.dump(watch.report(), stream)
    os.replace(path + ".tmp", path)


def run(client: Sequence[str], report: str, go: int) -> int:
    """Wait for the word, run the client, leave the report; the exit status.

    `client` is the module and its arguments; `go` the descriptor on which a byte is the word. Raises what the client
    raises, SystemExit among it.
    """
    if not os.read(go, 1):
        return EXIT_NO_GO
    os.close(go)
    module, *rest = client
    watch = Watch()
    sys.stdout, sys.stderr = Stream(sys.stdout, watch), Stream(sys.stderr, watch)
    asyncio.set_event_loop_policy(policy(watch))
    # It says that the module has been imported before, which is what was wanted.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    sys.argv = [module, *rest]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        write_report(report, watch)
    return 0
