# SPDX-License-Identifier: Apache-2.0
"""Numbers for the next deployment: a server more, copies of a server, the length from which an arm is quicker. Pure.

Each row is a bracket that holds by itself, or is not there: what the measurements do not carry is refused by analysis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pdlab.analysis.advice import Bracket, breakeven_output_len, copies, one_server_more, prefill_to_feed_decode
from pdlab.analysis.closed_loop import model_of
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError
from pdlab.analysis.what_if import FittedArm, fit_arm
from pdlab.evidence.cells import Sample, highest_loads
from pdlab.evidence.model import AdviceRow, Arm, Load

ROLE_OF: Mapping[str, str] = {"prefill-bound": "prefill", "decode-bound": "decode"}


def advice_of(samples: Sequence[Sample], arms: Sequence[Arm]) -> list[AdviceRow]:
    """Advice for each workload at its highest closed-loop load: for the stage that binds, and between the arms."""
    rows: list[AdviceRow] = []
    for workload, load, here in highest_loads(samples):
        points = {arm: one.measurement for arm, one in here.items() if one.measurement is not None}
        for arm in arms:
            if arm.name not in points:
                continue
            bound = here[arm.name].row.bound
            made = _one_more(arm, points[arm.name], bound, samples) if arm.disaggregated else []
            rows += [
                _row(workload, load, arm.name, one) for one in (*made, *_copies(arm, arms, workload, load, samples))
            ]
        rows += [_row(workload, load, own, one) for own, one in _break_even(arms, points)]
    return rows


def _one_more(arm: Arm, point: Measurement, bound: str | None, samples: Iterable[Sample]) -> list[Bracket]:
    """What a server more of the stage that binds would give; the prefill servers that decode could take."""
    role = ROLE_OF.get(bound or "")
    own = [one for one in samples if one.row.arm == arm.name and one.row.counts and one.measurement is not None]
    fitted = _fitted([one.measurement for one in own if one.measurement is not None], own)
    if fitted is None or role is None:
        return []
    fit = fitted.prefill_fit
    found: list[Bracket | None] = []

    def more() -> Bracket:
        model = model_of(fit.latency, fit.service, fitted.tpot, point.input_len, fitted.prefill, fitted.decode)
        return one_server_more(point, model, fitted.tpot, "prefill" if role == "prefill" else "decode")

    found.append(_or_none(more))
    if role == "prefill":
        found.append(_or_none(lambda: prefill_to_feed_decode(point, fitted.tpot)))
    return [one for one in found if one is not None]


def _fitted(points: Sequence[Measurement], own: Iterable[Sample]) -> FittedArm | None:
    saturated = frozenset(one.row.point.label for one in own if one.row.bound == "prefill-bound")
    try:
        return fit_arm(points, saturated)
    except RefusedError:
        return None


def _copies(arm: Arm, arms: Sequence[Arm], workload: str, load: Load, samples: Iterable[Sample]) -> list[Bracket]:
    """What copies of a colocated arm would give on the GPUs of the largest arm, where it has fewer."""
    largest = max((other.gpus or 0 for other in arms), default=0)
    if arm.disaggregated or not arm.gpus or largest < 2 * arm.gpus:
        return []
    points = [
        one.measurement
        for one in samples
        if one.row.counts and one.measurement is not None and (one.row.arm, one.row.workload) == (arm.name, workload)
    ]
    found = _or_none(lambda: copies(points, largest // (arm.gpus or 1), load.concurrency or 1))
    return [found] if found else []


def _break_even(arms: Sequence[Arm], points: Mapping[str, Measurement]) -> list[tuple[str, Bracket]]:
    """From which output length a prefill/decode arm ends a request sooner than each other arm, where it does at some."""
    made = []
    for own in (arm.name for arm in arms if arm.disaggregated and arm.name in points):
        for other in (arm.name for arm in arms if not arm.disaggregated and arm.name in points):
            found = _or_none(_even(points[own], points[other]))
            if found and (found.high or 0) > 1:
                made.append((own, found))
    return made


def _even(quick: Measurement, other: Measurement) -> Callable[[], Bracket]:
    return lambda: breakeven_output_len(quick, other)


def _or_none(make: Callable[[], Bracket]) -> Bracket | None:
    try:
        return make()
    except RefusedError:
        return None


def _row(workload: str, load: Load, arm: str, found: Bracket) -> AdviceRow:
    return AdviceRow(
        id=found.name,
        workload=workload,
        load=load,
        arm=arm,
        low=found.low,
        high=found.high,
        guess=found.guess,
        words=found.words,
    )
