# SPDX-License-Identifier: Apache-2.0
"""A run's results for programs: what `pdlab report --json` prints, its models and how they follow from a run.

The models are the published schema (docs/schemas/report.json). `build_report` is pure: run contents in, report
out. A figure stands there only when its point passed; a percentile only when its sample supports it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdlab.loose import as_bool, as_integer, as_list, as_mapping, as_number, as_rows, as_text
from pdlab.moments import seconds_between
from pdlab.plain_text import plain_text
from pdlab.point_telemetry import (
    BoxTelemetry,
    ClientFigures,
    EngineFigures,
    LatencyLimits,
    box_telemetry,
    client_figures,
    engine_figures,
    limits_of,
)
from pdlab.rehearsal import rehearsal_note
from pdlab.run_stages import Stage
from pdlab.store import PointFiles, RunContents

SCHEMA_VERSION = 1

Status = Literal["running", "ok", "failed", "cancelled", "died", "unknown"]

# The smallest sample in which, with 99 % confidence, at least two values lie above the percentile:
# 1 - p**n - n * (1 - p) * p**(n - 1) >= 0.99 (the rule of MLPerf's endpoints harness).
SAMPLES_NEEDED = {"p90": 64, "p95": 130, "p99": 662}
PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

_CLIENT_NAME = {"ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms", "itl_ms": "itl_ms", "e2e_ms": "e2e_latency_ms"}
_CLIENT_PERCENTILE = {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}


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


KEY_PACKAGES = (
    "sglang",
    "sglang-router",
    "smg",
    "nixl",
    "nixl-cu13",
    "torch",
    "transformers",
    "sglang-kernel",
    "flashinfer-python",
    "triton",
)


def build_report(contents: RunContents) -> Report:
    """The results of a run. Pure; takes damaged and unfinished runs as they are."""
    run = contents.run
    stages = [
        StageResult(
            name=stage.name,
            seconds=_rounded(stage.seconds, 3),
            ok=bool(stage.ok),
            finished=stage.finished,
            why=stage.why,
        )
        for stage in judged_stages(contents)
    ]
    status = _status(contents)
    points = [_point(files, status) for files in contents.points if _reached(files, contents)]
    answers, stability = _answers(contents.record("answers")), _answers(contents.record("stability"))
    oracle, kv_transfer = _oracle(contents.record("oracle")), _kv_transfer(contents.record("kv_transfer"))
    parts: list[StageResult | Answer | Oracle | KvTransfer | Point | None]
    parts = [*stages, *answers, *stability, oracle, kv_transfer, *points]
    ok = status == "ok" and all(part.ok for part in parts if part is not None)
    return Report(
        run=contents.name,
        ok=ok,
        rehearsal=is_rehearsal(contents),
        rehearsal_note=rehearsal_note(contents.plan) if is_rehearsal(contents) else None,
        status="failed" if status == "ok" and not ok else status,
        exit_code=as_integer(run.get("exit_code")),
        why=as_text(run.get("why")),
        stopped_at=_stopped_at(stages, points),
        started=as_text(run.get("started")),
        ended=as_text(run.get("ended")),
        seconds=seconds_between(run.get("started"), run.get("ended")),
        command=[str(item) for item in as_list(run.get("command"))],
        inventory=as_text(run.get("inventory")),
        pdlab_version=as_text(run.get("pdlab_version")),
        stages=stages,
        answers=answers,
        stability=stability,
        oracle=oracle,
        kv_transfer=kv_transfer,
        points=points,
        engines=[_engine(host, data) for host, data in contents.host_records("engine").items()],
        models=[_model(host, data) for host, data in contents.host_records("model").items()],
        failures=[
            Failure(record=name, message=plain_text(str(data["msg"])))
            for name, data in contents.records.items()
            if data.get("failed") and data.get("msg")
        ],
        damaged=list(contents.damaged),
    )


def verdict(report: Report) -> str:
    """The run in one line: passed, or failed and where it stopped."""
    if report.status == "running":
        return f"Running: in {report.stopped_at or 'its first stage'}"
    right = sum(answer.ok for answer in report.answers)
    counts = []
    if report.answers:
        counts.append(f"{right} of {len(report.answers)} answers right")
    requested = sum(point.requested or 0 for point in report.points)
    if requested:
        counts.append(f"{sum(point.completed or 0 for point in report.points)} of {requested} requests completed")
    if report.ok:
        stages = f"{len(report.stages)} stage{'s' if len(report.stages) != 1 else ''}"
        return "Passed: " + ", ".join([stages, *counts])
    where = report.stopped_at
    what = {
        "cancelled": "Cancelled",
        # ansible-playbook writes no end of its own, whether it failed or was killed.
        "died": "Stopped" if _by_playbook(report.command) else "Died",
        "unknown": "Unknown: run.json is missing or damaged; it seems to have stopped",
    }.get(report.status, "Vetoed" if report.exit_code == 3 else "Failed")
    line = what + (f" at {where}" if where else "")
    return f"{line}: {why}" if (why := reason(report)) else line


def reason(report: Report) -> str | None:
    """Why the run did not pass, from the most telling place: the run, its stage, its first failed point."""
    stage = next((stage for stage in report.stages if not stage.ok), None)
    point = next((point for point in report.points if not point.ok), None)
    if report.why:
        return report.why
    if report.status == "died":
        said = next((first for failure in report.failures if (first := failure.message.strip().split("\n")[0])), None)
        return said or "its controller is gone and it wrote no end"
    if stage and stage.why:
        return stage.why
    if point:
        return f"point {point.label}: {'; '.join(point.why) or 'failed'}"
    return None


def supported(name: str, samples: int) -> bool:
    """Whether a sample is large enough for a percentile ("p50", "p90", "p95", "p99")."""
    return samples >= SAMPLES_NEEDED.get(name, 1)


def percentile(values: Sequence[float], fraction: float) -> float:
    """The percentile by linear interpolation, as numpy's default, which the client uses. `values` is not empty."""
    ordered = sorted(values)
    rank = fraction * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def latency_of(values_ms: Sequence[float]) -> Latency:
    """Mean, maximum and the percentiles that the sample supports."""
    if not values_ms:
        return Latency()
    figures = {
        name: percentile(values_ms, fraction) if supported(name, len(values_ms)) else None
        for name, fraction in PERCENTILES.items()
    }
    return Latency(n=len(values_ms), mean=math.fsum(values_ms) / len(values_ms), max=max(values_ms), **figures)


