# SPDX-License-Identifier: Apache-2.0
"""Benchmark points by what was asked of them."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.results import Point


def workloads(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points by their request lengths, each in order of concurrency: curves join like with like only."""
    found: dict[str, list[Point]] = {}
    for point in points:
        if point.concurrency is not None:
            found.setdefault(workload(point), []).append(point)
    return {name: sorted(group, key=lambda point: point.concurrency or 0) for name, group in found.items()}


def workload(point: Point) -> str:
    """A point's request lengths: "256 in, 128 out"; "up to" when they are drawn below those limits."""
    if point.input_len is None or point.output_len is None:
        return "lengths unknown"
    upto = "" if point.range_ratio is None or point.range_ratio >= 1 else "up to "
    return f"{upto}{point.input_len} in, {upto}{point.output_len} out"
