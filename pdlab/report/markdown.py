# SPDX-License-Identifier: Apache-2.0
"""findings.md: one section a run, written as plain Markdown that reads well unrendered.

A section stands between two HTML comments that name its run, so that reporting a run again replaces just that
section. Everything else in the file belongs to whoever wrote it and is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import replace_bytes

from pdlab.evidence.model import Arm, Evidence
from pdlab.file_errors import explain
from pdlab.loose import as_rows
from pdlab.report import formatting
from pdlab.report.headline import headline
from pdlab.report.markdown_evidence import evidence_blocks
from pdlab.report.markdown_text import code, fenced, table, text
from pdlab.report.next_steps import next_steps
from pdlab.report.workloads import load, load_heading, workload
from pdlab.results.build import build_report
from pdlab.results.model import Point, Report
from pdlab.store import RunContents, StoreError

HEADING = """# Findings

One section a run, the newest last. pdlab replaces only what stands between a run's two comment lines; notes of your own
go anywhere else.
"""

_MARK = re.compile(r"^<!-- pdlab run (?P<run>\S+) (?P<edge>begin|end) -->\r?(?:\n|\Z)", re.MULTILINE)


def section(contents: RunContents, report: Report | None = None, evidence: Evidence | None = None) -> str:
    """One run's section without its comment lines. `evidence`: what its legs show. Pure."""
    report = report or build_report(contents)
    title = f"## {'REHEARSAL: ' if report.rehearsal else ''}{text(report.run)}"
    blocks = [title, f"**{text(headline(report, evidence))}**"]
    if report.rehearsal_note:
        blocks.append(f"{_sentence(report.rehearsal_note)}.")
    shown = evidence_blocks(evidence) if evidence else []
    if evidence and len(evidence.arms) > 1:
        # Of a run of arms its verdicts are what a reader came for.
        blocks += shown
        shown = []
    blocks.append(_what_ran(contents, report, evidence))
    if report.stages:
        blocks.append(_stages(report))
    if report.answers or report.oracle or report.kv_transfer:
        blocks.append(_proof(report))
    if report.points:
        blocks.append(_points(report))
    failed = [point for point in report.points if point.error_lines]
    blocks += [_failure(point) for point in failed]
    blocks += shown
    steps = next_steps(contents, report)
    blocks.append(
        "Next:\n\n"
        + "\n".join(f"- {text(step.text)}{f' {code(step.command)}' if step.command else ''}" for step in steps)
    )
    blocks.append(f"Full report: [{text(report.run)}/{layout.REPORT}]({report.run}/{layout.REPORT})")
    return "\n\n".join(blocks) + "\n"


def write_section(findings: Path, run: str, body: str) -> None:
    """Put a run's section into findings.md: in its old place when it has one, otherwise at the end.

    Safe against another pdlab doing the same (a lock beside the file) and against dying halfway (atomic rename).
    Raises StoreError when the file cannot be read or written.
    """
    try:
        with _locked(findings):
            mode = 0o644
            try:
                before = findings.read_bytes().decode("utf-8", errors="surrogateescape")
                mode = stat.S_IMODE(findings.stat().st_mode)
            except FileNotFoundError:
                before = ""
            after = with_section(before, run, body)
            if after != before:
                _replace(findings, after, mode)
    except OSError as error:
        raise StoreError(explain("write", findings, error)) from error


def with_section(before: str, run: str, body: str) -> str:
    """The file's text with the run's section replaced or appended. Nothing else of `before` changes. Pure.

    A section whose end line was lost (edited away) is left as it stands, and the new one is appended: text is
    never thrown away on a guess.
    """
    block = f"<!-- pdlab run {run} begin -->\n{body.strip()}\n<!-- pdlab run {run} end -->\n"
    marks = list(_MARK.finditer(before))
    for first, last in reversed(list(pairwise(marks))):
        if (first["run"], first["edge"], last["run"], last["edge"]) == (run, "begin", run, "end"):
            return before[: first.start()] + block + before[last.end() :]
    if not before.strip():
        return HEADING + "\n" + block
    gap = "" if before.endswith("\n\n") else "\n" if before.endswith("\n") else "\n\n"
    return before + gap + block


def _arm(arm: Arm) -> str:
    """An arm and its servers: `pd (1 prefill, 1 decode)`."""
    counts = [(arm.prefill, "prefill"), (arm.decode, "decode"), (arm.colocated, "colocated")]
    return f"{arm.name} ({', '.join(f'{count} {role}' for count, role in counts if count)})"


