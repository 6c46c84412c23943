# SPDX-License-Identifier: Apache-2.0
"""Benchmark points by what was asked of them."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.results.model import Point


def workloads(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points by their request lengths and kind of loop, each in order of load: curves join like with like only."""
    found: dict[str, list[Point]] = {}
    for point in points:
        if point.concurrency is not None or point.rate_s is not None:
            loop = ", open loop" if point.loop == "open" else ""
            found.setdefault(workload(point) + loop, []).append(point)
    return {name: sorted(group, key=_amount) for name, group in found.items()}


def load(point: Point) -> str:
    """How requests arrive, in few characters: "16" in flight, or "4/s"."""
    if point.loop == "open" and point.rate_s is not None:
        return f"{point.rate_s:g}/s"
    return point.label if point.concurrency is None else str(point.concurrency)


def load_heading(points: Sequence[Point]) -> str:
    """What heads a column of load()s."""
    loops = {point.loop for point in points}
    return "load" if len(loops) > 1 else "requests per s" if loops == {"open"} else "concurrency"


def _amount(point: Point) -> float:
    return point.rate_s or 0.0 if point.loop == "open" else float(point.concurrency or 0)


def workload(point: Point) -> str:
    """A point's request lengths: "256 in, 128 out"; "up to" when they are drawn below those limits."""
    if point.input_len is None or point.output_len is None:
        return "lengths unknown"
    upto = "" if point.range_ratio is None or point.range_ratio >= 1 else "up to "
    return f"{upto}{point.input_len} in, {upto}{point.output_len} out"
