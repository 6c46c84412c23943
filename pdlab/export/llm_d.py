# SPDX-License-Identifier: Apache-2.0
"""A point as llm-d's benchmark report, version 0.2, so that it stands beside results of other tools.

The schema is llm-d-benchmark's (llmdbenchmark/analysis/benchmark_report/br_v0_2_json_schema.json). What pdlab does not
know is left out, also where the schema has a place for it. Percentiles are those that the sample supports.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from pdlab.evidence.legs import Leg
from pdlab.evidence.model import Evidence, PointRow
from pdlab.export.llm_d_stack import arguments, client_version, stack
from pdlab.loose import as_integer, as_list, as_mapping, as_number
from pdlab.results.latency import PERCENTILES, percentile, supported
from pdlab.results.model import Latency
from pdlab.store import PointFiles

VERSION = "0.2"
CLIENT = "sglang.benchmark.serving"

Document = dict[str, Any]


def documents(evidence: Evidence, legs: Sequence[Leg]) -> Iterator[tuple[str, str, Document]]:
    """(leg id, label, report) of every point that was measured, in order. Pure."""
    by_id = {leg.id: leg for leg in legs}
    for row in evidence.points:
        leg = by_id[row.leg]
        files = next((one for one in leg.contents.points if one.label == row.point.label), None)
        if files is not None and row.point.measured:
            yield row.leg, row.point.label, document(evidence, leg, row, files)


def as_yaml(document: Document) -> str:
    """One report as llm-d's tools read it."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return text


def document(evidence: Evidence, leg: Leg, row: PointRow, files: PointFiles) -> Document:
    """The report of one point."""
    seconds = as_number(as_mapping(files.raw).get("duration")) or row.point.seconds
    return _without_none(
        {
            "version": VERSION,
            "run": {
                "uid": _hash([evidence.name, row.id]),
                "eid": evidence.name,
                "time": None if seconds is None else {"duration": f"PT{seconds}S"},
                "description": _description(evidence, leg, row),
                "keywords": ["pdlab", row.arm, row.workload, *(["rehearsal"] if leg.report.rehearsal else [])],
            },
            "scenario": {"stack": stack(leg), "load": _load(leg, row, files)},
            "results": {"request_performance": {"aggregate": _aggregate(row, files)}, "observability": _seen(leg, row)},
        }
    )


def _description(evidence: Evidence, leg: Leg, row: PointRow) -> str:
    said = f"pdlab run {evidence.name}, leg {row.leg}, point {row.point.label}"
    if leg.report.rehearsal:
        said += f". REHEARSAL: {leg.report.rehearsal_note}"
    if not row.counts:
        said += f". NOT A RESULT: {'; '.join(row.point.why) or 'it does not count'}"
    return said


# --- load ---------------------------------------------------------------------------------------------------------


def _load(leg: Leg, row: PointRow, files: PointFiles) -> Document | None:
    point = row.point
    lengths = _lengths(row, files)
    if lengths is None:
        return None
    planned = {key: value for key, value in as_mapping(files.planned).items() if key != "label"}
    argv = [str(item) for item in as_list(as_mapping(as_mapping(files.record).get("client")).get("argv"))]
    return {
        "metadata": {"cfg_id": _hash(planned) if planned else None, "description": f"workload {row.workload}"},
        "standardized": {
            "tool": CLIENT,
            "tool_version": client_version(leg),
            # Both of its data sets are made of random token ids.
            "source": "random",
            "input_seq_len": lengths,
            "output_seq_len": _drawn(point.output_len, point.range_ratio),
            "rate_qps": row.load.rate_s or None,
            "concurrency": row.load.concurrency,
        },
        "native": {"args": arguments(argv) or None, "config": planned or None},
    }


def _lengths(row: PointRow, files: PointFiles) -> Document | None:
    """Input lengths: as they were asked for, or as they came where a shared prefix is put in front."""
    if row.point.dataset != "shared-prefix":
        return _drawn(row.point.input_len, row.point.range_ratio)
    known = [length for length in map(as_integer, as_list(as_mapping(files.raw).get("input_lens"))) if length]
    if not known:
        return None
    return {"distribution": "other", "value": statistics.fmean(known), "min": min(known), "max": max(known)}


