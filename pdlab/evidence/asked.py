# SPDX-License-Identifier: Apache-2.0
"""What was asked of a point: its workload, its load, its limits, and whether verdicts may rest on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdlab.evidence.model import LimitSet, Load
from pdlab.loose import as_integer, as_mapping, as_number, as_rows, as_text
from pdlab.store import PointFiles

DEFAULT_WORKLOAD = "default"


@dataclass(frozen=True)
class Asked:
    """One point's request. `limits`: as its workload states them; none is not a limit set."""

    workload: str
    load: Load
    limits: tuple[LimitSet, ...]
    counts: bool


def asked_of(files: PointFiles, plan: Mapping[str, Any]) -> Asked:
    """What a point's plan and record say. A point that names no workload belongs to the sweep of its plan."""
    known = {**(files.planned or {}), **(files.record or {})}
    rate = as_number(known.get("rate_s"))
    is_open = as_text(known.get("loop")) == "open" or (known.get("loop") is None and rate is not None)
    ok = bool((files.record or {}).get("ok"))
    return Asked(
        workload=as_text(known.get("workload")) or _named_by_plan(known, plan),
        load=Load(loop="open", rate_s=rate)
        if is_open
        else Load(loop="closed", concurrency=as_integer(known.get("concurrency"))),
        limits=limits_of(known),
        counts=ok and known.get("counts") is not False,
    )


def limits_of(known: Mapping[str, Any]) -> tuple[LimitSet, ...]:
    """The limits that a point was measured under, in the order of its workload; each once."""
    stated = (
        LimitSet(**{name: as_number(row.get(name)) for name in ("ttft_ms", "tpot_ms", "e2e_ms")})
        for row in as_rows(known.get("limits"))
    )
    return tuple(dict.fromkeys(one for one in stated if one != LimitSet()))


def _named_by_plan(known: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """The sweep's name; with the lengths where one sweep holds several."""
    sweep = as_mapping(plan.get("benchmark"))
    name = as_text(sweep.get("name")) or DEFAULT_WORKLOAD
    lengths = {(row.get("input_len"), row.get("output_len")) for row in as_rows(sweep.get("points"))}
    return name if len(lengths) < 2 else f"{name}-{known.get('input_len')}-{known.get('output_len')}"
