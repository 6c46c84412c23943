# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain`: the analysis of a finished run, from its folder's contents. Pure: contents in, text or document out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pdlab.analysis.goodput import Limits
from pdlab.analysis.measurement import Servers
from pdlab.analysis.sweep import ArmAnalysis, PointAnalysis, analyse, sweep_bounds
from pdlab.evidence.measured import measurements
from pdlab.report.formatting import ms, tok_s
from pdlab.report.workloads import workload
from pdlab.results import REHEARSAL_NOTE, build_report, is_rehearsal
from pdlab.store import RunContents

WIDTH = 80


def explain(contents: RunContents, limits: Limits | None = None) -> tuple[ArmAnalysis, ...]:
    """The analysis of a run; empty when no point has figures."""
    return analyse(measurements(contents), limits)


def document(contents: RunContents, arms: Sequence[ArmAnalysis]) -> dict[str, Any]:
    """The analysis for programs: all evidence and reasons, without the per-request values."""
    made = []
    for arm in arms:
        row = asdict(replace(arm, points=tuple(_without_requests(one) for one in arm.points)))
        if arm.fitted:
            row["fitted"]["tpot"]["residuals"] = list(arm.fitted.tpot.residuals)
        row["sweeps"] = [asdict(sweep) for sweep in sweep_bounds(arm)]
        made.append(row)
    return {"schema_version": 1, "run": contents.name, "rehearsal": is_rehearsal(contents), "arms": made}


def lines(contents: RunContents, arms: Sequence[ArmAnalysis], width: int = WIDTH) -> list[str]:
    """The analysis as text of at most `width` columns."""
    shown = [f"run {contents.name}"]
    if is_rehearsal(contents):
        shown += _wrapped(f"REHEARSAL: {REHEARSAL_NOTE}", width)
    if not arms:
        return [*shown, "no point of this run has figures to analyse"]
    names = {point.label: workload(point) for point in build_report(contents).points}
    for arm in arms:
        previous = None
        for one in arm.points:
            name = names.get(one.point.label, "")
            if name != previous:
                shown += ["", f"{_servers(one.point.servers)}, {name}", *_table(arm, name, names)]
                previous = name
            shown += ["", *_wrapped(f"{one.point.label}: {one.verdict.words}", width)]
            shown += _details(one, width)
        shown += ["", *(line for sweep in sweep_bounds(arm) for line in _wrapped(sweep.words, width))]
        shown += _curves(arm, width)
        for _workload, rate in arm.rates:
            shown += _wrapped(rate.words, width)
    return shown


def _without_requests(one: PointAnalysis) -> PointAnalysis:
    return replace(one, point=replace(one.point, requests=None))


def _table(arm: ArmAnalysis, name: str, names: Mapping[str, str]) -> list[str]:
    rows = [f"{'conc':>5}{'req/s':>9}{'tok/s':>9}{'TTFT ms':>10}{'TPOT ms':>10}{'waiting':>10}{'decoding':>10}  bound"]
    for one in arm.points:
        if names.get(one.point.label, "") != name:
            continue
        point, stages = one.point, one.occupancy
        waiting = "n/a" if stages is None else f"{stages.before_first_token:.1f}"
        running = "n/a" if stages is None else f"{stages.decoding:.1f}"
        load = "-" if point.concurrency is None else f"{point.concurrency:g}"
        rows.append(
            f"{load:>5}{point.request_s:>9.2f}{tok_s(point.output_tok_s):>9}{ms(point.ttft_ms):>10}"
            f"{ms(point.tpot_ms):>10}{waiting:>10}{running:>10}  {one.verdict.name}"
        )
    return rows


def _details(one: PointAnalysis, width: int) -> list[str]:
    shown = []
    if one.verdict.settle:
        shown.append(f"to settle it: {one.verdict.settle}")
    against = [item.words for item in one.verdict.of(one.verdict.name) if item.side == "against"]
    if against:
        shown.append(f"against it: {'; '.join(against)}")
    if one.capacity and (one.point.concurrency or 0) > 1:
        cap = one.capacity
        best = f"{cap.fitted_tok_s:.0f} from the fit" if cap.fitted_tok_s else f"not known from the fit ({cap.refused})"
        shown.append(
            f"decode made {cap.ran_tok_s:.0f} tok/s; with all {cap.batch:g} requests decoding: {best}. "
            f"C/TPOT says {cap.naive_tok_s:.0f}: {cap.why_naive_misleads}"
        )
    if one.prediction:
        model = {row.name: row for row in one.prediction}["request_s"]
        shown.append(f"the closed-loop model says {model.predicted:.2f} req/s ({model.error or 0:+.0%})")
    if one.goodput:
        good = one.goodput
        shown.append(
            f"{good.limits.words()}: {good.good} of {good.requested} requests met it ({good.attainment:.0%}, interval "
            f"{good.low:.0%} to {good.high:.0%}), goodput {good.request_s:.2f} req/s"
        )
    for name, why in one.refused:
        if name == "goodput":
            shown.append(f"goodput: {why}")
    flagged = "; ".join(f"{flag.seen} (wanted: {flag.wanted})" if flag.wanted else flag.seen for flag in one.flags)
    if flagged:
        shown.append(f"cannot support: {flagged}")
    return [line for text in shown for line in _wrapped(text, width, "  ")]


def _curves(arm: ArmAnalysis, width: int) -> list[str]:
    if arm.fitted is None:
        return [*_wrapped(f"no curves: {dict(arm.refused).get('fitted', '')}", width)]
    tpot = arm.fitted.tpot
    text = (
        f"TPOT(n) = {tpot.intercept:.3g} + {tpot.slope:.3g} n ms for n = {tpot.x_min:.3g} to {tpot.x_max:.3g} requests "
        f"decoding on a server, off by {tpot.worst:.0%} at most"
    )
    return [*_wrapped(text if tpot.checked else f"{text}; nothing is left to check it against", width)]


def _servers(servers: Servers) -> str:
    counts = ((servers.prefill, "prefill"), (servers.decode, "decode"), (servers.colocated, "colocated"))
    said = " + ".join(f"{count} {role}" for count, role in counts if count) or "servers unknown"
    return said if servers.gpus is None else f"{said} on {servers.gpus} GPUs"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ")
