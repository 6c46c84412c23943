# SPDX-License-Identifier: Apache-2.0
"""Further TPOT limits for the grid of winners, from what was measured: where arms part, whatever limits were stated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pdlab.analysis.rate_search import WANTED_SHARE
from pdlab.evidence.cells import Sample
from pdlab.evidence.model import LimitSet, Load
from pdlab.results.latency import percentile

STEPS = 4


def limit_ladder(samples: Iterable[Sample], workload: str, stated: Sequence[LimitSet]) -> tuple[LimitSet, ...]:
    """Up to STEPS limits besides those stated, with the TTFT and E2E limit of the first of these.

    Just above the 90th percentile of TPOT an arm keeps a limit at a load, just below it does not. So the limits are
    taken evenly from these percentiles of all arms and loads, rounded up to two digits. None when a workload has one
    arm, or no request's times.
    """
    values: dict[tuple[str, Load], list[float]] = {}
    for one in samples:
        requests = one.measurement.requests if one.measurement else None
        if one.row.workload == workload and one.row.counts and requests is not None:
            values.setdefault((one.row.arm, one.row.load), []).extend(requests.tpot_ms)
    if len({arm for arm, _load in values}) < 2:
        return ()
    edges = sorted({_up(percentile(found, WANTED_SHARE)) for found in values.values() if max(found) > 0})
    first = stated[0] if stated else LimitSet()
    ladder = [first.model_copy(update={"tpot_ms": edge}) for edge in _evenly(edges)]
    return tuple(limits for limits in ladder if limits not in stated)


def _evenly(edges: Sequence[float]) -> list[float]:
    """STEPS of them, or all when there are no more."""
    if len(edges) <= STEPS:
        return list(edges)
    return [edges[round((step + 0.5) / STEPS * (len(edges) - 1))] for step in range(STEPS)]


def _up(value: float) -> float:
    """Rounded up to two digits that matter: a limit that is easily said, and that the value keeps."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    # Division leaves 5.300000000000001, which would be the next step up.
    return float(f"{math.ceil(round(value / scale, 6)) * scale:.6g}")
