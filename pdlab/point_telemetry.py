# SPDX-License-Identifier: Apache-2.0
"""What is kept with a benchmark point beside its figures: limits, and what engine, box and client said of themselves.

The models are parts of the published report; each reader takes what a point's record holds, in whatever state it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pdlab.loose import as_integer, as_list, as_mapping, as_number, as_rows


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LatencyLimits(_Model):
    """What a user of this workload still accepts, ms a request. Null: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Spread(_Model):
    """One quantity over the measuring phase."""

    min: float
    mean: float
    max: float


class EngineFigures(_Model):
    """The engine's own metrics over the measuring phase; null: not recorded.

    Queues and running requests are means over time of the sum over the servers of that role; token usage is the mean
    over decode servers; latencies and speeds are means over transfers; the rest is what counters gained.
    """

    samples: int | None = Field(default=None, description="Samples behind the means.")
    prefill_bootstrap: float | None = None
    prefill_waiting: float | None = None
    prefill_inflight: float | None = None
    decode_prealloc: float | None = None
    decode_transfer: float | None = None
    decode_waiting: float | None = None
    decode_running: float | None = None
    decode_places: float | None = Field(default=None, description="Requests that all decode servers take at once.")
    pool_tokens: float | None = Field(default=None, description="Tokens that all decode servers' KV caches hold.")
    token_usage: float | None = Field(default=None, description="Share of the decode servers' KV cache in use, 0 to 1.")
    kv_transfer_ms: float | None = Field(default=None, description="Mean time of one KV transfer.")
    kv_transfer_gb_s: float | None = Field(
        default=None, description="Mean speed of one KV transfer, as the engine says."
    )
    kv_transfer_bytes: float | None = Field(default=None, description="Bytes that prefill sent.")
    kv_transfers: float | None = None
    kv_transfer_failures: float | None = None
    prompt_tokens: float | None = Field(default=None, description="Prompt tokens, as the engine counted them.")
    generation_tokens: float | None = Field(default=None, description="Output tokens, as the engine counted them.")
    cached_tokens: float | None = Field(default=None, description="Prompt tokens from a prefix cache.")
    requests: float | None = Field(default=None, description="Requests, as the prefill servers counted them.")


class GpuTelemetry(_Model):
    """One GPU over the point, as nvidia-smi saw it. `throttle_reasons` were active in at least one sample."""

    index: int
    sm_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    throttle_reasons: list[str] = Field(default_factory=list)


class BoxTelemetry(_Model):
    """The machine that ran the client, over the point. No GPUs: no nvidia-smi there."""

    load_1m: Spread | None = None
    cpu_mhz: Spread | None = None
    gpus: list[GpuTelemetry] = Field(default_factory=list)


class LoopLag(_Model):
    """How late the client's event loop ran a timer, ms, over `n` timers: by so much its time stamps may be late."""

    n: int
    mean: float
    p99: float
    max: float


class ClientFigures(_Model):
    """The benchmark client over the measuring phase: whether it was what limited the point."""

    cpu_share: float | None = Field(default=None, description="Processor time as a share of one core, 0 to 1.")
    loop_lag_ms: LoopLag | None = None


def limits_of(said: object) -> list[LatencyLimits]:
    """The limits of a point."""
    return [LatencyLimits(**_numbers(LatencyLimits, row)) for row in as_rows(said)]


def engine_figures(said: object) -> EngineFigures | None:
    """The engine's own metrics; None when nobody asked it."""
    if not isinstance(said, Mapping):
        return None
    values: dict[str, Any] = _numbers(EngineFigures, said)
    return EngineFigures(**{**values, "samples": as_integer(said.get("samples"))})


def box_telemetry(said: object) -> BoxTelemetry | None:
    """The machine over the point; None when nobody looked."""
    if not isinstance(said, Mapping):
        return None
    gpus = [
        GpuTelemetry(
            index=as_integer(gpu.get("index")) or 0,
            sm_mhz=_spread(gpu.get("sm_mhz")),
            power_w=_spread(gpu.get("power_w")),
            temperature_c=_spread(gpu.get("temperature_c")),
            throttle_reasons=[str(reason) for reason in as_list(gpu.get("throttle_reasons"))],
        )
        for gpu in as_rows(said.get("gpus"))
    ]
    return BoxTelemetry(load_1m=_spread(said.get("load_1m")), cpu_mhz=_spread(said.get("cpu_mhz")), gpus=gpus)


def client_figures(said: object) -> ClientFigures | None:
    """How busy the client was; None when it was not watched."""
    client = as_mapping(said)
    share, lag = as_number(client.get("cpu_share")), as_mapping(client.get("loop_lag_ms"))
    mean, p99, most = (as_number(lag.get(name)) for name in ("mean", "p99", "max"))
    known = None
    if mean is not None and p99 is not None and most is not None:
        known = LoopLag(n=as_integer(lag.get("n")) or 0, mean=mean, p99=p99, max=most)
    return None if share is None and known is None else ClientFigures(cpu_share=share, loop_lag_ms=known)


def _numbers(model: type[_Model], row: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of a mapping under the names of a model's fields."""
    return {name: as_number(row.get(name)) for name in model.model_fields}


def _spread(said: object) -> Spread | None:
    values = _numbers(Spread, as_mapping(said))
    least, mean, most = values["min"], values["mean"], values["max"]
    return None if least is None or mean is None or most is None else Spread(min=least, mean=mean, max=most)
