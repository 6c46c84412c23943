# SPDX-License-Identifier: Apache-2.0
"""Where the time of a request goes: from sending it to its last token, in parts that are known. Pure.

E2E and TTFT are the client's means; what lies between them is decode. TTFT is split only as far as the engine's own
metrics allow: by Little's law a queue that holds N requests on average, passed by X requests a second, takes N/X of
each. What nothing explains is shown as unknown, never shared out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.evidence.figure_ids import time_figure
from pdlab.evidence.model import Cell, PointRow
from pdlab.evidence.row_ids import cell_id
from pdlab.report.loads import load_key
from pdlab.results.model import Point

QUEUE, PREFILL, TRANSFER, DECODE, UNKNOWN = "queue", "prefill", "transfer", "decode", "unknown"
PARTS = (QUEUE, PREFILL, TRANSFER, DECODE, UNKNOWN)


@dataclass(frozen=True)
class Part:
    """One part of a request's time: its name, ms, the figure that it rests on."""

    name: str
    ms: float
    figure: str


@dataclass(frozen=True)
class RequestTime:
    """One arm at one load. `ms`: the whole request. `why`: why a part is not known; empty when all are."""

    cell: Cell
    ms: float
    figure: str
    parts: tuple[Part, ...]
    why: str

    def part(self, name: str) -> Part | None:
        """A part by its name."""
        return next((part for part in self.parts if part.name == name), None)


def request_times(cells: Sequence[Cell], rows: Sequence[PointRow], arms: Sequence[str]) -> list[RequestTime]:
    """Where the time goes in each cell that has a mean TTFT and a mean E2E, by load, then in the arms' order."""
    by_id = {row.id: row for row in rows}
    places = {arm: place for place, arm in enumerate(arms)}
    alone = _lone_ttft(cells)
    found = (
        _request_time(cell, [by_id[id] for id in cell.points if id in by_id], alone.get((cell.arm, cell.workload)))
        for cell in sorted(cells, key=lambda cell: (load_key(cell.load), places.get(cell.arm, 0)))
    )
    return [one for one in found if one is not None]


def _lone_ttft(cells: Sequence[Cell]) -> dict[tuple[str, str], Cell]:
    """The cell with one request in flight, by arm and workload: its TTFT has no queue in it."""
    return {
        (cell.arm, cell.workload): cell for cell in cells if cell.load.loop == "closed" and cell.load.concurrency == 1
    }


def _request_time(cell: Cell, rows: Sequence[PointRow], alone: Cell | None) -> RequestTime | None:
    ttft, whole = cell.figures.get("ttft_ms.mean"), cell.figures.get("e2e_ms.mean")
    if ttft is None or whole is None or whole.mean < ttft.mean:
        return None
    first, why = _before_first_token(rows, ttft.mean, alone)
    known = {**first, DECODE: whole.mean - ttft.mean}
    parts = tuple(
        Part(name, ms, time_figure(cell.arm, cell.workload, cell.load, name)) for name, ms in known.items() if ms > 0
    )
    return RequestTime(cell, whole.mean, cell_id(cell, "e2e_ms.mean"), parts, why)


def _before_first_token(rows: Sequence[PointRow], ttft: float, alone: Cell | None) -> tuple[dict[str, float], str]:
    """TTFT in parts by name, ms, and why one is unknown. The parts add up to it."""
    queue = _mean([_queue_ms(row.point) for row in rows])
    transfer = _mean([_transfer_ms(row.point) for row in rows])
    lone = alone.figures.get("ttft_ms.mean") if alone else None
    if queue is None:
        if lone is None:
            return {UNKNOWN: ttft}, "the engine's queues were not recorded and no lone request was measured"
        # A lone request waits for nobody: its TTFT is prefill, and the transfer where there is one.
        least = min(lone.mean, ttft)
        return (
            {PREFILL: least, UNKNOWN: ttft - least},
            "the engine's queues were not recorded: prefill is the TTFT of a lone request, transfer included, the rest "
            "may be any kind of waiting",
        )
    queue = min(queue, ttft)
    transfer = min(transfer or 0.0, ttft - queue)
    rest = ttft - queue - transfer
    if lone is None:
        why = "no lone request of this workload was measured: prefill cannot be told from other waiting" if rest else ""
        return {QUEUE: queue, TRANSFER: transfer, UNKNOWN: rest}, why
    prefill = min(rest, lone.mean)
    parts = {QUEUE: queue, PREFILL: prefill, TRANSFER: transfer, UNKNOWN: rest - prefill}
    return parts, "" if rest <= prefill else "no metric of the engine explains this part of TTFT"


def _queue_ms(point: Point) -> float | None:
    """Time before prefill begins, by Little's law: meeting the decode server, then prefill's own queue."""
    waiting = _over_rate(getattr(point.engine, "prefill_waiting", None), point)
    meeting = _over_rate(getattr(point.engine, "prefill_bootstrap", None), point)
    return None if waiting is None else waiting + (meeting or 0.0)


def _transfer_ms(point: Point) -> float | None:
    """Time of the KV transfer as the engine says, else by Little's law from the requests in transfer."""
    if point.engine is None:
        return None
    said = point.engine.kv_transfer_ms
    return said if said is not None else _over_rate(point.engine.prefill_inflight, point)


def _over_rate(requests: float | None, point: Point) -> float | None:
    return None if requests is None or not point.request_s else 1000 * requests / point.request_s


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, when every value is there."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
