# SPDX-License-Identifier: Apache-2.0
"""What the numbers cannot support: of each arm at each load, of points that are left out, of runs that differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.analysis.support import flags
from pdlab.evidence.cells import Sample, by_arm
from pdlab.evidence.comparisons import load_words
from pdlab.evidence.model import Doubt, Load


def doubts_of(samples: Sequence[Sample]) -> list[Doubt]:
    """Each thing once for an arm at a load of a workload; points that are left out each."""
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
    return [*(_left_out(one) for one in samples if not one.row.counts), *found.values()]


def place(workload: str, load: Load, arm: str) -> str:
    """Where a doubt belongs: "short, 16 requests at once, pd"."""
    return f"{workload}, {load_words(load)}, {arm}"


def _left_out(one: Sample) -> Doubt:
    point = one.row.point
    checks = [f"{check.id}: {check.seen}" for check in point.checks if not check.ok]
    why = "; ".join(point.why or checks) or ("it was not measured" if not point.measured else "a check failed")
    return Doubt(id="left_out", where=one.row.id, seen=why, wanted="every check passed")
