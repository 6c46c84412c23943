# SPDX-License-Identifier: Apache-2.0
"""What `pdlab explain --json` prints, published as docs/schemas/explain.json: the evidence and the analysis behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pdlab.analysis.goodput import Goodput
from pdlab.analysis.held import Held
from pdlab.analysis.rate_search import HighestRate
from pdlab.analysis.sweep import ArmAnalysis, PointAnalysis, SweepBound, sweep_bounds
from pdlab.analysis.what_if import FittedArm
from pdlab.evidence.model import Evidence
from pdlab.evidence.what_ifs import WhatIf
from pdlab.explain import Explained, place_of

SCHEMA_VERSION = 2


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkloadRate(_Model):
    """The highest rate of one workload: mean tokens in and out, and what the rates support."""

    input_len: float
    output_len: float
    rate: HighestRate


class PointGoodput(_Model):
    """One point's goodput under each set of limits, asked or stated."""

    label: str
    repeat: int
    goodput: list[Goodput]


class ArmExplained(_Model):
    """One arm: each point with the evidence for and against its bound, the fitted curves, what was refused and why.

    The times of single requests are left out: they are in the run's raw files.
    """

    arm: str
    points: list[PointAnalysis]
    goodput: list[PointGoodput]
    fitted: FittedArm | None
    tpot_residuals_ms: list[float] = Field(description="What the line through TPOT misses at each of its points.")
    rates: list[WorkloadRate]
    sweeps: list[SweepBound]
    refused: dict[str, str]


class Explanation(_Model):
    """The whole document."""

    schema_version: int = SCHEMA_VERSION
    run: str
    rehearsal: bool
    evidence: Evidence
    arms: list[ArmExplained]
    what_ifs: list[WhatIf] = Field(default_factory=list, description="What --what-if asked.")
    held_against: str | None = Field(default=None, description="The run that --against named.")
    held: list[Held] = Field(
        default_factory=list, description="What its points measured beside what this run predicts."
    )


def explanation(run: str, found: Explained) -> Explanation:
    """The document of one run's evidence and analysis."""
    return Explanation(
        run=run,
        rehearsal=found.evidence.rehearsal,
        evidence=found.evidence,
        arms=[_arm(arm, found) for arm in found.arms],
        what_ifs=list(found.what_ifs),
        held_against=found.held_against,
        held=list(found.held),
    )


def schemas() -> dict[str, dict[str, Any]]:
    """The published JSON Schemas of this module's documents, by name."""
    return {
        "explain": Explanation.model_json_schema(mode="serialization"),
        "evidence": Evidence.model_json_schema(mode="serialization"),
    }


def _arm(arm: ArmAnalysis, found: Explained) -> ArmExplained:
    return ArmExplained(
        arm=arm.arm,
        points=[replace(one, point=replace(one.point, requests=None)) for one in arm.points],
        goodput=[
            PointGoodput(label=one.point.label, repeat=one.point.repeat, goodput=list(goods))
            for one in arm.points
            if (goods := found.goods.get(place_of(one.point)))
        ],
        fitted=arm.fitted,
        tpot_residuals_ms=list(arm.fitted.tpot.residuals) if arm.fitted else [],
        rates=[WorkloadRate(input_len=size[0], output_len=size[1], rate=rate) for size, rate in arm.rates],
        sweeps=list(sweep_bounds(arm)),
        refused=dict(arm.refused),
    )
