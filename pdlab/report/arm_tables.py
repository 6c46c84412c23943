# SPDX-License-Identifier: Apache-2.0
"""Arms side by side: for each workload and load the means of each arm with their intervals, and what may be claimed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.evidence.cells import figures_of
from pdlab.evidence.model import (
    Cell,
    ComparisonRow,
    Evidence,
    Interval,
    LimitSet,
    Load,
    PointRow,
)
from pdlab.evidence.row_ids import comparison_id, shown_cell_id
from pdlab.report import formatting
from pdlab.report.figures import Shown, interval_figure
from pdlab.report.loads import limit_key, load_key, load_words, ordered_loads
from pdlab.report.workloads import workload as lengths_of

# Field, heading, unit. Those are shown that any cell of the workload has.
COLUMNS = (
    ("output_tok_s", "Output", "tok/s"),
    ("output_tok_s_per_gpu", "Output a GPU", "tok/s"),
    ("request_s", "Requests", "1/s"),
    ("ttft_ms.p50", "TTFT p50", "ms"),
    ("ttft_ms.p90", "TTFT p90", "ms"),
    ("tpot_ms.p50", "TPOT p50", "ms"),
    ("tpot_ms.p90", "TPOT p90", "ms"),
    ("e2e_ms.p50", "E2E p50", "ms"),
)
NAMES = {field: f"{heading}, {unit}" for field, heading, unit in COLUMNS} | {
    f"{field}_ms.mean": f"{field.upper()} mean, ms" for field in ("ttft", "tpot", "e2e")
}


@dataclass(frozen=True)
class ArmRow:
    """One arm at one load. `out`: repeats that were measured and do not count."""

    arm: str
    repeats: int
    out: int
    figures: tuple[Shown | None, ...]
    bound: str | None


@dataclass(frozen=True)
class ClaimRow:
    """What one arm's quantity is against another's, at one load."""

    a: str
    b: str
    quantity: str
    ratio: Shown
    claim: str
    words: str


@dataclass(frozen=True)
class LoadGroup:
    """All arms at one load, and what may be claimed of them."""

    load: Load
    title: str
    rows: tuple[ArmRow, ...]
    claims: tuple[ClaimRow, ...]


@dataclass(frozen=True)
class WorkloadTable:
    """One workload: the lengths of its requests, the limits stated for it, its loads.

    `cells` are what charts draw; those at `doubtful` loads rest on a point that a check raised a doubt about.
    """

    name: str
    lengths: str
    loop: str
    limits: tuple[LimitSet, ...]
    columns: tuple[tuple[str, str, str], ...]
    groups: tuple[LoadGroup, ...]
    cells: tuple[Cell, ...]
    doubtful: frozenset[Load]

    @property
    def counting(self) -> list[Cell]:
        """The cells that the evidence itself holds."""
        return [cell for cell in self.cells if cell.load not in self.doubtful]


def workload_tables(evidence: Evidence) -> list[WorkloadTable]:
    """Every workload and loop that any point has, in the order of the points."""
    keys = dict.fromkeys((row.workload, row.load.loop) for row in evidence.points)
    return [_table(evidence, workload, loop) for workload, loop in keys]


def _table(evidence: Evidence, workload: str, loop: str) -> WorkloadTable:
    points = [row for row in evidence.points if (row.workload, row.load.loop) == (workload, loop)]
    cells = [cell for cell in evidence.cells if (cell.workload, cell.load.loop) == (workload, loop)]
    doubted = doubtful_cells(points) if len(evidence.legs) == 1 else []
    cells += doubted
    columns = tuple(column for column in COLUMNS if any(column[0] in cell.figures for cell in cells))
    # The grid of winners shows further limits, which nobody stated.
    stated = {row.limits for row in evidence.verdicts if row.workload == workload}
    claims = [row for row in evidence.comparisons if row.workload == workload]
    arms = [arm.name for arm in evidence.arms]
    return WorkloadTable(
        name=workload,
        lengths=", ".join(dict.fromkeys(lengths_of(row.point) for row in points)),
        loop=loop,
        limits=tuple(sorted((one for one in stated if one != LimitSet()), key=limit_key)),
        columns=columns,
        groups=tuple(
            _group(load, [row for row in points if row.load == load], cells, claims, columns, arms)
            for load in ordered_loads(row.load for row in points)
        ),
        cells=tuple(cells),
        doubtful=frozenset(cell.load for cell in doubted),
    )


def shown_rows(evidence: Evidence) -> list[PointRow]:
    """The points that charts draw: those that count; of a lone leg also those in doubt, which nothing else would show."""
    return [row for row in evidence.points if row.counts or (len(evidence.legs) == 1 and row.point.ok)]


def doubtful_cells(points: Sequence[PointRow]) -> list[Cell]:
    """Points that have figures and do not count, each as a cell of its own."""
    return [
        Cell(
            arm=row.arm,
            workload=row.workload,
            load=row.load,
            points=[row.id],
            figures={name: Interval(mean=value, n=1) for name, value in figures_of(row.point, None).items()},
        )
        for row in points
        if row.point.ok and not row.counts
    ]


def _group(
    load: Load,
    points: Sequence[PointRow],
    cells: Sequence[Cell],
    claims: Sequence[ComparisonRow],
    columns: Sequence[tuple[str, str, str]],
    arms: Sequence[str],
) -> LoadGroup:
    by_arm = {cell.arm: cell for cell in cells if load_key(cell.load) == load_key(load)}
    rows = []
    for arm in arms:
        own = [row for row in points if row.arm == arm]
        cell = by_arm.get(arm)
        if own:
            figures = tuple(_figure(cell, field) for field, _heading, _unit in columns)
            counting = len(cell.points) if cell else 0
            rows.append(ArmRow(arm, counting, len(own) - counting, figures, cell.bound if cell else None))
    return LoadGroup(
        load=load,
        title=load_words(load),
        rows=tuple(rows),
        claims=tuple(_claim(row) for row in claims if load_key(row.load) == load_key(load)),
    )


def _figure(cell: Cell | None, field: str) -> Shown | None:
    if cell is None or field not in cell.figures:
        return None
    return interval_figure(cell.figures[field], shown_cell_id(cell, field))


def _claim(row: ComparisonRow) -> ClaimRow:
    said = formatting.times(row.ratio, row.ratio_low, row.ratio_high)
    low, high = row.ratio_low, row.ratio_high
    beside = row.claim == "no effect shown" and low is not None and high is not None and not low <= 1 <= high
    # The interval that is shown is one that says what is claimed.
    if row.ratio is None or beside:
        said = formatting.interval(row.difference, row.low, row.high)
    return ClaimRow(
        row.a, row.b, NAMES.get(row.quantity, row.quantity), Shown(said, comparison_id(row)), row.claim, row.words
    )
