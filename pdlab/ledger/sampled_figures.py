# SPDX-License-Identifier: Apache-2.0
"""Means over a point's samples (`engine.`, `box.`), worked out again from the lines of bench/LABEL.samples.jsonl.

Queues, running requests, token usage, load and clocks are values of a moment: every one that went into the mean has a
line. What counters gained is not in the samples but between two readings of their own: it leads to the point's record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_watched import within
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_metrics import LEAST_SAMPLES, by_role

from pdlab.ledger.explained import Explained, Source, Value
from pdlab.ledger.json_place import Key
from pdlab.ledger.places import Places
from pdlab.loose import as_mapping, as_number, as_rows

# Field of EngineFigures (point_telemetry.py) -> the role whose servers are summed, and the metric.
GAUGES = {
    "prefill_bootstrap": ("prefill", "num_prefill_bootstrap_queue_reqs"),
    "prefill_waiting": ("prefill", "num_queue_reqs"),
    "prefill_inflight": ("prefill", "num_prefill_inflight_queue_reqs"),
    "decode_prealloc": ("decode", "num_decode_prealloc_queue_reqs"),
    "decode_transfer": ("decode", "num_decode_transfer_queue_reqs"),
    "decode_waiting": ("decode", "num_queue_reqs"),
    "decode_running": ("decode", "num_running_reqs"),
    "token_usage": ("decode", "token_usage"),
}
SPREADS = ("load_1m", "cpu_mhz")

Lines = Sequence[tuple[int, Mapping[str, Any]]]


def sampled_figure(places: Places, id: str, label: str, keys: Sequence[Key], shown: Value) -> Explained | None:
    """A mean over samples; None when the field is no such mean, or the samples were not kept."""
    lines = _inside(places, label)
    if not lines:
        return None
    match list(keys):
        case ["engine", str(field)] if field in GAUGES:
            return _gauge(places, id, label, field, lines, shown)
        case ["box", str(field), ("min" | "mean" | "max") as part] if field in SPREADS:
            return _spread(places, id, label, field, part, lines, shown)
    return None


def _inside(places: Places, label: str) -> Lines:
    """The samples from while requests were measured, each with its line."""
    rows = places.lines(places.leg.samples_path(label))
    client = as_mapping(as_mapping(places.document(places.point_record(label))).get("client"))
    timed = [(number, row) for number, row in rows if as_number(row.get("time")) is not None]
    chosen = {id(row) for row in within([row for _number, row in timed], client)}
    return [(number, row) for number, row in timed if id(row) in chosen]


def _gauge(places: Places, id: str, label: str, field: str, lines: Lines, shown: Value) -> Explained:
    role, metric = GAUGES[field]
    workers = [
        {"name": str(row.get("name")), "role": row.get("role")}
        for row in as_rows(as_mapping(places.document(places.plan)).get("servers"))
    ]
    names = by_role(workers)[role]
    found = []
    for number, row in lines:
        seen = [as_number(as_mapping(as_mapping(row.get("servers")).get(name)).get(metric)) for name in names]
        known = [value for value in seen if value is not None]
        if names and len(known) == len(names):
            found.append((number, sum(known)))
    value = round(sum(value for _number, value in found) / len(found), 4) if found else None
    # How few samples say nothing is a rule of the pdlab that measured; it left such a mean out.
    few = len(found) < LEAST_SAMPLES and shown is None
    words = f"mean over {len(found)} samples of {metric}, summed over {', '.join(names) or 'no server'}"
    if field == "token_usage" and value is not None:
        value = round(value / len(names), 6)
        words = f"mean over {len(found)} samples of {metric}, and over {', '.join(names)}"
    if value is None or few:
        value = None
        words = (
            f"fewer than {LEAST_SAMPLES} samples have {metric} of {', '.join(names) or 'a server'}: they say nothing"
        )
    return Explained(
        id=id,
        what=f"{field} of point {label}, while requests were measured",
        value=value,
        shown=shown,
        formula=words,
        sources=_sources(places, label, [number for number, _value in found or lines], f"servers.*.{metric}"),
    )


def _spread(places: Places, id: str, label: str, field: str, part: str, lines: Lines, shown: Value) -> Explained:
    found = [(number, as_number(as_mapping(row.get("box")).get(field))) for number, row in lines]
    known = [value for _number, value in found if value is not None]
    worked = {"min": min(known), "max": max(known), "mean": round(sum(known) / len(known), 3)} if known else {}
    return Explained(
        id=id,
        what=f"{field} of the client's machine during point {label}, {part}",
        value=worked.get(part),
        shown=shown,
        formula=f"{part} of {field} over {len(known)} samples",
        sources=_sources(places, label, [number for number, value in found if value is not None], f"box.{field}"),
    )


def _sources(places: Places, label: str, numbers: Sequence[int], key: str) -> list[Source]:
    return [places.line(places.leg.samples_path(label), number, key) for number in numbers]