def _what_ran(contents: RunContents, report: Report, evidence: Evidence | None) -> str:
    plan = contents.plan or {}
    model = formatting.model_name(plan) or "unknown"
    servers = [
        f"{server.get('name')} ({server.get('role')}, {_devices(server)})" for server in as_rows(plan.get("servers"))
    ]
    engine = "; ".join(
        ", ".join(
            [*(f"{name} {version}" for name, version in facts.packages.items()), f"fingerprint {facts.fingerprint}"]
        )
        for facts in report.engines
    )
    own = [("Model", model), ("Servers", ", ".join(servers) or "none"), ("Engine", engine or "none recorded")]
    rows = [
        ("Started", formatting.moment(report.started) + f", took {formatting.seconds(report.seconds)}"),
        # A run of arms has neither a plan nor an engine of its own: each leg has.
        *([("Arms", ", ".join(map(_arm, evidence.arms)))] if evidence and len(evidence.arms) > 1 else own),
        ("Inventory", report.inventory or "not recorded"),
        ("Exit status", "none" if report.exit_code is None else report.exit_code),
    ]
    return "\n".join(f"- {name}: {text(value)}" for name, value in rows)


def _devices(server: Mapping[str, object]) -> str:
    gpus = server.get("gpus")
    if isinstance(gpus, list) and gpus:
        return "GPU " + " ".join(str(gpu) for gpu in gpus)
    return str(server.get("device"))


def _stages(report: Report) -> str:
    parts = []
    for stage in report.stages:
        word = "" if stage.ok else " FAILED" if stage.finished else " did not finish"
        parts.append(f"{text(stage.name)} {formatting.seconds(stage.seconds)}{word}")
    return "Stages: " + ", ".join(parts)


def _proof(report: Report) -> str:
    lines = [
        f"- {text(answer.prompt)} Got: {text(answer.got if answer.got is not None else 'no answer')} "
        + ("(right)" if answer.ok else f"(**WRONG**, expected {text(answer.expected)})")
        for answer in report.answers
    ]
    lines += [
        f"- After the benchmark: {text(answer.prompt)} Got: {text(answer.got)} ({'right' if answer.ok else '**WRONG**'})"
        for answer in report.stability
    ]
    if report.oracle:
        word = "" if report.oracle.ok else " **FAILED**"
        lines.append(
            f"- Oracle: {report.oracle.identical} of {report.oracle.cases} prompts identical to colocated{word}"
            + (f": {text(report.oracle.why)}" if report.oracle.why else "")
        )
    if report.kv_transfer:
        word = "" if report.kv_transfer.ok else " **FAILED**"
        lines.append(
            f"- KV transfer: {formatting.size(report.kv_transfer.bytes)} moved, "
            f"{report.kv_transfer.failed} transfers failed{word}"
            + (f": {text(report.kv_transfer.why)}" if report.kv_transfer.why else "")
        )
    return "\n".join(lines)


def _points(report: Report) -> str:
    header = [
        load_heading(report.points),
        "tokens",
        "requests",
        "output tok/s",
        "peak tok/s",
        "total tok/s",
        "TTFT p50 / p90 ms",
        "TPOT p50 / p90 ms",
        "E2E p50 ms",
    ]
    title = _sentence(report.rehearsal_note) if report.rehearsal_note else "Benchmark points, through the router"
    listed = table(header, [_point(point) for point in report.points], left=(0, 1))
    reasons = [
        f"- {text(point.label)} {_word(point)}: {text('; '.join(point.why))}" for point in report.points if not point.ok
    ] + [
        f"- {text(point.label)} is doubtful, and left out of verdicts: {text('; '.join(point.why))}"
        for point in report.points
        if point.ok and not point.counts
    ]
    return "\n\n".join([f"{title}:", listed, *(["\n".join(reasons)] if reasons else [])])


def _word(point: Point) -> str:
    return "**FAILED**" if point.measured else "not run"


def _sentence(value: str) -> str:
    return value[:1].upper() + value[1:]


def _point(point: Point) -> list[str]:
    name = text(load(point))
    head = [name, text(workload(point)), formatting.done(point.completed, point.requested)]
    if not point.ok:
        return [*head, _word(point), "", "", "", "", ""]
    return [
        *head,
        formatting.tok_s(point.output_tok_s),
        formatting.tok_s(point.peak_output_tok_s),
        formatting.tok_s(point.total_tok_s),
        f"{formatting.ms(point.ttft_ms.p50)} / {formatting.ms(point.ttft_ms.p90)}",
        f"{formatting.ms(point.tpot_ms.p50)} / {formatting.ms(point.tpot_ms.p90)}",
        formatting.ms(point.e2e_ms.p50),
    ]


def _failure(point: Point) -> str:
    return f"Error lines of {text(point.label)}:\n\n" + fenced("\n".join(point.error_lines))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`. It is left there: removing it would let two holders in."""
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: str, mode: int) -> None:
    """Replace the file whole or not at all, odd bytes kept as they were."""
    replace_bytes(os.path.realpath(path), content.encode("utf-8", errors="surrogateescape"), mode)
