# SPDX-License-Identifier: Apache-2.0
"""Who wins where: arms over load and limits, for each workload. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pdlab.analysis.decision import settled_claim
from pdlab.evidence.cells import interval_of
from pdlab.evidence.comparisons import compare_repeats, load_words
from pdlab.evidence.goods import NO_LIMITS, Good
from pdlab.evidence.model import LimitSet, Load, WinnerCell
from pdlab.evidence.verdict_words import more_or_fewer


def winners_of(
    workload: str, limits: LimitSet, goods: Mapping[str, Mapping[Load, Good]], scale: Mapping[str, float]
) -> list[WinnerCell]:
    """A cell for each load that two arms or more have, closed loops first, each by rising load.

    `scale`: what an arm's rate is divided by before arms are compared; a cell's goodput is as measured.
    """
    loads = sorted(
        {load for by_load in goods.values() for load in by_load},
        key=lambda load: (load.loop, load.concurrency or 0, load.rate_s or 0.0),
    )
    cells = []
    for load in loads:
        here = {arm: by_load[load] for arm, by_load in goods.items() if load in by_load}
        if len(here) > 1:
            winner, words = winner_of(load, limits, here, scale)
            cells.append(
                WinnerCell(
                    workload=workload,
                    load=load,
                    limits=limits,
                    goodput={arm: interval_of(list(good.request_s.values())) for arm, good in here.items()},
                    winner=winner,
                    words=words,
                )
            )
    return cells


def winner_of(
    load: Load, limits: LimitSet, here: Mapping[str, Good], scale: Mapping[str, float]
) -> tuple[str | None, str]:
    """The arm whose goodput is shown to be higher than each other arm's, and the result in words.

    In an open loop arms that keep the limits serve what arrives: none of them wins over another.
    """
    values = {
        arm: {repeat: value / scale.get(arm, 1.0) for repeat, value in good.request_s.items()}
        for arm, good in here.items()
    }
    means = {arm: math.fsum(found.values()) / len(found) for arm, found in values.items()}
    ranked = sorted(here, key=lambda arm: -means[arm])
    keepers = [arm for arm in here if here[arm].keeps]
    where = load_words(load)
    if load.loop == "open" and len(keepers) > 1:
        return None, f"{' and '.join(keepers)} keep the limits at {where}: none wins over the other"
    best, second = ranked[0], ranked[1]
    if means[best] == 0:
        return None, f"no request met the limits at {where} on any arm"
    against = {
        arm: found
        for arm in ranked[1:]
        if (found := compare_repeats(f"{best} against {arm}", values[best], values[arm]))
    }
    what = "requests" if limits == NO_LIMITS else "good requests"
    unit = "a second" if set(scale.values()) <= {1.0} else "a second and GPU"
    said = f"{means[best]:.3g} against {means[second]:.3g} {unit}"
    said = (
        f"{best} serves {more_or_fewer(means[best] / means[second], what)} {second} at {where} ({said})"
        if means[second] > 0
        else f"{best} serves {what} at {where}, the others none ({said})"
    )
    if len(against) < len(here) - 1:
        return None, f"{said}; no repeat that all have in common"
    if any(found.pairs < 2 for found in against.values()):
        return None, f"{said}: one run of each has no spread"
    unbeaten = [arm for arm, found in against.items() if settled_claim(found) != "higher"]
    if unbeaten:
        return None, f"{said}: no effect shown against {', '.join(unbeaten)}"
    return best, f"{said}; {min(found.pairs for found in against.values())} repeats"