def latencies(raw: Mapping[str, Any]) -> dict[str, Latency]:
    """TTFT, TPOT, ITL and E2E of one line of the client's JSONL (sglang/benchmark/serving.py, 0.5.23).

    TTFT and ITL come from its per-request arrays (`ttfts` and `itls`, in s, kept with --output-details) when they are
    there. The client keeps no array for TPOT and E2E, so these are its own aggregates, in ms. The sample of TPOT, E2E
    and TTFT is the completed requests; the sample of ITL is the gaps between tokens.
    """
    succeeded = [not error for error in as_list(raw.get("errors"))]
    ttfts = _of_successes(as_list(raw.get("ttfts")), succeeded)
    itls = _of_successes(as_list(raw.get("itls")), succeeded)
    completed = as_integer(raw.get("completed")) or 0
    gaps = max(0, (as_integer(raw.get("total_output_tokens")) or 0) - completed)
    return {
        "ttft_ms": latency_of(_in_ms(ttfts)) if ttfts else _client_latency(raw, "ttft_ms", completed),
        "tpot_ms": _client_latency(raw, "tpot_ms", completed),
        "itl_ms": latency_of(_in_ms(gap for gaps_of_one in itls for gap in as_list(gaps_of_one)))
        if itls
        else _client_latency(raw, "itl_ms", gaps),
        "e2e_ms": _client_latency(raw, "e2e_ms", completed),
    }


