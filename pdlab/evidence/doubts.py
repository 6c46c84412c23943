# SPDX-License-Identifier: Apache-2.0
"""What the numbers cannot support: of each arm at each load, of points that are left out, of runs that differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.analysis.support import flags
from pdlab.evidence.cells import Sample, by_arm, is_known
from pdlab.evidence.comparisons import load_words
from pdlab.evidence.goods import limits_by_workload, untimed
from pdlab.evidence.model import Doubt, LimitSet, Load


def doubts_of(samples: Sequence[Sample], limits: LimitSet | None = None) -> list[Doubt]:
    """Each thing once for an arm at a load of a workload; points that are left out each. `limits`: asked of all."""
    found: dict[tuple[str, str, str], Doubt] = {}
    for (workload, load), group in by_arm(samples).items():
        for arm, repeats in group.items():
            where = place(workload, load, arm)
            for one in repeats.values():
                if one.measurement is None:
                    continue
                for flag in flags(one.measurement, len(repeats)):
                    key = (flag.id, where, flag.seen if flag.id == "noted" else "")
                    found.setdefault(key, Doubt(id=flag.id, where=where, seen=flag.seen, wanted=flag.wanted))
    return [
        *(_left_out(one) for one in samples if not one.row.counts),
        *(_untimed(one) for one in _without_times(samples, limits)),
        *found.values(),
    ]


def _without_times(samples: Sequence[Sample], limits: LimitSet | None) -> list[Sample]:
    """The points that some limits of their workload cannot be asked of."""
    found = {
        one.row.id: one
        for workload, sets in limits_by_workload(samples, limits).items()
        for wanted in sets
        for one in untimed(samples, workload, wanted)
    }
    return list(found.values())


def _untimed(one: Sample) -> Doubt:
    seen, wanted = "no times of single requests", "each request's TTFT and gaps between tokens, to ask limits of it"
    return Doubt(id="no_request_times", where=one.row.id, seen=seen, wanted=wanted)


def place(workload: str, load: Load, arm: str) -> str:
    """Where a doubt belongs: "short, 16 requests at once, pd"."""
    return f"{workload}, {load_words(load)}, {arm}"


def _left_out(one: Sample) -> Doubt:
    point = one.row.point
    checks = [f"{check.id}: {check.seen}" for check in point.checks if not check.ok]
    why = "; ".join(point.why or checks) or _unstated(one)
    return Doubt(id="left_out", where=one.row.id, seen=why, wanted="every check passed")


def _unstated(one: Sample) -> str:
    """Why a point is left out that failed no check."""
    if not one.row.point.measured:
        return "it was not measured"
    if not is_known(one.row.load):
        return "neither its concurrency nor its rate is known"
    return "its record has no figures" if one.row.point.ok and one.measurement is None else "a check failed"
