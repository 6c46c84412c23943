# SPDX-License-Identifier: Apache-2.0
"""The points of a run as an analysis wants them, from what its folder holds. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pdlab.analysis.measurement import KvFacts, Measurement, Requests, Servers, from_point
from pdlab.loose import as_integer, as_list, as_mapping, as_number, as_rows, as_text
from pdlab.results.build import build_report
from pdlab.results.model import Point, Report
from pdlab.store import PointFiles, RunContents


def measurements(
    contents: RunContents, report: Report | None = None, *, arm: str | None = None, repeat: int = 0
) -> tuple[Measurement, ...]:
    """The points of a run that have figures, as an analysis wants them; per-request values where they were kept."""
    report = report or build_report(contents)
    servers = servers_of(contents.plan or {})
    points = {point.label: point for point in report.points}
    found = []
    for files in contents.points:
        point = points.get(files.label)
        if point is not None:
            one = from_point(
                point,
                servers,
                arm=arm or arm_of(contents.plan or {}),
                repeat=repeat,
                kv=kv_facts(point, report.points, contents.plan or {}),
                requests=requests_of(files, point),
            )
            found += [one] if one is not None else []
    return tuple(found)


def kv_facts(point: Point, points: Sequence[Point], plan: Mapping[str, Any]) -> KvFacts:
    """The KV cache and its path, from what the engine said during the points of a run; unknown where it said nothing.

    Bytes a token: what prefill sent over the prompt tokens of the point. The path: the best mean speed of one transfer
    at a point with one request in flight, when no other transfer shares it (10^9 bytes a second, as sglang's
    `kv_transfer_speed_gb_s`). The pool: `max-total-tokens` of the decode servers, where all of them set it.
    """
    alone = [
        one.engine.kv_transfer_gb_s
        for one in points
        if one.concurrency == 1 and one.engine and one.engine.kv_transfer_gb_s
    ]
    pools = [
        as_number(as_mapping(row.get("args")).get("max-total-tokens"))
        for row in as_rows(plan.get("servers"))
        if row.get("role") == "decode"
    ]
    sent = None
    if point.engine and point.engine.kv_transfer_bytes and point.engine.prompt_tokens:
        sent = point.engine.kv_transfer_bytes / point.engine.prompt_tokens
    known = [pool for pool in pools if pool]
    return KvFacts(sent, max(alone, default=None), math.fsum(known) if known and len(known) == len(pools) else None)


def arm_of(plan: Mapping[str, Any]) -> str:
    """The name of a plan's arm: its own, else "pd" when prefill and decode are apart, else "colocated"."""
    return as_text(plan.get("arm")) or ("pd" if servers_of(plan).disaggregated else "colocated")


def servers_of(plan: Mapping[str, Any]) -> Servers:
    """How many servers of each role a plan has, and on how many GPUs (None: on none, or not known)."""
    rows = as_rows(plan.get("servers"))
    roles = [str(row.get("role")) for row in rows]
    gpus = {(str(row.get("host")), str(gpu)) for row in rows for gpu in as_list(row.get("gpus"))}
    return Servers(roles.count("prefill"), roles.count("decode"), roles.count("colocated"), len(gpus) or None)


def requests_of(files: PointFiles, point: Point) -> Requests | None:
    """TTFT, TPOT and E2E of each request that succeeded; None when the client's arrays were not kept or do not match.

    The client keeps TTFT and the gaps between tokens (`ttfts`, `itls`, in s). E2E = TTFT + the gaps;
    TPOT = gaps / (output tokens - 1), 0 for one token.
    """
    raw = as_mapping(files.raw)
    ttfts, itls = as_list(raw.get("ttfts")), as_list(raw.get("itls"))
    lengths, errors = as_list(raw.get("output_lens")), as_list(raw.get("errors"))
    if not ttfts or not len(ttfts) == len(itls) == len(lengths):
        return None
    errors = errors if len(errors) == len(ttfts) else [""] * len(ttfts)
    rows = []
    for ttft, gaps, length, error in zip(ttfts, itls, lengths, errors, strict=True):
        first, tokens = as_number(ttft), as_integer(length)
        if error or first is None or tokens is None:
            continue
        whole = math.fsum(gap for gap in map(as_number, as_list(gaps)) if gap is not None)
        rows.append((first * 1000, whole / (tokens - 1) * 1000 if tokens > 1 else 0.0, (first + whole) * 1000))
    if not rows or (point.completed is not None and len(rows) != point.completed):
        return None
    ttft_ms, tpot_ms, e2e_ms = zip(*rows, strict=True)
    return Requests(ttft_ms, tpot_ms, e2e_ms)
