# SPDX-License-Identifier: Apache-2.0
"""From what a run folder holds to its results. Pure: run contents in, report out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pdlab.loose import as_bool, as_integer, as_list, as_mapping, as_number, as_rows, as_text
from pdlab.moments import seconds_between
from pdlab.plain_text import plain_text
from pdlab.point_telemetry import box_telemetry, client_figures, engine_figures, limits_of
from pdlab.rehearsal import rehearsal_note
from pdlab.results.latency import latencies
from pdlab.results.model import (
    Answer,
    Check,
    EngineFacts,
    Failure,
    KvTransfer,
    ModelFacts,
    Oracle,
    Point,
    Report,
    StageResult,
    Status,
)
from pdlab.results.outcome import by_playbook
from pdlab.run_stages import Stage
from pdlab.store import PointFiles, RunContents

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


def is_rehearsal(contents: RunContents) -> bool:
    """Whether the run rehearses, on a CPU or on GPUs: as its plan says, or run.json when there is no plan."""
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
    nobody_ends_it = contents.died and by_playbook(as_list(contents.run.get("command")))
    if stages and all(stage.finished for stage in stages) and (at_the_end or nobody_ends_it):
        return "ok" if all(stage.ok for stage in stages) else "failed"
    return "died" if contents.died else "running"


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
