# SPDX-License-Identifier: Apache-2.0
"""Good requests per second of every point that counts, under the limits asked of its workload. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pdlab.analysis.goodput import Limits, askable, goodput
from pdlab.analysis.rate_search import WANTED_SHARE, HighestRate, highest_rate
from pdlab.analysis.refusal import RefusedError
from pdlab.evidence.cells import Sample
from pdlab.evidence.model import Arm, LimitSet, Load, RateRow

NO_LIMITS = LimitSet()


@dataclass(frozen=True)
class Good:
    """Good requests of one arm at one load: requests per second by repeat, and the share that was good over all.

    tpot_ms: the mean over all requests, good or not, by repeat.
    """

    request_s: Mapping[int, float]
    attainment: float
    tpot_ms: Mapping[int, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Good requests per second over the repeats."""
        return math.fsum(self.request_s.values()) / len(self.request_s)

    @property
    def keeps(self) -> bool:
        """Whether the limits were kept for the share of requests that is wanted."""
        return self.attainment >= WANTED_SHARE


def scales(arms: Iterable[Arm]) -> dict[str, float]:
    """What each arm's rate is divided by: its GPUs where arms have unlike numbers of them, else 1."""
    gpus = {arm.name: arm.gpus for arm in arms}
    unlike = None not in gpus.values() and len(set(gpus.values())) > 1
    return {name: float(count or 1) if unlike else 1.0 for name, count in gpus.items()}


def limits_by_workload(samples: Iterable[Sample], asked: LimitSet | None) -> dict[str, tuple[LimitSet, ...]]:
    """The limits to judge each workload by: those asked, else those it states, else none at all."""
    found: dict[str, dict[LimitSet, None]] = {}
    for one in samples:
        stated = found.setdefault(one.row.workload, {})
        stated.update(dict.fromkeys((asked,) if asked else one.limits))
    return {workload: tuple(stated) or (NO_LIMITS,) for workload, stated in found.items()}


def goods_of(samples: Sequence[Sample], workload: str, limits: LimitSet) -> dict[str, dict[Load, Good]]:
    """Good requests by arm and load, from points that count and kept each request's times.

    Without limits every request is good, and the times are not needed.
    """
    rows: dict[tuple[str, Load], list[tuple[int, float, int, int]]] = {}
    tpot: dict[tuple[str, Load], dict[int, float]] = {}
    for one in samples:
        if not one.row.counts or one.measurement is None or one.row.workload != workload:
            continue
        asked = one.measurement.requested or one.measurement.completed or 1
        if limits == NO_LIMITS:
            entry = (one.row.repeat, one.measurement.request_s, one.measurement.completed or asked, asked)
        else:
            if not askable(one.measurement, limits_of(limits)):
                continue
            met = goodput(one.measurement, limits_of(limits))
            entry = (one.row.repeat, met.request_s, met.good, met.requested)
        if one.measurement.tpot_ms is not None:
            tpot.setdefault((one.row.arm, one.row.load), {})[one.row.repeat] = one.measurement.tpot_ms
        rows.setdefault((one.row.arm, one.row.load), []).append(entry)
    found: dict[str, dict[Load, Good]] = {}
    for (arm, load), entries in rows.items():
        share = sum(entry[2] for entry in entries) / sum(entry[3] for entry in entries)
        by_repeat = {entry[0]: entry[1] for entry in entries}
        found.setdefault(arm, {})[load] = Good(by_repeat, share, tpot.get((arm, load), {}))
    return found


def untimed(samples: Iterable[Sample], workload: str, limits: LimitSet) -> list[Sample]:
    """The points of a workload that count and that limits cannot be asked of, since no request's times were kept."""
    return [
        one
        for one in samples
        if one.row.counts
        and one.row.workload == workload
        and one.measurement is not None
        and limits != NO_LIMITS
        and not askable(one.measurement, limits_of(limits))
    ]


def lost_rates(samples: Iterable[Sample], workload: str, arm: str, limits: LimitSet) -> set[float]:
    """The rates of an open loop that an arm was asked for and at which it has no point to ask the limits of."""
    seen: dict[float, bool] = {}
    for one in samples:
        rate = one.row.load.rate_s
        if (one.row.arm, one.row.workload) == (arm, workload) and rate is not None:
            usable = one.row.counts and one.measurement is not None and askable(one.measurement, limits_of(limits))
            seen[rate] = seen.get(rate, False) or usable
    return {rate for rate, usable in seen.items() if not usable}


def rate_of(samples: Iterable[Sample], arm: str, workload: str, limits: LimitSet) -> tuple[RateRow, HighestRate] | None:
    """The highest rate of one arm; None when it has no open-loop point of that workload with its requests' times."""
    points = [
        one.measurement
        for one in samples
        if one.row.counts
        and one.measurement is not None
        and (one.row.arm, one.row.workload, one.row.load.loop) == (arm, workload, "open")
        and askable(one.measurement, limits_of(limits))
    ]
    try:
        found = highest_rate(points, limits_of(limits))
    except RefusedError:
        return None
    row = RateRow(
        arm=arm,
        workload=workload,
        limits=limits,
        share=found.share,
        kept_s=found.kept_s,
        failed_s=found.failed_s,
        estimate_s=found.estimate_s,
        settled=found.settled and found.refused is None,
        words=f"{arm}: {found.words}",
    )
    return row, found


def limits_of(limits: LimitSet) -> Limits:
    """The same limits as the analysis takes them."""
    return Limits(limits.ttft_ms, limits.tpot_ms, limits.e2e_ms)


def limit_set(limits: Limits | None) -> LimitSet | None:
    """The analysis' limits as the document has them; None for none."""
    if limits is None or limits == Limits():
        return None
    return LimitSet(ttft_ms=limits.ttft_ms, tpot_ms=limits.tpot_ms, e2e_ms=limits.e2e_ms)
