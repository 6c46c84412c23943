# SPDX-License-Identifier: Apache-2.0
"""Figures of one point, worked out again from its raw line: which key of which file, or which formula over which keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pdlab.evidence.model import LimitSet
from pdlab.ledger.explained import Explained, Source, Value
from pdlab.ledger.json_place import Key
from pdlab.ledger.places import Places
from pdlab.ledger.sampled_figures import sampled_figure
from pdlab.loose import as_integer, as_list, as_mapping, as_number, as_rows
from pdlab.results.latency import PERCENTILES, supported

# Field of Point (results/model.py) -> key of the benchmark client's line (sglang/benchmark/serving.py, 0.5.23).
RATES = {
    "output_tok_s": "output_throughput",
    "peak_output_tok_s": "max_output_tokens_per_s",
    "total_tok_s": "total_throughput",
    "request_s": "request_throughput",
    "mean_concurrency": "concurrency",
}
LATENCIES = {"ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms", "itl_ms": "itl_ms", "e2e_ms": "e2e_latency_ms"}
# What the client keeps of each request: times in s.
ARRAYS = {"ttft_ms": "ttfts", "itl_ms": "itls"}
AGGREGATES = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
PER_GPU = "output_tok_s_per_gpu"
# Asked by the plan, and by the record where it has them.
ASKED = ("concurrency", "rate_s", "requested", "input_len", "output_len", "range_ratio", "seed", "workload", "loop")
RECORDED = ("completed", "seconds", "ok")
# Parts of the record that say what engine, box and client did.
SAMPLED = ("engine", "box", "client")


class UnknownFieldError(ValueError):
    """A point has no such figure. The message says which it has."""


def point_figure(places: Places, id: str, label: str, field: str, shown: Value) -> Explained:
    """One figure of one point. `shown`: what reports show. Raises UnknownFieldError."""
    name, _, part = field.partition(".")
    measured = field in RATES or field == PER_GPU or (name in LATENCIES and (part in AGGREGATES or part == "n"))
    record = places.point_record(label)
    if measured and not as_mapping(places.document(record)).get("ok"):
        return Explained(
            id=id,
            what=f"{field} of point {label}",
            value=0 if part == "n" else None,
            shown=shown,
            formula="none: the point failed, and has no figures",
            sources=[places.key(record, ["ok"])],
        )
    if field in RATES:
        return _rate(places, id, label, field, shown)
    if field == PER_GPU:
        return _per_gpu(places, id, label, shown)
    if measured:
        return _latency(places, id, label, name, part, shown)
    if field in ASKED or field in RECORDED:
        return _said(places, id, label, field, shown)
    if name in SAMPLED and part:
        keys: list[Key] = [int(key) if key.isdigit() else key for key in field.split(".")]
        if (sampled := sampled_figure(places, id, label, keys, shown)) is not None:
            return sampled
        formula = f"{field} of the point's record, where the benchmark job wrote it"
        return _of_record(places, id, label, keys, shown, formula)
    if name == "checks" and part:
        return _check(places, id, label, part, shown)
    known = [*RATES, PER_GPU, *(f"{one}.{two}" for one in LATENCIES for two in ("n", *AGGREGATES))]
    more = [*ASKED, *RECORDED, *(f"{one}.NAME" for one in (*SAMPLED, "checks"))]
    raise UnknownFieldError(f"a point has no figure {field!r}; it has {', '.join([*known, *more])}")


def goodput_values(line: Mapping[str, Any], requested: int | None) -> tuple[list[tuple[float, float, float]], int]:
    """(TTFT, TPOT, E2E) in ms of each request that succeeded, and how many were sent.

    TPOT is the sum of the gaps between tokens over output tokens - 1, E2E is TTFT and the gaps: as measured.py.
    """
    rows = []
    columns = [as_list(line.get(name)) for name in ("ttfts", "itls", "output_lens")]
    errors = as_list(line.get("errors"))
    errors = errors if len(errors) == len(columns[0]) else [""] * len(columns[0])
    for ttft, gaps, tokens, error in zip(*columns, errors, strict=False):
        first, count = as_number(ttft), as_integer(tokens)
        if not error and first is not None and count is not None:
            # Exact, as measured.py has it: a limit that lies on a value must fall on the same side.
            decode = math.fsum(gap for gap in map(as_number, as_list(gaps)) if gap is not None)
            rows.append((first * 1000, decode / (count - 1) * 1000 if count > 1 else 0.0, (first + decode) * 1000))
    return rows, max(requested or len(rows), len(rows))


def goodput_figure(places: Places, id: str, label: str, limits: LimitSet, shown: Value) -> Explained:
    """Good requests per second of one point: those that kept every limit. Without limits every one that completed."""
    line, place = client_line(places, label)
    record = as_mapping(places.document(places.point_record(label)))
    completed, rate = as_integer(line.get("completed")), as_number(line.get("request_throughput"))
    requested = as_integer(record.get("requested", record.get("prompts")))
    rows, sent = goodput_values(line, requested)
    wanted = (limits.ttft_ms, limits.tpot_ms, limits.e2e_ms)
    what = f"good requests per second of point {label}"
    if wanted == (None, None, None):
        more: dict[str, Value] = {"good": completed, "requested": requested}
        formula = "request_throughput: without limits every request is good"
        return Explained(
            id=id, what=what, value=rate, shown=shown, more=more, formula=formula, sources=[place("request_throughput")]
        )
    met = [all(limit is None or value <= limit for value, limit in zip(row, wanted, strict=True)) for row in rows]
    good = sum(met)
    names = ("TTFT", "TPOT", "E2E")
    asked = ", ".join(f"{name} <= {limit:g} ms" for name, limit in zip(names, wanted, strict=True) if limit is not None)
    # As measured.py: arrays that do not match the count are not used.
    value = good * rate / completed if rate and completed and len(rows) == completed else None
    return Explained(
        id=id,
        what=what,
        value=value,
        shown=shown,
        more={"good": good, "requested": sent, "attainment": good / sent if sent else None},
        formula=f"requests with {asked}, over the time of the point (completed / request_throughput): TTFT is ttfts, TPOT "
        "the sum of itls over output_lens - 1, E2E both",
        sources=[place(key) for key in ("ttfts", "itls", "output_lens", "completed", "request_throughput")],
    )


def client_line(places: Places, label: str) -> tuple[Mapping[str, Any], Callable[[str], Source]]:
    """What the client said of a point, and where a key of it stands: its JSONL, else the copy in the record."""
    found = places.raw(label)
    if found is not None:
        number, line = found
        path = places.leg.raw_path(label)
        return line, lambda key: places.line(path, number, key)
    record = places.point_record(label)
    line = dict(as_mapping(as_mapping(places.document(record)).get("result")))
    return line, lambda key: places.key(record, ["result", key])


def _rate(places: Places, id: str, label: str, field: str, shown: Value) -> Explained:
    line, place = client_line(places, label)
    key = RATES[field]
    return Explained(
        id=id,
        what=f"{field} of point {label}",
        value=as_number(line.get(key)),
        shown=shown,
        formula=f"{key}, as the benchmark client wrote it",
        sources=[place(key)],
    )


def _per_gpu(places: Places, id: str, label: str, shown: Value) -> Explained:
    own = _rate(places, id.rpartition(":")[0] + ":output_tok_s", label, "output_tok_s", None)
    own = own.model_copy(update={"shown": own.value})
    servers = as_rows(as_mapping(places.document(places.plan)).get("servers"))
    gpus = {(str(row.get("host")), str(gpu)) for row in servers for gpu in as_list(row.get("gpus"))}
    value = own.value / len(gpus) if isinstance(own.value, float) and gpus else None
    return Explained(
        id=id,
        what=f"output tokens per second of point {label}, over all GPUs of the arm",
        value=value,
        shown=shown,
        formula=f"output_tok_s / {len(gpus)}: different GPUs of servers[].gpus",
        sources=[places.key(places.plan, ["servers"])],
        inputs=[own],
    )


def _latency(places: Places, id: str, label: str, name: str, part: str, shown: Value) -> Explained:
    line, place = client_line(places, label)
    what = f"{name.removesuffix('_ms').upper()} of point {label}, {part}" + ("" if part == "n" else ", ms")
    array = as_list(line.get(ARRAYS.get(name, "")))
    errors = as_list(line.get("errors"))
    if array:
        good = (
            [one for one, error in zip(array, errors, strict=True) if not error] if len(errors) == len(array) else array
        )
        values = [gap for row in good for gap in as_list(row)] if name == "itl_ms" else good
        sample = sorted(float(value) * 1000 for value in values if as_number(value) is not None)
        key = ARRAYS[name]
        sources = [place(key), *([place("errors")] if len(errors) == len(array) else [])]
        value, formula = _of_sample(sample, part, key)
        return Explained(id=id, what=what, value=value, shown=shown, formula=formula, sources=sources)
    completed = as_integer(line.get("completed")) or 0
    count, keys, words = completed, ["completed"], "completed requests"
    if name == "itl_ms":
        count = max(0, (as_integer(line.get("total_output_tokens")) or 0) - completed)
        keys, words = ["total_output_tokens", "completed"], "total_output_tokens - completed: the gaps between tokens"
    mean = as_number(line.get(f"mean_{LATENCIES[name]}"))
    if part == "n":
        # The client writes 0 for a mean of nothing.
        value = count if mean and count else 0
        return Explained(
            id=id, what=what, value=value, shown=shown, formula=words, sources=[place(key) for key in keys]
        )
    key = f"{AGGREGATES[part]}_{LATENCIES[name]}"
    value = as_number(line.get(key)) if mean and count and supported(part, count) else None
    formula = f"{key}, as the benchmark client wrote it; the sample is {count} {words.split(':')[-1].strip()}"
    return Explained(id=id, what=what, value=value, shown=shown, formula=formula, sources=[place(key)])


def _of_sample(sample: Sequence[float], part: str, key: str) -> tuple[float | int | None, str]:
    words = f"{key} x 1000 of the {len(sample)} {'gaps' if key == 'itls' else 'requests'} without an error"
    if part == "n":
        return len(sample), f"values in {key} of requests without an error"
    if not sample:
        return None, words
    if part == "mean":
        return math.fsum(sample) / len(sample), f"mean of {words}"
    if part == "max":
        return sample[-1], f"largest of {words}"
    if not supported(part, len(sample)):
        return None, f"{len(sample)} values do not support {part}"
    rank = PERCENTILES[part] * (len(sample) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(sample) - 1)
    value = sample[low] + (sample[high] - sample[low]) * (rank - low)
    return value, f"{part} of {words}, linear between ranks {low} and {high} of the sorted values"


def _said(places: Places, id: str, label: str, field: str, shown: Value) -> Explained:
    """What the record says; for what was asked, else the plan."""
    record = as_mapping(places.document(places.point_record(label)))
    names = [field, "prompts"] if field == "requested" else [field]
    for name in names:
        if name in record:
            return _of_record(places, id, label, [name], shown, f"{name} of the point's record")
    index = places.planned_index(label)
    if field in ASKED and index is not None:
        point = places.document(places.plan)["benchmark"]["points"][index]
        name = next((name for name in names if name in point), names[0])
        return Explained(
            id=id,
            what=f"{field} of point {label}",
            value=_plain(point.get(name)),
            shown=shown,
            formula=f"{name} of the planned point; no record says otherwise",
            sources=[places.key(places.plan, ["benchmark", "points", index, name])],
        )
    return _of_record(places, id, label, [field], shown, f"{field} of the point's record")


def _check(places: Places, id: str, label: str, check: str, shown: Value) -> Explained:
    path: Path = places.point_record(label)
    rows = as_rows(as_mapping(places.document(path)).get("checks"))
    index = next((index for index, row in enumerate(rows) if row.get("id") == check), None)
    if index is None:
        named = ", ".join(str(row.get("id")) for row in rows) or "none"
        raise UnknownFieldError(f"point {label} has no check {check!r}; it has {named}")
    formula = f"what check {check} saw; wanted: {rows[index].get('wanted')}"
    return _of_record(places, id, label, ["checks", index, "seen"], shown, formula)


def _of_record(places: Places, id: str, label: str, keys: Sequence[Key], shown: Value, formula: str) -> Explained:
    path = places.point_record(label)
    return Explained(
        id=id,
        what=f"{id.split(':')[-1]} of point {label}",
        value=_plain(at(places.document(path), keys)),
        shown=shown,
        formula=formula,
        sources=[places.key(path, keys)],
    )


def at(document: Any, keys: Sequence[Key]) -> Any:
    """The value at a path of keys; None when there is none."""
    for key in keys:
        if isinstance(key, int):
            rows = as_list(document)
            document = rows[key] if key < len(rows) else None
        else:
            document = as_mapping(document).get(key)
    return document


def _plain(value: Any) -> Value:
    return value if isinstance(value, float | int | str | bool) else None
