# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a benchmark has come, read from the end of the client's log. Pure.

Also the one line that says so on the controller. It starts with PROGRESS_PREFIX, so that a program which reads
Ansible's output (ansible-runner: events of the kind "verbose") can tell it from the rest and take it apart with
read_line():

    pdlab-progress: benchmark c16-n48  31/48 requests  42 s
"""

from __future__ import annotations

import re
from typing import Any

PROGRESS_PREFIX = "pdlab-progress: "

# tqdm's bar, rewritten in place with \r:  " 65%|######5   | 31/48 [00:42<00:20,  1.20it/s]"
_BAR = re.compile(r"\|\s*(?P<done>\d+)/(?P<total>\d+) \[(?P<elapsed>(?:\d+:)?\d+:\d\d)<")
# The client's own words, in the order in which it says them (sglang/benchmark/serving.py). Its bar comes before the
# cache flush is over, and the summary after the bar's end.
_PHASES = (
    ("pdlab: warm-up ", "warm-up"),  # bench_conductor's
    ("benchmark_args=", "loading"),
    ("Starting warmup with ", "warm-up"),
    ("Starting main benchmark run", "measuring"),
    ("Serving Benchmark Result", "summary"),
)
_TOTALS = re.compile(r"^(?:#|Total )(input|output) tokens: (\d+)\s*$", re.MULTILINE | re.IGNORECASE)
# The bar of the prompts that are made before the run.
_MAKING = "Generating shared-prefix prompts"
_LINE = re.compile(
    re.escape(PROGRESS_PREFIX)
    + r"benchmark (?P<label>\S+)  (?:(?P<done>\d+)/(?P<total>\d+) requests|(?P<phase>\S+))  (?P<seconds>\d+) s\s*$"
)


def progress(log: str) -> dict[str, Any]:
    """What the end of the client's log tells: {"phase", "done", "total", "seconds"}.

    phase is "starting", "loading", "warm-up", "measuring" or "summary"; done and total count requests and seconds
    is the client's own clock since the measured run began; the three are None before that.
    """
    phase = "starting"
    for words, name in _PHASES:
        if words in log:
            phase = name
    seen: dict[str, Any] = {"phase": phase, "done": None, "total": None, "seconds": None}
    bar = None
    said = log.rpartition("Starting main benchmark run")[2]
    for bar in _BAR.finditer("" if _MAKING in said else said):  # noqa: B007  the last one counts
        pass
    if bar is not None:
        seen.update(done=int(bar["done"]), total=int(bar["total"]), seconds=_seconds(bar["elapsed"]))
        if phase not in ("measuring", "summary"):
            seen["phase"] = "measuring"
    return seen


def asked_tokens(log: str) -> dict[str, int | None]:
    """The tokens that the client drew for all its requests together, as it says before the run.

    {"input": n, "output": n}, None where the log does not say. For a range ratio below 1.0 this is the only
    statement of what was asked for.
    """
    found: dict[str, int | None] = {"input": None, "output": None}
    for kind, count in _TOTALS.findall(log):
        found[kind.lower()] = int(count)
    return found


def progress_line(label: str, seen: dict[str, Any], elapsed_s: float) -> str:
    """The line that tells a reader how far the point `label` is after `elapsed_s` seconds."""
    state = seen["phase"] if seen.get("done") is None else f"{seen['done']}/{seen['total']} requests"
    return f"{PROGRESS_PREFIX}benchmark {label}  {state}  {elapsed_s:.0f} s"


def read_line(line: str) -> dict[str, Any] | None:
    """Take a progress line apart: {"label", "phase", "done", "total", "seconds"}; None for any other line."""
    found = _LINE.search(line)
    if found is None:
        return None
    counted = found["done"] is not None
    return {
        "label": found["label"],
        "phase": "measuring" if counted else found["phase"],
        "done": int(found["done"]) if counted else None,
        "total": int(found["total"]) if counted else None,
        "seconds": int(found["seconds"]),
    }


def _seconds(clock: str) -> int:
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return total
