# SPDX-License-Identifier: Apache-2.0
"""The evidence document of one or more runs. Pure: legs in, document out."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.analysis.goodput import Limits
from pdlab.analysis.rate_search import HighestRate
from pdlab.evidence.advice import advice_of
from pdlab.evidence.cells import cells_of, samples_of
from pdlab.evidence.comparisons import comparisons_of
from pdlab.evidence.declared import declared_arms
from pdlab.evidence.doubts import doubts_of
from pdlab.evidence.goods import NO_LIMITS, goods_of, limit_set, limits_by_workload, rate_of, scales
from pdlab.evidence.legs import Leg, arms_of
from pdlab.evidence.likeness import unlike_reasons
from pdlab.evidence.limit_ladder import limit_ladder
from pdlab.evidence.measured import servers_of
from pdlab.evidence.model import Arm, Doubt, Evidence, LegRow, LimitSet, RateRow, VerdictRow, WinnerCell
from pdlab.evidence.shared_gpus import shared_gpus_note
from pdlab.evidence.typed import inventory_options
from pdlab.evidence.verdicts import verdict_of
from pdlab.evidence.winners import winners_of


def build_evidence(
    legs: Sequence[Leg], name: str, limits: Limits | None = None, *, allow_unlike: bool = False
) -> Evidence:
    """What the legs show. `limits`: asked of every workload, in place of those that workloads state.

    Legs of unlike models, engines, GPUs or workloads are not compared, and `refused` says why; with `allow_unlike`
    they are, and each reason is a doubt.
    """
    legs = sorted(legs, key=lambda leg: (leg.order, leg.id))
    reasons = unlike_reasons(legs)
    refused = [] if allow_unlike else reasons
    samples = samples_of(legs)
    declared = declared_arms(legs)
    arms = [_arm(one, legs, one in declared) for one in arms_of(legs)]
    notes = dict.fromkeys(leg.report.rehearsal_note for leg in legs if leg.report.rehearsal_note)
    note = "; ".join(notes) or None
    # A verdict is quoted alone: what it must not be taken for stands in it.
    said_with = "; ".join([*notes, *filter(None, [shared_gpus_note(legs)])]) or None
    rates: list[RateRow] = []
    winners: list[WinnerCell] = []
    verdicts: list[VerdictRow] = []
    for workload, sets in limits_by_workload(samples, limit_set(limits)).items():
        for wanted in sets:
            goods = goods_of(samples, workload, wanted)
            searched: dict[str, HighestRate] = {}
            for arm in arms if wanted != NO_LIMITS else ():
                found = rate_of(samples, arm.name, workload, wanted)
                if found:
                    rates.append(found[0])
                    searched[arm.name] = found[1]
            winners += [] if refused else winners_of(workload, wanted, goods, scales(arms))
            verdicts.append(
                verdict_of(workload, wanted, arms, samples, goods, searched, refused=refused, note=said_with)
            )
        # Limits that the user asks stand alone; else the grid also shows where arms part beside what was stated.
        for wanted in () if limits or refused else limit_ladder(samples, workload, _stated(sets)):
            winners += winners_of(workload, wanted, goods_of(samples, workload, wanted), scales(arms))
    doubts = [Doubt(id="unlike", where=name, seen=reason, wanted="the same in every run") for reason in reasons]
    damaged = [
        Doubt(id="damaged", where=leg.id, seen=line, wanted="the file as the run wrote it")
        for leg in legs
        for line in leg.report.damaged
    ]
    return Evidence(
        name=name,
        rehearsal=any(leg.report.rehearsal for leg in legs),
        rehearsal_note=note,
        arms=arms,
        legs=[_leg_row(leg) for leg in legs],
        points=[one.row for one in samples],
        cells=cells_of(samples),
        comparisons=[] if refused else comparisons_of(samples, arms),
        rates=rates,
        winners=winners,
        verdicts=verdicts,
        doubts=[*(doubts if allow_unlike else []), *damaged, *doubts_of(samples, limit_set(limits))],
        advice=[] if refused else advice_of(samples, arms),
        refused=refused,
    )


def _stated(sets: Sequence[LimitSet]) -> list[LimitSet]:
    """The limits that were stated; no limits at all is none."""
    return [one for one in sets if one != NO_LIMITS]


def _arm(name: str, legs: Sequence[Leg], declared: bool) -> Arm:
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
        options=inventory_options([leg for leg in legs if leg.arm == name]),
        declared=declared,
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
