# SPDX-License-Identifier: Apache-2.0
"""The evidence document of one or more runs. Pure: legs in, document out."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.analysis.goodput import Limits
from pdlab.evidence.cells import cells_of, samples_of
from pdlab.evidence.legs import Leg, arms_of
from pdlab.evidence.measured import servers_of
from pdlab.evidence.model import Arm, Evidence, LegRow


def build_evidence(legs: Sequence[Leg], name: str, limits: Limits | None = None) -> Evidence:
    """What the legs show. `limits`: asked of every workload, in place of those that workloads state."""
    legs = sorted(legs, key=lambda leg: (leg.order, leg.id))
    samples = samples_of(legs)
    return Evidence(
        name=name,
        rehearsal=any(leg.report.rehearsal for leg in legs),
        arms=[_arm(name, legs) for name in arms_of(legs)],
        legs=[_leg_row(leg) for leg in legs],
        points=[one.row for one in samples],
        cells=cells_of(samples),
        comparisons=[],
        rates=[],
        winners=[],
        verdicts=[],
        doubts=[],
    )


def _arm(name: str, legs: Sequence[Leg]) -> Arm:
    """An arm as the first of its legs that has a plan says."""
    plans = [leg.contents.plan for leg in legs if leg.arm == name and leg.contents.plan]
    servers = servers_of(plans[0] if plans else {})
    return Arm(
        name=name,
        disaggregated=servers.disaggregated,
        prefill=servers.prefill,
        decode=servers.decode,
        colocated=servers.colocated,
        gpus=servers.gpus,
    )


def _leg_row(leg: Leg) -> LegRow:
    report = leg.report
    return LegRow(
        id=leg.id,
        arm=leg.arm,
        repeat=leg.repeat,
        order=leg.order,
        run=leg.run,
        path=leg.path,
        ok=report.ok,
        why=report.why,
        started=report.started,
        seconds=report.seconds,
    )
