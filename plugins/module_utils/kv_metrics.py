# SPDX-License-Identifier: GPL-3.0-or-later
"""The KV-transfer counters of SGLang's workers: read from /metrics, and compared.

Names and units: sglang 0.5.23 srt/observability/metrics_collector.py (class SchedulerMetricsCollector) and
req_time_stats.py (compute_and_observe_kv_transfer_metrics: one observation a request, on prefill, total_mb =
bytes / 1024²). Without --enable-metrics-for-all-schedulers only the first rank of a TP group reports, so with
tensor parallelism the bytes are those of that rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json, prometheus_text

BYTES_METRIC = "sglang:kv_transfer_total_mb_sum"
REQUESTS_METRIC = "sglang:kv_transfer_total_mb_count"
FAILURE_METRICS = ("sglang:num_transfer_failed_reqs_total", "sglang:num_bootstrap_failed_reqs_total")
COUNTERS = (BYTES_METRIC, REQUESTS_METRIC, *FAILURE_METRICS)
# Present on every engine with metrics on, whatever it has served.
ENGINE_PREFIX = "sglang:"
BYTES_PER_MB = 1024 * 1024

# {worker name: {metric name: value}}; plain JSON.
Snapshot = dict[str, dict[str, float]]


class Movement(NamedTuple):
    """What happened between two snapshots, over all workers."""

    bytes: int
    requests: int
    failed: int
    restarted: list[str]


def read(workers: Sequence[Mapping[str, Any]], timeout_s: float, api_key: str | None) -> tuple[Snapshot, list[str]]:
    """The counters of each worker ({name, url}) now, and what could not be read, in words.

    A counter that an engine has not touched yet is not on its page: it is 0.
    """
    snapshot: Snapshot = {}
    faults = []
    for worker in workers:
        name, url = worker["name"], worker["url"].rstrip("/") + "/metrics"
        reply = http_json.get(url, timeout_s, api_key)
        if not reply.ok:
            cure = "start the server with --enable-metrics" if reply.status == 404 else "see the server's log"
            faults.append(f"{name}: {url}: {reply.describe()}; {cure}")
            continue
        samples = prometheus_text.parse(reply.text)
        if not any(sample.name.startswith(ENGINE_PREFIX) for sample in samples):
            faults.append(f"{name}: {url} has no sglang metrics; start the server with --enable-metrics")
            continue
        snapshot[name] = {counter: prometheus_text.total(samples, counter) or 0.0 for counter in COUNTERS}
    return snapshot, faults


def movement(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Movement:
    """What the counters gained, worker by worker. A worker whose counters fell was restarted and counts from 0."""
    gained = dict.fromkeys(COUNTERS, 0.0)
    restarted = []
    for name, counters in after.items():
        earlier = before.get(name, {})
        if any(float(earlier.get(counter, 0.0)) > float(counters.get(counter, 0.0)) for counter in COUNTERS):
            restarted.append(name)
            earlier = {}
        for counter in COUNTERS:
            gained[counter] += float(counters.get(counter, 0.0)) - float(earlier.get(counter, 0.0))
    return Movement(
        bytes=round(gained[BYTES_METRIC] * BYTES_PER_MB),
        requests=round(gained[REQUESTS_METRIC]),
        failed=round(sum(gained[counter] for counter in FAILURE_METRICS)),
        restarted=restarted,
    )
