# SPDX-License-Identifier: Apache-2.0
"""The ids of the figures of an evidence document: of each row, and of all of them. Pure.

The page asks for a row's id where it shows the row, the ledger for every id that there is. Both ask here, so that a
figure cannot have one id on the page and another where it is explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pdlab.evidence import figure_ids as ids
from pdlab.evidence.cells import PER_GPU, figures_of
from pdlab.evidence.model import Cell, ComparisonRow, Evidence, PointRow, RateRow, VerdictRow, WinnerCell


def point_id(row: PointRow, field: str) -> str:
    """A figure of a point."""
    return ids.point_figure(row.leg, row.point.label, field)


def cell_id(cell: Cell, field: str) -> str:
    """A figure of a cell."""
    return ids.cell_figure(cell.arm, cell.workload, cell.load, field)


def shown_cell_id(cell: Cell, field: str) -> str:
    """The same as it is shown: the point's own where there is just one, which may be one that does not count."""
    if len(cell.points) == 1 and field != PER_GPU:
        leg, _colon, label = cell.points[0].rpartition(":")
        return ids.point_figure(leg, label, field)
    return cell_id(cell, field)


def comparison_id(row: ComparisonRow) -> str:
    """One quantity of an arm against another."""
    return ids.compare_figure(row.workload, row.load, row.quantity, row.a, row.b)


def rate_id(row: RateRow) -> str:
    """The highest rate of an arm."""
    return ids.rate_figure(row.arm, row.workload, row.limits)


def winner_id(cell: WinnerCell, arm: str | None = None) -> str:
    """Who wins at a load; with an arm, that arm's goodput there."""
    return ids.winner_figure(cell.workload, cell.load, cell.limits, arm)


def verdict_id(row: VerdictRow) -> str:
    """The effect of a verdict."""
    return ids.verdict_figure(row.workload, row.limits)


def point_ids(evidence: Evidence, gpus: Callable[[PointRow], int | None]) -> Iterator[str]:
    """All figures of all points that have a value. gpus: how many GPUs the point's arm had."""
    return (point_id(row, field) for row in evidence.points for field in figures_of(row.point, gpus(row)))


def cell_ids(cells: Iterable[Cell]) -> Iterator[str]:
    """All figures of cells."""
    return (cell_id(cell, field) for cell in cells for field in cell.figures)


def comparison_ids(evidence: Evidence) -> Iterator[str]:
    """All comparisons."""
    return map(comparison_id, evidence.comparisons)


def rate_ids(evidence: Evidence) -> Iterator[str]:
    """All highest rates."""
    return map(rate_id, evidence.rates)


def winner_ids(evidence: Evidence) -> Iterator[str]:
    """All winners, and each arm's goodput there."""
    return (winner_id(cell, arm) for cell in evidence.winners for arm in (None, *cell.goodput))


def verdict_ids(evidence: Evidence) -> Iterator[str]:
    """All verdicts."""
    return map(verdict_id, evidence.verdicts)