def schemas() -> dict[str, dict[str, Any]]:
    """The published JSON Schemas of this module's documents, by name."""
    return {"report": Report.model_json_schema(mode="serialization")}


def is_rehearsal(contents: RunContents) -> bool:
    """Whether the run's figures say nothing about a GPU: as its plan says, or run.json when there is no plan."""
    said = [(contents.plan or {}).get("rehearsal"), contents.run.get("rehearsal")]
    return next((value for value in said if isinstance(value, bool)), False)


def judged_stages(contents: RunContents) -> list[Stage]:
    """The stages without an open "report" stage of a live run: that is the act of writing this very report."""
    return [
        stage
        for stage in contents.stages
        if stage.name != "report" or stage.finished or contents.controller_alive is False
    ]


def _status(contents: RunContents) -> Status:
    """run.json's status, or what follows from the stages where nobody wrote one.

    ansible-playbook without the `pdlab` command writes no end, and a report made inside a run comes before it.
    """
    if not contents.run:
        return "unknown"
    said = contents.run.get("status")
    ends: tuple[Status, ...] = ("ok", "failed", "cancelled")
    if said != "running":
        return next((end for end in ends if end == said), "unknown")
    stages = judged_stages(contents)
    at_the_end = bool(stages) and (stages[-1].name == "report" or len(stages) < len(contents.stages))
    nobody_ends_it = contents.died and _by_playbook(as_list(contents.run.get("command")))
    if stages and all(stage.finished for stage in stages) and (at_the_end or nobody_ends_it):
        return "ok" if all(stage.ok for stage in stages) else "failed"
    return "died" if contents.died else "running"


def _by_playbook(command: Sequence[object]) -> bool:
    return list(command[:1]) == ["ansible-playbook"]


def _stopped_at(stages: Sequence[StageResult], points: Sequence[Point]) -> str | None:
    """The stage that failed or never ended; a failed point fails the benchmark even where its stage went on."""
    failed = next((stage.name for stage in stages if not stage.ok), None)
    return failed or ("benchmark" if any(not point.ok for point in points) else None)


def _reached(files: PointFiles, contents: RunContents) -> bool:
    """Whether a point belongs in the results: measured, or planned in a benchmark that at least began."""
    if files.record is not None or files.raw is not None:
        return True
    return any(stage.name == "benchmark" for stage in contents.stages)


def _unmeasured(files: PointFiles, status: Status) -> str:
    if status == "running":
        return "not measured yet"
    ended = "the run ended" if status in ("died", "cancelled") else "the benchmark stopped"
    return f"{ended} before this point {'was judged' if files.raw else 'was measured'}"


def _point(files: PointFiles, status: Status) -> Point:
    record = files.record or {}
    known = {**(files.planned or {}), **record}
    raw = files.raw or as_mapping(record.get("result"))
    ok = bool(record.get("ok"))
    why = [plain_text(str(item)) for item in as_list(record.get("why"))]
    if files.record is None:
        why = [_unmeasured(files, status)]
    elif not ok and not why:
        why = [f"check {check.get('id')} failed" for check in as_rows(record.get("checks")) if not check.get("ok")] or [
            "failed"
        ]
    base = Point(
        label=files.label,
        workload=as_text(known.get("workload")),
        loop="open" if known.get("loop") == "open" else "closed",
        concurrency=as_integer(known.get("concurrency")),
        rate_s=as_number(known.get("rate_s")),
        requested=as_integer(known.get("requested", known.get("prompts"))),
        completed=as_integer(record.get("completed")),
        input_len=as_integer(known.get("input_len")),
        output_len=as_integer(known.get("output_len")),
        range_ratio=as_number(known.get("range_ratio")),
        seed=as_integer(known.get("seed")),
        dataset=as_text(known.get("dataset")),
        limits=limits_of(known.get("limits")),
        ok=ok,
        counts=ok and record.get("counts", True) is True,
        why=why,
        error_lines=[plain_text(str(line)) for line in as_list(record.get("error_lines"))],
        measured=files.record is not None,
        seconds=as_number(record.get("seconds")),
        checks=[
            Check(
                id=str(check.get("id")),
                ok=bool(check.get("ok")),
                seen=as_text(check.get("seen")) or "",
                wanted=as_text(check.get("wanted")) or "",
                grade="doubt" if check.get("grade") == "doubt" else "fault",
            )
            for check in as_rows(record.get("checks"))
        ],
        engine=engine_figures(record.get("engine")),
        box=box_telemetry(record.get("box")),
        client=client_figures(record.get("client")),
    )
    if not ok:
        return base
    return base.model_copy(
        update={
            "output_tok_s": as_number(raw.get("output_throughput")),
            "peak_output_tok_s": as_number(raw.get("max_output_tokens_per_s")),
            "total_tok_s": as_number(raw.get("total_throughput")),
            "request_s": as_number(raw.get("request_throughput")),
            "mean_concurrency": as_number(raw.get("concurrency")),
            **latencies(raw),
        }
    )