def _drawn(most: int | None, ratio: float | None) -> Document | None:
    """Lengths as the client draws them: all alike, or uniform between a share of the longest and the longest."""
    if most is None:
        return None
    if ratio == 1.0:
        return {"distribution": "fixed", "value": most}
    least = max(int(most * (ratio or 0.0)), 1)
    return {"distribution": "uniform", "value": (least + most) / 2, "min": least, "max": most}


# --- results ------------------------------------------------------------------------------------------------------


def _aggregate(row: PointRow, files: PointFiles) -> Document:
    point, raw = row.point, as_mapping(files.raw)
    errors = as_list(raw.get("errors"))
    good = [not error for error in errors]
    missing = None if point.requested is None or point.completed is None else max(0, point.requested - point.completed)
    return {
        "requests": None
        if point.requested is None
        else {
            "total": point.requested,
            "failures": sum(bool(error) for error in errors) if errors else None,
            "incomplete": missing,
            "input_length": _counts(as_list(raw.get("input_lens")), good) if point.ok else None,
            "output_length": _counts(as_list(raw.get("output_lens")), good) if point.ok else None,
        },
        "latency": {
            "time_to_first_token": _latency(point.ttft_ms, "ms"),
            "time_per_output_token": _latency(point.tpot_ms, "ms/token"),
            "inter_token_latency": _latency(point.itl_ms, "ms/token"),
            "request_latency": _latency(point.e2e_ms, "ms"),
        },
        "throughput": {
            "input_token_rate": _mean(as_number(raw.get("input_throughput")) if point.ok else None, "tokens/s"),
            "output_token_rate": _mean(point.output_tok_s, "tokens/s"),
            "total_token_rate": _mean(point.total_tok_s, "tokens/s"),
            "request_rate": _mean(point.request_s, "queries/s"),
        },
    }


def _latency(latency: Latency, units: str) -> Document | None:
    if latency.mean is None:
        return None
    return {"units": units, **latency.model_dump(include={"mean", "p50", "p90", "p95", "p99", "max"})}


def _mean(value: float | None, units: str) -> Document | None:
    return None if value is None else {"units": units, "mean": value}


def _counts(lengths: Sequence[Any], good: Sequence[bool]) -> Document | None:
    """Token counts of the requests that succeeded."""
    values = [as_number(length) for length in lengths]
    if len(good) == len(values):
        values = [value for value, fine in zip(values, good, strict=True) if fine]
    known = [value for value in values if value is not None]
    if not known:
        return None
    shares = {
        name: percentile(known, share) if supported(name, len(known)) else None for name, share in PERCENTILES.items()
    }
    return {"units": "count", "mean": statistics.fmean(known), "min": min(known), **shares, "max": max(known)}


def _seen(leg: Leg, row: PointRow) -> Document | None:
    """The engine's own means, for a role that one server alone has: pdlab keeps sums over the servers of a role."""
    engine = row.point.engine
    if engine is None:
        return None
    seen: dict[str, dict[str, Document | None]] = {
        "prefill": {"waiting_requests": _mean(engine.prefill_waiting, "count")},
        "decode": {
            "kv_cache_usage": _mean(engine.token_usage, "fraction"),
            "running_requests": _mean(engine.decode_running, "count"),
            "waiting_requests": _mean(engine.decode_waiting, "count"),
        },
    }
    servers = [as_mapping(server) for server in as_list(as_mapping(leg.contents.plan).get("servers"))]
    found = []
    for role, aggregate in seen.items():
        named = [str(server.get("name")) for server in servers if server.get("role") == role]
        if len(named) == 1 and any(aggregate.values()):
            found.append({"component_label": named[0], "aggregate": aggregate})
    return {"components": found} if found else None


# --- helpers ------------------------------------------------------------------------------------------------------


def _hash(document: Any) -> str:
    """An id that follows from what it stands for."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _without_none(document: Any) -> Any:
    """The document without what is not known. A bare flag's null in `args` stays: it is known."""
    if not isinstance(document, Mapping):
        return [_without_none(one) for one in document] if isinstance(document, list) else document
    return {
        key: value if key in ("args", "config") else _without_none(value)
        for key, value in document.items()
        if value is not None and not (isinstance(value, Mapping) and key not in ("native", "args") and _is_empty(value))
    }


def _is_empty(document: Mapping[str, Any]) -> bool:
    return all(value is None or (isinstance(value, Mapping) and _is_empty(value)) for value in document.values())
