# SPDX-License-Identifier: Apache-2.0
"""What was asked of a point: its workload, its load, its limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdlab.evidence.model import LimitSet, Load
from pdlab.loose import as_mapping, as_rows, as_text
from pdlab.results.model import Point

DEFAULT_WORKLOAD = "default"


@dataclass(frozen=True)
class Asked:
    """One point's request. `limits`: as its workload states them, each once; no limits at all is none.

    load: with neither concurrency nor rate where the point names none above 0.
    """

    workload: str
    load: Load
    limits: tuple[LimitSet, ...]


def asked_of(point: Point, plan: Mapping[str, Any]) -> Asked:
    """What a point says. A point that names no workload, as older runs have it, belongs to the sweep of its plan."""
    stated = (LimitSet(**row.model_dump()) for row in point.limits)
    return Asked(
        workload=point.workload or _named_by_plan(point, plan),
        load=Load(loop="open", rate_s=point.rate_s if (point.rate_s or 0) > 0 else None)
        if point.loop == "open"
        else Load(loop="closed", concurrency=point.concurrency if (point.concurrency or 0) > 0 else None),
        limits=tuple(dict.fromkeys(one for one in stated if one != LimitSet())),
    )


def _named_by_plan(point: Point, plan: Mapping[str, Any]) -> str:
    """The sweep's name; with the lengths where one sweep holds several."""
    sweep = as_mapping(plan.get("benchmark"))
    name = as_text(sweep.get("name")) or DEFAULT_WORKLOAD
    lengths = {(row.get("input_len"), row.get("output_len")) for row in as_rows(sweep.get("points"))}
    return name if len(lengths) < 2 else f"{name}-{point.input_len}-{point.output_len}"