def _client_latency(raw: Mapping[str, Any], name: str, samples: int) -> Latency:
    """A latency from the client's own aggregates, which are in ms. It writes 0 for an empty sample: no figure."""
    suffix = _CLIENT_NAME[name]
    mean = as_number(raw.get(f"mean_{suffix}"))
    if not mean or samples == 0:
        return Latency()
    figures = {
        key: as_number(raw.get(f"{prefix}_{suffix}")) if supported(key, samples) else None
        for key, prefix in _CLIENT_PERCENTILE.items()
    }
    return Latency(n=samples, mean=mean, max=as_number(raw.get(f"max_{suffix}")), **figures)


def _of_successes(values: list[Any], succeeded: list[bool]) -> list[Any]:
    """The values of the requests that succeeded; all of them when the client kept no errors beside them."""
    if len(succeeded) != len(values):
        return values
    return [value for value, good in zip(values, succeeded, strict=True) if good]


def _in_ms(seconds: Iterable[Any]) -> list[float]:
    return [float(value) * 1000.0 for value in seconds if as_number(value) is not None]


def _answers(record: Mapping[str, Any] | None) -> list[Answer]:
    return [
        Answer(
            prompt=str(item.get("prompt", "")),
            expected=as_text(item.get("expected")) or "",
            got=as_text(item.get("got")),
            ok=bool(item.get("ok")),
            why=as_text(item.get("why")),
        )
        for item in as_rows((record or {}).get("answers"))
    ]


def _oracle(record: Mapping[str, Any] | None) -> Oracle | None:
    if record is None:
        return None
    return Oracle(
        cases=as_integer(record.get("cases")) or 0,
        identical=as_integer(record.get("identical")) or 0,
        ok=bool(record.get("ok")),
        max_logprob_diff=as_number(record.get("max_logprob_diff")),
        tolerance=as_number(record.get("tolerance")),
        control_differs=as_bool(record.get("control_differs")),
        why=as_text(record.get("why")),
    )


def _kv_transfer(record: Mapping[str, Any] | None) -> KvTransfer | None:
    if record is None:
        return None
    return KvTransfer(
        bytes=as_integer(record.get("bytes")) or 0,
        failed=as_integer(record.get("failed")) or 0,
        ok=bool(record.get("ok")),
        requests=as_integer(record.get("requests")),
        why=as_text(record.get("why")),
    )


def _engine(host: str, record: Mapping[str, Any]) -> EngineFacts:
    packages = as_mapping(record.get("packages"))
    return EngineFacts(
        host=str(record.get("host") or host),
        fingerprint=as_text(record.get("fingerprint")),
        lock=as_text(record.get("lock")),
        python_version=as_text(record.get("python_version")),
        packages={name: str(packages[name]) for name in KEY_PACKAGES if name in packages},
    )


def _model(host: str, record: Mapping[str, Any]) -> ModelFacts:
    return ModelFacts(
        host=str(record.get("host") or host),
        source=as_text(record.get("source")),
        path=as_text(record.get("path")),
        fingerprint=as_text(record.get("fingerprint")),
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
