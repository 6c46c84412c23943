# SPDX-License-Identifier: Apache-2.0
"""The evidence document's models, published as docs/schemas/evidence.json. Data only; `build.py` fills them.

Times are in ms, rates in requests or tokens per second. A figure that does not exist is null and something says why.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pdlab.results.model import Point

SCHEMA_VERSION = 1

Loop = Literal["closed", "open"]
Answer = Literal["use", "do not use", "cannot tell"]
Claim = Literal["higher", "lower", "no effect shown", "cannot support a claim"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSet(_Model):
    """What a user still accepts, in ms. Null: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Load(_Model):
    """How requests arrive: `concurrency` in a closed loop, `rate_s` requests per second in an open one."""

    loop: Loop
    concurrency: int | None = None
    rate_s: float | None = None


class Interval(_Model):
    """A mean over repeats with its 95 % interval; `low` and `high` are null for one repeat."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int


class Arm(_Model):
    """One topology that was measured."""

    name: str
    disaggregated: bool
    prefill: int
    decode: int
    colocated: int
    gpus: int | None
    options: list[str] = Field(
        default_factory=list, description="Options with which a command reaches the inventory that it ran with."
    )
    declared: bool = Field(
        default=True,
        description="Whether one inventory has it under this name in pd_arms, beside the other arms that are declared.",
    )


class LegRow(_Model):
    """One deployment of one arm and the sweep on it. `id` is ARM-rREPEAT; `path` is relative to the evidence's folder."""

    id: str
    arm: str
    repeat: int
    order: int = Field(description="Its place in time among all legs, from 0.")
    run: str
    path: str
    ok: bool
    why: str | None = None
    started: str | None = None
    seconds: float | None = None


class PointRow(_Model):
    """One measured point. `id` is LEG:LABEL; a figure of it is LEG:LABEL:FIELD, as in pd-r1:c16-n48:ttft_ms.p50."""

    id: str
    leg: str
    arm: str
    repeat: int
    workload: str
    load: Load
    counts: bool = Field(description="Whether verdicts rest on it: it passed every check.")
    bound: str | None = Field(default=None, description="What binds it, or 'cannot say'.")
    bound_words: str | None = None
    point: Point


class Cell(_Model):
    """One arm at one load of one workload, over its repeats that count. `figures` by field, as in "output_tok_s"."""

    arm: str
    workload: str
    load: Load
    points: list[str] = Field(description="Ids of the points behind it.")
    figures: dict[str, Interval]
    bound: str | None = None


class ComparisonRow(_Model):
    """One quantity of arm `a` against arm `b` at one load, from paired repeats."""

    workload: str
    load: Load
    quantity: str
    a: str
    b: str
    pairs: int
    difference: float
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    claim: Claim
    words: str


class RateRow(_Model):
    """The highest rate at which one arm keeps limits for `share` of requests (see analysis/rate_search.py)."""

    arm: str
    workload: str
    limits: LimitSet
    share: float
    kept_s: float | None
    failed_s: float | None
    estimate_s: float | None
    settled: bool
    words: str


class WinnerCell(_Model):
    """Who wins at one load under one set of limits. `goodput` is good requests per second, by arm.

    `winner` is null when no difference is shown.
    """

    workload: str
    load: Load
    limits: LimitSet
    goodput: dict[str, Interval]
    winner: str | None
    words: str


class VerdictRow(_Model):
    """One sentence for one workload and one set of limits."""

    workload: str
    limits: LimitSet
    answer: Answer
    sentence: str
    quantity: str
    effect: float | None = Field(description="The ratio of prefill/decode over the best other arm.")
    low: float | None
    high: float | None
    repeats: int
    next_measurement: str | None = Field(description="What would settle it, or make it stronger.")


class Doubt(_Model):
    """Something that the numbers cannot support, and what would."""

    id: str
    where: str
    seen: str
    wanted: str


class AdviceRow(_Model):
    """A number for the next deployment, from one load of one arm (the first repeat), between `low` and `high`.

    `guess` is the model's value; where that is off the measured range, `words` says so. `id`: one_prefill_more,
    one_decode_more and copies (a ratio of rates, tok/s), prefill_servers, breakeven_output_len (tokens).
    """

    id: str
    workload: str
    load: Load
    arm: str
    low: float | None
    high: float | None
    guess: float | None
    words: str


class Evidence(_Model):
    """Everything that one or more runs show."""

    schema_version: int = SCHEMA_VERSION
    name: str
    rehearsal: bool
    rehearsal_note: str | None = Field(default=None, description="What makes it one, in words; null when it is none.")
    arms: list[Arm]
    legs: list[LegRow]
    points: list[PointRow]
    cells: list[Cell]
    comparisons: list[ComparisonRow]
    rates: list[RateRow]
    winners: list[WinnerCell]
    verdicts: list[VerdictRow]
    doubts: list[Doubt]
    advice: list[AdviceRow] = Field(default_factory=list)
    refused: list[str] = Field(default_factory=list, description="Why runs were not put side by side.")
