# SPDX-License-Identifier: Apache-2.0
"""What an analysis reads of one benchmark point, whoever measured it.

Times are means over requests, in ms, as the benchmark client gives them; `request_s` is requests per second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from pdlab.results.model import Point


@dataclass(frozen=True)
class Servers:
    """How many servers of each role shared the load. `gpus` counts all GPUs; None: not known."""

    prefill: int = 1
    decode: int = 1
    colocated: int = 0
    gpus: int | None = None

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run on separate servers."""
        return self.colocated == 0 and self.prefill > 0 and self.decode > 0


@dataclass(frozen=True)
class EngineView:
    """The engine's own metrics, means over the point and sums over its servers; None: not recorded.

    The names behind them (sglang 0.5.23, observability/metrics_collector.py): `num_queue_reqs` of prefill,
    `num_prefill_inflight_queue_reqs`, `num_decode_prealloc_queue_reqs`, `num_running_reqs` and `token_usage` of
    decode, `kv_transfer_latency_ms`. decode_places: the decode servers' `max_running_requests`.
    """

    prefill_waiting: float | None = None
    prefill_inflight: float | None = None
    decode_prealloc: float | None = None
    decode_running: float | None = None
    token_usage: float | None = None
    kv_transfer_ms: float | None = None
    decode_places: float | None = None


@dataclass(frozen=True)
class KvFacts:
    """The KV cache and its path. `*_at_most` and `*_at_least` hold for a fact that is only bounded.

    bytes_per_token_at_most: bytes that one prompt token sends from prefill to decode.
    path_gb_s_at_least: GB/s that the path carries, measured (10^9 bytes).
    pool_tokens: tokens that fit into all decode servers' KV caches.
    """

    bytes_per_token_at_most: float | None = None
    path_gb_s_at_least: float | None = None
    pool_tokens: float | None = None


@dataclass(frozen=True)
class Requests:
    """Per-request values in ms, one position a request that succeeded. `e2e_ms` is empty when it was not kept."""

    ttft_ms: tuple[float, ...]
    tpot_ms: tuple[float, ...]
    e2e_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """One run of one benchmark point. `concurrency` is the closed loop's limit; None: open loop at `rate_s`.

    `input_len` and `output_len` are mean tokens a request; below a range ratio of 1 single requests differ. Then each
    run draws other lengths, and `asked`, the means of what they are drawn from, is what points have in common.
    """

    label: str
    request_s: float
    input_len: float
    output_len: float
    tpot_ms: float | None
    ttft_ms: float | None
    e2e_ms: float | None = None
    concurrency: float | None = None
    rate_s: float | None = None
    requested: int | None = None
    completed: int | None = None
    duration_s: float | None = None
    range_ratio: float | None = 1.0
    arm: str = "pd"
    repeat: int = 0
    servers: Servers = field(default_factory=Servers)
    engine: EngineView | None = None
    kv: KvFacts = field(default_factory=KvFacts)
    requests: Requests | None = None
    asked: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

    @property
    def workload(self) -> tuple[float, float]:
        """What points must share to be compared: mean input and output tokens."""
        return self.asked or (self.input_len, self.output_len)

    @property
    def output_tok_s(self) -> float:
        """Output tokens per second over the whole point."""
        return self.request_s * self.output_len


def mean_length(limit: int, range_ratio: float | None) -> float:
    """Mean of lengths drawn uniformly from [max(1, int(limit * ratio)), limit].

    Source: sglang/benchmark/datasets/common.py, compute_random_lens, 0.5.23 (numpy's randint excludes its upper end,
    which is limit + 1 there). None is the client's default of 0.0.
    """
    low = max(int(limit * (range_ratio or 0.0)), 1)
    return (low + limit) / 2


def from_point(
    point: Point,
    servers: Servers,
    *,
    arm: str = "pd",
    repeat: int = 0,
    engine: EngineView | None = None,
    kv: KvFacts | None = None,
    requests: Requests | None = None,
) -> Measurement | None:
    """A point of a run's results as an analysis wants it; None when it has no figures (it failed or was not run).

    The engine's view and the facts of its KV cache are those that were kept with the point, unless `engine` and `kv`
    give others.
    """
    if not point.ok or not point.request_s or not point.input_len or not point.output_len:
        return None
    if point.request_s < 0 or point.input_len < 0 or point.output_len < 0:
        return None
    output_len = mean_length(point.output_len, point.range_ratio)
    asked = (mean_length(point.input_len, point.range_ratio), output_len)
    if point.output_tok_s and (point.range_ratio or 0.0) < 1.0:
        output_len = point.output_tok_s / point.request_s
    return Measurement(
        label=point.label,
        request_s=point.request_s,
        input_len=mean_length(point.input_len, point.range_ratio),
        output_len=output_len,
        tpot_ms=point.tpot_ms.mean,
        ttft_ms=point.ttft_ms.mean,
        e2e_ms=point.e2e_ms.mean,
        concurrency=None if point.loop == "open" else point.concurrency,
        rate_s=point.rate_s,
        requested=point.requested,
        completed=point.completed,
        duration_s=None if not point.completed else point.completed / point.request_s,
        range_ratio=point.range_ratio,
        arm=arm,
        repeat=repeat,
        servers=servers,
        engine=engine or engine_view(point),
        kv=kv or kv_facts(point),
        requests=requests,
        asked=asked if (point.range_ratio or 0.0) < 1.0 else None,
    )


def engine_view(point: Point) -> EngineView | None:
    """What the engine said of itself while the point was measured; None when nobody asked it."""
    if point.engine is None:
        return None
    return EngineView(**{name: getattr(point.engine, name) for name in (item.name for item in fields(EngineView))})


def kv_facts(point: Point) -> KvFacts:
    """What a point's own counters say of KV: bytes a prompt token, from what was sent, and how many tokens fit.

    A prompt that was cached on prefill is sent whole all the same, and a page that is not full is sent as one.
    """
    engine = point.engine
    if engine is None:
        return KvFacts()
    sent, tokens = engine.kv_transfer_bytes, engine.prompt_tokens
    return KvFacts(bytes_per_token_at_most=sent / tokens if sent and tokens else None, pool_tokens=engine.pool_tokens)


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None
