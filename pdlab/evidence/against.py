# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain RUN --against OTHER`: the curves of RUN held against what OTHER measured, arm by arm. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdlab.analysis.held import QUANTITIES, Held, hold
from pdlab.evidence.cells import Sample, samples_of
from pdlab.evidence.legs import Leg
from pdlab.evidence.likeness import unlike_stacks

UNITS = {"request_s": "requests/s", "ttft_ms": "ms to the first token", "tpot_ms": "ms a token"}


def against(legs: Sequence[Leg], others: Sequence[Leg]) -> list[Held]:
    """Each point of `others` that counts, of a prefill/decode arm, beside what the same arm of `legs` predicts.

    Raises ValueError where the two runs have other models, engines or GPUs, or no prefill/decode arm in common.
    """
    mine, theirs = _disaggregated(samples_of(legs)), _disaggregated(samples_of(others))
    arms = {one.row.arm for one in mine} & {one.row.arm for one in theirs}
    if not arms:
        raise ValueError("--against: the two runs have no prefill/decode arm in common")
    unlike = unlike_stacks([leg for leg in (*legs, *others) if leg.arm in arms])
    if unlike:
        raise ValueError(f"--against: {'; '.join(unlike)}")
    made: list[Held] = []
    for sample in theirs:
        own = [one for one in mine if one.row.arm == sample.row.arm]
        points = [one.measurement for one in own if one.measurement is not None]
        if sample.measurement is None or not points:
            continue
        if points[0].servers != sample.measurement.servers:
            raise ValueError(f"--against: {sample.row.arm} has other servers in the two runs")
        saturated = frozenset(one.row.point.label for one in own if one.row.bound == "prefill-bound")
        made += [replace(row, label=sample.row.id) for row in hold(points, sample.measurement, saturated)]
    return made


def _disaggregated(samples: Sequence[Sample]) -> list[Sample]:
    return [
        one
        for one in samples
        if one.row.counts and one.measurement is not None and one.measurement.servers.disaggregated
    ]


def against_lines(rows: Sequence[Held], other: str) -> list[str]:
    """A line for each point and quantity, and one that sums up; what was refused once for each point."""
    shown = [f"held against {other}, with the requests that were in flight there:"]
    told: set[tuple[str, str]] = set()
    for row in rows:
        if row.refused:
            if (row.label, row.refused) not in told:
                told.add((row.label, row.refused))
                shown.append(f"  {row.label}: refused: {row.refused}")
        elif row.predicted is not None and row.measured is not None:
            shown.append(
                f"  {row.label}: {row.predicted:.4g} {UNITS[row.quantity]} predicted, {row.measured:.4g} measured "
                f"({row.error or 0:+.0%})"
            )
    for quantity in QUANTITIES:
        errors = sorted(abs(row.error) for row in rows if row.quantity == quantity and row.error is not None)
        if errors:
            middle = errors[len(errors) // 2]
            shown.append(
                f"  {UNITS[quantity]}: off by {middle:.0%} in the middle and by {errors[-1]:.0%} at most, {len(errors)} point{'s' * (len(errors) > 1)}"
            )
    return shown
