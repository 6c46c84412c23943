# SPDX-License-Identifier: Apache-2.0
"""The columns of an export: every field of a point, with its unit. They follow from the models of results.py."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pdlab.results.model import Point

Kind = Literal["text", "integer", "number", "boolean", "json"]


@dataclass(frozen=True)
class Column:
    """One column. The name of a point's column is the FIELD of its figures' ids: LEG:LABEL:FIELD."""

    name: str
    kind: Kind
    unit: str
    words: str


# Where a point stands: filled from the evidence, not from Point.
PLACE = (
    Column("run", "text", "", "The run that was exported."),
    Column("rehearsal", "boolean", "", "True: on a CPU, with the canary model, or declared so."),
    Column("leg", "text", "", "The deployment: ARM-rREPEAT."),
    Column("arm", "text", "", "The topology."),
    Column("repeat", "integer", "", "0 in a plain run, from 1 in a run of arms."),
    Column("order", "integer", "", "The leg's place in time, from 0."),
    Column("started", "text", "UTC", "When the leg began, ISO 8601."),
    Column("disaggregated", "boolean", "", "Whether prefill and decode are on servers of their own."),
    Column("prefill", "integer", "servers", "Prefill servers of the arm."),
    Column("decode", "integer", "servers", "Decode servers of the arm."),
    Column("colocated", "integer", "servers", "Servers of the arm that do both."),
    Column("gpus", "integer", "GPUs", "GPUs of the arm; empty on CPUs."),
    Column("bound", "text", "", "What binds the point, or 'cannot say'."),
    Column("output_tok_s_per_gpu", "number", "tokens/s", "output_tok_s over the GPUs of the arm."),
)

_WORDS = {
    "label": "The point's name within its leg.",
    "workload": "The workload that it belongs to.",
    "requested": "Requests that were asked for.",
    "completed": "Requests that completed.",
    "input_len": "Input tokens a request, at most.",
    "output_len": "Output tokens a request, at most.",
    "seed": "Seed of the prompts.",
    "checks": "Every check: id, ok, seen, wanted, grade.",
    "box.gpus": "Each GPU over the point: clocks, power, temperature, throttle reasons.",
    "box.load_1m": "Load average of one minute, on the client's machine",
    "box.cpu_mhz": "Frequency of its CPUs",
    "client.loop_lag_ms": "How late the client's event loop ran a timer",
    "engine.prefill_bootstrap": "Requests that wait for prefill and decode to have shaken hands.",
    "engine.prefill_waiting": "Requests that wait for prefill.",
    "engine.prefill_inflight": "Requests in prefill's transfer queue.",
    "engine.decode_prealloc": "Requests that wait for room in decode.",
    "engine.decode_transfer": "Requests in decode's transfer queue.",
    "engine.decode_waiting": "Requests that wait in decode.",
    "engine.decode_running": "Requests that decode.",
    "engine.kv_transfers": "KV transfers.",
    "engine.kv_transfer_failures": "KV transfers that failed.",
    "ttft_ms": "Time to the first token",
    "tpot_ms": "Time per output token after the first, one value a request",
    "itl_ms": "Time between two tokens, one value a gap",
    "e2e_ms": "Time of a whole request",
}
_UNITS = {
    "concurrency": "requests",
    "rate_s": "requests/s",
    "request_s": "requests/s",
    "mean_concurrency": "requests",
    "requested": "requests",
    "completed": "requests",
    "input_len": "tokens",
    "output_len": "tokens",
    "range_ratio": "share",
    "seconds": "s",
    "engine.samples": "samples",
    "engine.token_usage": "share",
    "engine.kv_transfer_gb_s": "GB/s",
    "engine.kv_transfer_bytes": "bytes",
    "engine.kv_transfers": "transfers",
    "engine.kv_transfer_failures": "transfers",
    "engine.prompt_tokens": "tokens",
    "engine.generation_tokens": "tokens",
    "engine.cached_tokens": "tokens",
    "client.cpu_share": "share of a core",
}


@functools.cache
def columns() -> tuple[Column, ...]:
    """All columns in order: where the point stands, then every field of Point (pdlab/results/model.py)."""
    return (*PLACE, *_of_model(Point, ""))


def value_at(point: Point, name: str) -> Any:
    """The value of one column of a point, models as plain data; None where there is none."""
    found: Any = point
    for step in name.split("."):
        found = getattr(found, step, None)
    if isinstance(found, list):
        return [one.model_dump(mode="json") if isinstance(one, BaseModel) else one for one in found]
    return found


def _of_model(model: type[BaseModel], above: str) -> Iterator[Column]:
    for name, field in model.model_fields.items():
        path = f"{above}{name}"
        kind, inner = _kind(field.annotation)
        if inner is not None:
            yield from _of_model(inner, f"{path}.")
        else:
            yield Column(path, kind, _unit(path), _words(path, field))


def _kind(annotation: Any) -> tuple[Kind, type[BaseModel] | None]:
    """The kind of a field, and the model when it is one."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (annotation,) = (one for one in typing.get_args(annotation) if one is not type(None))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "json", annotation
    if typing.get_origin(annotation) is list:
        return "json", None
    kinds: dict[Any, Kind] = {bool: "boolean", int: "integer", float: "number"}
    return kinds.get(annotation, "text"), None


def _unit(path: str) -> str:
    if path in _UNITS:
        return _UNITS[path]
    name = path.split(".")[-1]
    if name == "n":
        return "values"
    if "_ms" in path:
        return "ms"
    if name.endswith("tok_s"):
        return "tokens/s"
    if "_mhz" in path:
        return "MHz"
    return "requests" if path.startswith("engine.") else ""


def _words(path: str, field: FieldInfo) -> str:
    if path in _WORDS:
        return _WORDS[path]
    above, _, name = path.rpartition(".")
    if above in _WORDS:
        parts = {"n": "values in the sample", "min": "smallest", "mean": "mean", "max": "largest"}
        said = f"{_WORDS[above]}: {parts.get(name, name)}."
        return f"{said} {field.description}" if field.description and name != "n" else said
    return field.description or ""
