# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of SGLang's servers and of its router that are kept with a benchmark point. Pure.

Names: sglang 0.5.17 and 0.5.23, srt/observability/metrics_collector.py (SchedulerMetricsCollector for queues and KV
transfer, TokenizerMetricsCollector for tokens), and sglang-router 0.3.2. Tests ask the installed engine for them.
Without --enable-metrics-for-all-schedulers only the first rank of a TP group reports queues and transfers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import prometheus_text

ENGINE_PREFIX = "sglang:"
ROUTER_PREFIX = "smg_"

# Values of a moment. They change when the scheduler logs its state: after a prefill, and every 40 decode steps.
QUEUES = (
    "num_running_reqs",
    "num_queue_reqs",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
)
SHARES = ("token_usage",)
SIZES = ("max_total_num_tokens",)
# Values that only grow. A counter that nothing has touched yet is not on the page: 0.
TOKENS = ("prompt_tokens_total", "generation_tokens_total", "cached_tokens_total", "num_requests_total")
TRANSFERS = (
    "kv_transfer_latency_ms_sum",
    "kv_transfer_latency_ms_count",
    "kv_transfer_speed_gb_s_sum",
    "kv_transfer_speed_gb_s_count",
    "kv_transfer_total_mb_sum",
    "kv_transfer_total_mb_count",
)
FAILURES = ("num_transfer_failed_reqs_total", "num_bootstrap_failed_reqs_total")
COUNTERS = (*TOKENS, *TRANSFERS, *FAILURES)
ROUTER = ("worker_requests_active", "worker_health", "worker_cb_state", "router_requests_total", "http_responses_total")

# A mean over fewer samples than this says nothing: a queue changes faster, and its metric slower, than that.
LEAST_SAMPLES = 5

BYTES_PER_MB = 1024 * 1024

# {metric: value}, {server: {metric: value}}.
Page = dict[str, float]
Snapshot = dict[str, Page]


def read_engine(text: str) -> Page | None:
    """What a server's /metrics page says of itself, by names without their prefix; None when it is no such page.

    Values are summed over label sets (the ranks of data parallelism), shares are their mean.
    """
    if ENGINE_PREFIX not in text:
        return None
    found = _values(text, ENGINE_PREFIX, {*QUEUES, *SHARES, *SIZES, *COUNTERS})
    page = {name: 0.0 for name in COUNTERS}
    for name, values in found.items():
        page[name] = sum(values) / len(values) if name in SHARES else sum(values)
    return page


def read_router(text: str) -> Page | None:
    """What the router's metrics page says, summed over label sets; None when it is no such page."""
    if ROUTER_PREFIX not in text:
        return None
    return {name: sum(values) for name, values in _values(text, ROUTER_PREFIX, set(ROUTER)).items()}


def _values(text: str, prefix: str, wanted: set[str]) -> dict[str, list[float]]:
    """The values of the wanted metrics, by name. Only their lines are taken apart: pages are long, and read often."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        if not line.startswith(prefix):
            continue
        name = line.partition("{")[0].partition(" ")[0][len(prefix) :]
        if name in wanted:
            for sample in prometheus_text.parse(line):
                if sample.value == sample.value:  # not NaN, which the engine writes for what it does not know
                    found.setdefault(name, []).append(sample.value)
    return found


def gained(before: Mapping[str, Any], after: Mapping[str, Any]) -> Snapshot:
    """What each server's counters gained between two snapshots. One that fell was restarted, and counts from 0."""
    result: Snapshot = {}
    for server, page in after.items():
        earlier = before.get(server) or {}
        result[server] = {}
        for name in COUNTERS:
            start, end = float(earlier.get(name) or 0.0), float(page.get(name) or 0.0)
            result[server][name] = end - start if end >= start else end
    return result


def total(pages: Mapping[str, Mapping[str, Any]], servers: Iterable[str], name: str) -> float:
    """One metric summed over some servers."""
    return sum(float((pages.get(server) or {}).get(name) or 0.0) for server in servers)


def by_role(workers: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The workers' names by role; a colocated server plays both parts."""
    roles: dict[str, list[str]] = {"prefill": [], "decode": []}
    for worker in workers:
        role = worker.get("role") or "colocated"
        for part in roles:
            if role in (part, "colocated"):
                roles[part].append(worker["name"])
    return roles


def figures(
    samples: Sequence[Mapping[str, Any]],
    start: Mapping[str, Mapping[str, Any]],
    now: Mapping[str, Mapping[str, Any]],
    workers: Sequence[Mapping[str, Any]],
    places: float | None = None,
) -> dict[str, float | None]:
    """A point's "engine": means over `samples` (of the measuring phase) and what counters gained from `start` to `now`.

    Queues are means over time of the sum over the servers of a role, token usage is the mean over decode servers, a
    transfer's time and speed are means over transfers. A mean over fewer than LEAST_SAMPLES samples is null, as in a
    point that is over within seconds. A colocated server counts for both roles. `places` are the
    requests that the decode servers take at once.
    """
    roles = by_role(workers)
    counted = gained(start, now) if start and now else {}

    def mean_of(part: str, name: str) -> float | None:
        values = [
            sum(float(sample["servers"][server][name]) for server in roles[part])
            for sample in samples
            if roles[part] and all(name in (sample["servers"].get(server) or {}) for server in roles[part])
        ]
        return round(sum(values) / len(values), 4) if len(values) >= LEAST_SAMPLES else None

    usage = mean_of("decode", "token_usage")
    moved = roles["prefill"]

    def each(name: str) -> float | None:
        count = total(counted, moved, f"{name}_count")
        return round(total(counted, moved, f"{name}_sum") / count, 6) if count else None

    known = bool(counted)
    return {
        "samples": len(samples),
        "prefill_bootstrap": mean_of("prefill", "num_prefill_bootstrap_queue_reqs"),
        "prefill_waiting": mean_of("prefill", "num_queue_reqs"),
        "prefill_inflight": mean_of("prefill", "num_prefill_inflight_queue_reqs"),
        "decode_prealloc": mean_of("decode", "num_decode_prealloc_queue_reqs"),
        "decode_transfer": mean_of("decode", "num_decode_transfer_queue_reqs"),
        "decode_waiting": mean_of("decode", "num_queue_reqs"),
        "decode_running": mean_of("decode", "num_running_reqs"),
        "decode_places": places,
        "pool_tokens": total(now, roles["decode"], "max_total_num_tokens") or None,
        "token_usage": None if usage is None else round(usage / len(roles["decode"]), 6),
        "kv_transfer_ms": each("kv_transfer_latency_ms"),
        "kv_transfer_gb_s": each("kv_transfer_speed_gb_s"),
        "kv_transfer_bytes": round(total(counted, moved, "kv_transfer_total_mb_sum") * BYTES_PER_MB) if known else None,
        "kv_transfers": total(counted, moved, "kv_transfer_total_mb_count") if known else None,
        "kv_transfer_failures": sum(total(counted, counted, name) for name in FAILURES) if known else None,
        "prompt_tokens": total(counted, moved, "prompt_tokens_total") if known else None,
        "generation_tokens": total(counted, roles["decode"], "generation_tokens_total") if known else None,
        "cached_tokens": total(counted, moved, "cached_tokens_total") if known else None,
        "requests": total(counted, moved, "num_requests_total") if known else None,
    }
