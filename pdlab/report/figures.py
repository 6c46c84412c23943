# SPDX-License-Identifier: Apache-2.0
"""Figures as the page shows them: the text, and the id that leads to where it came from. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pdlab.evidence.figure_ids import point_figure
from pdlab.evidence.model import Interval
from pdlab.report import formatting
from pdlab.results.model import Latency, Point

LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2E", "e2e_ms"))
PARTS = ("mean", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True)
class Shown:
    """A figure as text. `id` is None where there is no figure (n/a)."""

    text: str
    id: str | None


@dataclass(frozen=True)
class LatencyRow:
    """One latency of one point."""

    name: str
    samples: int
    figures: tuple[Shown, ...]


def interval_figure(figure: Interval, id: str) -> Shown:
    """A mean over repeats with its interval."""
    return Shown(formatting.amount(figure.mean, figure.low, figure.high), id)


def point_value(leg: str, point: Point, field: str) -> Shown:
    """One figure of a point by its field, as in "output_tok_s" or "ttft_ms.p50"."""
    found: object = point
    for step in field.split("."):
        found = getattr(found, step)
    value = found if isinstance(found, int | float) else None
    return Shown(formatting.tok_s(value), None if value is None else point_figure(leg, point.label, field))


def latency_rows(leg: str, point: Point) -> list[LatencyRow]:
    """TTFT, TPOT, ITL and E2E of one point, n/a where the sample does not support a figure."""
    rows = []
    for name, field in LATENCIES:
        latency: Latency = getattr(point, field)
        figures = tuple(point_value(leg, point, f"{field}.{part}") for part in PARTS)
        rows.append(LatencyRow(name, latency.n, figures))
    return rows
