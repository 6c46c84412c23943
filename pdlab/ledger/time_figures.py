# SPDX-License-Identifier: Apache-2.0
"""Where the time of a mean request goes, worked out again from the figures that it comes from (report/request_time.py)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from pdlab.evidence import figure_ids as ids
from pdlab.evidence.model import Cell, Evidence, PointRow
from pdlab.evidence.row_ids import cell_id
from pdlab.ledger.derived_figures import NoFigureError, find_cell
from pdlab.ledger.explained import Explained
from pdlab.report.request_time import RequestTime, request_times

Of = Callable[[str], Explained]

FORMULAS = {
    "decode": "mean E2E - mean TTFT",
    "queue": "requests that wait for prefill, or to meet decode before it, / requests per second (Little's law), mean over "
    "repeats; at most TTFT",
    "transfer": "mean time of a KV transfer as the engine says, else requests in transfer / requests per second (Little's "
    "law), mean over repeats; at most what the queue leaves of TTFT",
    "prefill": "TTFT of a lone request, at most what queue and transfer leave of TTFT",
    "unknown": "what the other parts leave of TTFT",
}


def time_figure(evidence: Evidence, figure: ids.TimeFigure, explain: Of) -> Explained:
    """One part of a mean request's time, ms."""
    cell = find_cell(evidence, figure.arm, figure.workload, figure.load)
    whole = _shown(evidence, cell) if cell else None
    part = whole.part(figure.part) if whole else None
    if cell is None or part is None:
        parts = ", ".join(part.figure for part in whole.parts) if whole else "none"
        raise NoFigureError(f"there is no {figure}; there is {parts}")
    rows = [row for row in evidence.points if row.id in cell.points]
    value, inputs = _worked_out(evidence, cell, rows, figure.part, explain)
    return Explained(
        id=str(figure),
        what=f"ms of a mean request of {figure.arm} on {figure.workload} at {ids.load_word(figure.load)} that go into "
        f"{figure.part}",
        value=value,
        shown=part.ms,
        formula=FORMULAS[figure.part],
        inputs=inputs,
    )


def time_ids(evidence: Evidence) -> list[str]:
    """The ids of all parts of all requests' times."""
    whole = [_shown(evidence, cell) for cell in evidence.cells]
    return [part.figure for one in whole if one for part in one.parts]


def _shown(evidence: Evidence, cell: Cell) -> RequestTime | None:
    arms = [arm.name for arm in evidence.arms]
    found = request_times([one for one in evidence.cells if one.workload == cell.workload], evidence.points, arms)
    return next((one for one in found if one.cell == cell), None)


def _worked_out(
    evidence: Evidence, cell: Cell, rows: Sequence[PointRow], part: str, explain: Of
) -> tuple[float | None, list[Explained]]:
    """The value, and what it is made of."""
    ttft = explain(cell_id(cell, "ttft_ms.mean"))
    if part == "decode":
        whole = explain(cell_id(cell, "e2e_ms.mean"))
        return _number(whole) - _number(ttft), [whole, ttft]
    lone = next(
        (
            explain(cell_id(one, "ttft_ms.mean"))
            for one in evidence.cells
            if (one.arm, one.workload, one.load.loop, one.load.concurrency) == (cell.arm, cell.workload, "closed", 1)
            and "ttft_ms.mean" in one.figures
        ),
        None,
    )
    waits, waiting = _of_each(rows, [("prefill_waiting", False)], explain)
    meets, meeting = _of_each(rows, [("prefill_bootstrap", False)], explain)
    moves, moving = _of_each(rows, [("kv_transfer_ms", True), ("prefill_inflight", False)], explain)
    # A point whose meeting of decode was not recorded waited at least for prefill.
    all_waits = math.fsum([*waits, *meets]) / len(rows)
    queue = min(all_waits, _number(ttft)) if len(waits) == len(rows) else None
    # Without the queues nothing of TTFT can be told apart but a lone request's.
    known = statistics.fmean(moves) if queue is not None and len(moves) == len(rows) else 0.0
    transfer = min(known, _number(ttft) - (queue or 0.0))
    left = _number(ttft) - (queue or 0.0) - transfer
    prefill = min(left, _number(lone)) if lone else 0.0
    parts = {"queue": queue, "transfer": transfer, "prefill": prefill, "unknown": left - prefill}
    inputs = [ttft, *([lone] if lone else []), *([*waiting, *meeting, *moving] if queue is not None else [])]
    return parts[part], inputs


def _of_each(
    rows: Sequence[PointRow], names: Sequence[tuple[str, bool]], explain: Of
) -> tuple[list[float], list[Explained]]:
    """A time of each point, ms, from the first of the engine's metrics that it has: a time itself, or requests."""
    values, inputs = [], []
    for row in rows:
        for name, is_time in names:
            if row.point.engine is not None and getattr(row.point.engine, name) is not None:
                one = explain(ids.point_figure(row.leg, row.point.label, f"engine.{name}"))
                inputs.append(one)
                if is_time:
                    values.append(_number(one))
                elif row.point.request_s:
                    rate = explain(ids.point_figure(row.leg, row.point.label, "request_s"))
                    inputs.append(rate)
                    values.append(1000 * _number(one) / _number(rate))
                break
    return values, inputs


def _number(figure: Explained) -> float:
    return float(figure.value) if isinstance(figure.value, int | float) else 0.0
