# SPDX-License-Identifier: Apache-2.0
"""What `pdlab report --json` prints: the models are the published schema (docs/schemas/report.json).

A figure stands there only when its point passed; a percentile only when its sample supports it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdlab.point_telemetry import BoxTelemetry, ClientFigures, EngineFigures, LatencyLimits

SCHEMA_VERSION = 1

Status = Literal["running", "ok", "failed", "cancelled", "died", "unknown"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Latency(_Model):
    """A latency in ms over one point. All null when the point failed."""

    n: int = Field(default=0, description="Values in the sample: requests, or for ITL the gaps between tokens.")
    mean: float | None = None
    p50: float | None = None
    p90: float | None = Field(default=None, description="Null below 64 values.")
    p95: float | None = Field(default=None, description="Null below 130 values.")
    p99: float | None = Field(default=None, description="Null below 662 values.")
    max: float | None = Field(default=None, description="Null when the client's per-request values were not kept.")


class StageResult(_Model):
    """One stage. `seconds` is null and `ok` false when it never ended."""

    name: str
    seconds: float | None
    ok: bool
    finished: bool
    why: str | None = None


class Answer(_Model):
    """A known answer asked through the router."""

    prompt: str
    expected: str
    got: str | None
    ok: bool
    why: str | None = None


class Oracle(_Model):
    """Greedy tokens of prefill and decode against a colocated run of the same engine."""

    cases: int
    identical: int
    ok: bool
    max_logprob_diff: float | None = None
    tolerance: float | None = None
    control_differs: bool | None = None
    why: str | None = None


class KvTransfer(_Model):
    """The KV-transfer counters over the verification: bytes moved, transfers failed."""

    bytes: int
    failed: int
    ok: bool
    requests: int | None = None
    why: str | None = None


class Check(_Model):
    """One thing that a point's result was held against.

    `grade` says what a failed check means: "fault": the point failed and has no figures; "doubt": its figures are kept,
    and no verdict rests on them.
    """

    id: str
    ok: bool
    seen: str
    wanted: str
    grade: Literal["fault", "doubt"] = "fault"


class Point(_Model):
    """One benchmark point. When `ok` is false every figure is null and `why` says what went wrong."""

    label: str
    workload: str | None = Field(default=None, description="The preset that it belongs to.")
    loop: Literal["closed", "open"] = Field(
        default="closed", description="closed: a new request when one ends; open: Poisson arrivals at rate_s."
    )
    concurrency: int | None = Field(description="Requests in flight at most; null in an open loop.")
    rate_s: float | None = Field(default=None, description="Arrivals a second; null in a closed loop.")
    requested: int | None
    completed: int | None
    input_len: int | None = None
    output_len: int | None = None
    range_ratio: float | None = Field(
        default=None, description="1.0: lengths exactly as asked; 0.0: uniform below them."
    )
    seed: int | None = None
    dataset: str | None = Field(default=None, description="random-ids or shared-prefix.")
    limits: list[LatencyLimits] = Field(default_factory=list, description="The limits of this workload.")
    ok: bool = Field(description="No check found a fault.")
    counts: bool = Field(
        default=False, description="No check found a fault or raised a doubt. Verdicts rest on no other points."
    )
    why: list[str] = Field(description="One line a failed check, faults first.")
    error_lines: list[str] = Field(default_factory=list, description="The engine's or client's own error lines.")
    measured: bool = Field(description="Whether the point was run and judged. False: the run ended before it.")
    seconds: float | None = Field(default=None, description="How long the measurement took, s.")
    output_tok_s: float | None = Field(default=None, description="Output tokens per second over the whole point.")
    peak_output_tok_s: float | None = Field(default=None, description="Most output tokens in one second.")
    total_tok_s: float | None = Field(default=None, description="Input and output tokens per second.")
    request_s: float | None = Field(default=None, description="Requests per second.")
    mean_concurrency: float | None = Field(default=None, description="Requests in flight on average.")
    ttft_ms: Latency = Field(default_factory=lambda: Latency())
    tpot_ms: Latency = Field(default_factory=lambda: Latency())
    itl_ms: Latency = Field(default_factory=lambda: Latency())
    e2e_ms: Latency = Field(default_factory=lambda: Latency())
    engine: EngineFigures | None = None
    box: BoxTelemetry | None = None
    client: ClientFigures | None = None
    checks: list[Check] = Field(default_factory=list)


class EngineFacts(_Model):
    """The engine that a host ran."""

    host: str
    fingerprint: str | None
    lock: str | None
    python_version: str | None
    packages: dict[str, str] = Field(description="The packages that make the numbers: sglang, nixl, torch and so on.")


class ModelFacts(_Model):
    """The model that a host served."""

    host: str
    source: str | None
    path: str | None
    fingerprint: str | None


class Failure(_Model):
    """A part of the run that failed and left a record: which one, and its own words."""

    record: str
    message: str


class Report(_Model):
    """The results of one run."""

    schema_version: int = SCHEMA_VERSION
    run: str
    ok: bool = Field(description="Whether every stage, answer and point passed.")
    rehearsal: bool = Field(
        description="True: on a CPU, with the canary model, or declared so (pd_rehearsal). Its figures prove the chain."
    )
    rehearsal_note: str | None = Field(default=None, description="Which of them, in words; null when it is none.")
    status: Status
    exit_code: int | None = None
    why: str | None = None
    stopped_at: str | None = Field(default=None, description="The stage that failed or never ended.")
    started: str | None = None
    ended: str | None = None
    seconds: float | None = None
    command: list[str] = Field(default_factory=list)
    inventory: str | None = None
    pdlab_version: str | None = None
    stages: list[StageResult]
    answers: list[Answer]
    stability: list[Answer] = Field(default_factory=list, description="The answers asked again after the benchmark.")
    oracle: Oracle | None = Field(description="Null when the run did not get that far or the oracle is off.")
    kv_transfer: KvTransfer | None = Field(description="Null when the run did not get that far.")
    points: list[Point]
    engines: list[EngineFacts] = Field(default_factory=list)
    models: list[ModelFacts] = Field(default_factory=list)
    failures: list[Failure] = Field(default_factory=list, description="What the failed parts of the run said.")
    damaged: list[str] = Field(default_factory=list, description="Files of the run folder that could not be read.")


def schemas() -> dict[str, dict[str, Any]]:
    """The published JSON Schemas of this module's documents, by name."""
    return {"report": Report.model_json_schema(mode="serialization")}
