# SPDX-License-Identifier: Apache-2.0
"""Who wins where: for each workload the loads across, the limits down, in each square the arm with most goodput. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pdlab.evidence.goods import scales
from pdlab.evidence.model import Evidence, Interval, RateRow, WinnerCell
from pdlab.evidence.row_ids import rate_id, winner_id
from pdlab.report import formatting
from pdlab.report.figures import Shown
from pdlab.report.loads import limit_key, limit_words, load_key, load_words, ordered_loads

# A grid is many comparisons at once, and a reader looks for the ones that stand out.
HOW_WON = (
    "An arm wins a square when the 95 % interval of its paired difference to every other arm leaves out none. Each square "
    "is judged alone: where arms do not differ, about one square in twenty has a winner all the same. Squares of one load "
    "rest on the same requests, and limits that nobody stated were chosen from these, where the arms part."
)


PER_GPU = (
    " Arms have unlike numbers of GPUs: squares are judged per GPU, and the rates in them are of all GPUs of an arm."
)


def how_won(evidence: Evidence) -> str:
    """What a winner in the grid means, and what it does not."""
    return HOW_WON + (PER_GPU if set(scales(evidence.arms).values()) != {1.0} else "")


@dataclass(frozen=True)
class ArmGoodput:
    """Good requests per second of one arm; `best` when no other has more."""

    arm: str
    figure: Shown
    best: bool


@dataclass(frozen=True)
class Square:
    """One load under one set of limits. `winner` is None where no difference is shown; `nobody` when all have none."""

    winner: str | None
    nobody: bool
    id: str
    words: str
    goodput: tuple[ArmGoodput, ...]


@dataclass(frozen=True)
class Grid:
    """One workload's squares; None where that load was not asked under these limits."""

    workload: str
    loop: str
    loads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]


@dataclass(frozen=True)
class Rate:
    """The highest rate at which one arm keeps its limits."""

    arm: str
    workload: str
    limits: str
    figure: Shown
    words: str
    settled: bool


def winner_grids(evidence: Evidence) -> list[Grid]:
    """One grid for each workload and loop."""
    keys = dict.fromkeys((cell.workload, cell.load.loop) for cell in evidence.winners)
    return [_grid([c for c in evidence.winners if (c.workload, c.load.loop) == key], *key) for key in keys]


def rates(evidence: Evidence) -> list[Rate]:
    """The highest rates, workload by workload, limits by limits."""
    rows = sorted(evidence.rates, key=lambda row: limit_key(row.limits))
    rows = [
        row for name in dict.fromkeys(row.workload for row in evidence.rates) for row in rows if row.workload == name
    ]
    return [
        Rate(
            row.arm,
            row.workload,
            limit_words(row.limits),
            Shown(_rate(row), rate_id(row)),
            row.words,
            row.settled,
        )
        for row in rows
    ]


def _rate(row: RateRow) -> str:
    if row.estimate_s is not None:
        return f"about {row.estimate_s:.3g}"
    if row.kept_s is not None:
        # Rates that contradict each other have none.
        return f"{row.kept_s:g} or more" if row.failed_s is None else "n/a"
    return "n/a" if row.failed_s is None else f"below {row.failed_s:g}"


def _grid(cells: list[WinnerCell], workload: str, loop: str) -> Grid:
    loads = ordered_loads(cell.load for cell in cells)
    limits = sorted({cell.limits for cell in cells}, key=limit_key)
    by_place = {(load_key(cell.load), cell.limits): cell for cell in cells}
    rows = []
    for limit in limits:
        found = [by_place.get((load_key(load), limit)) for load in loads]
        rows.append((limit_words(limit), tuple(None if cell is None else _square(cell) for cell in found)))
    return Grid(workload, loop, tuple(load_words(load) for load in loads), tuple(rows))


def _square(cell: WinnerCell) -> Square:
    most = max((figure.mean for figure in cell.goodput.values()), default=0.0)
    arms = tuple(
        ArmGoodput(arm, _goodput(cell, arm, figure), most > 0 and figure.mean == most)
        for arm, figure in cell.goodput.items()
    )
    return Square(cell.winner, most == 0, winner_id(cell), cell.words, arms)


def _goodput(cell: WinnerCell, arm: str, figure: Interval) -> Shown:
    text = formatting.amount(figure.mean, figure.low, figure.high)
    return Shown(text, winner_id(cell, arm))
