# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the alerts: every metric in them exists, and is used as what it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.promql import DASHBOARD, EXPRESSIONS, PANELS, RULES, metrics

CHECKOUT = Path(__file__).resolve().parents[3]
# Recorded of the installed engine and router by scripts/metric_names.py.
RECORDED = json.loads((CHECKOUT / "tests" / "unit" / "data" / "engine-0.5.23" / "metric-names.json").read_text())
# Of dcgm-exporter's own list, etc/default-counters.csv at 00d6d344: the last two stand there as comments.
GPU = {
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
    "DCGM_FI_DEV_SM_CLOCK": "gauge",
    "DCGM_FI_DEV_GPU_TEMP": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "counter",
    "DCGM_FI_DEV_POWER_VIOLATION": "counter",
}
# Prometheus' own.
KNOWN = {**RECORDED["names"], **GPU, "up": "gauge"}
_PART = re.compile(r"_(bucket|sum|count)$")


def kind(metric: str) -> str | None:
    """counter, gauge or histogram; None for a metric that there is not."""
    if metric in KNOWN:
        return KNOWN[metric]
    base = _PART.sub("", metric)
    return "part of a histogram" if base != metric and KNOWN.get(base) == "histogram" else None


@pytest.mark.parametrize("expression", sorted(set(EXPRESSIONS)))
def test_every_metric_exists_in_the_installed_engine_or_router_and_is_used_as_what_it_is(expression: str) -> None:
    found = metrics(expression)
    assert found
    assert {metric: kind(metric) for metric in found if kind(metric) in (None, "histogram")} == {}
    for metric in re.findall(r"\b(?:rate|increase)\(([A-Za-z0-9_:]+)", expression):
        assert kind(metric) in ("counter", "part of a histogram"), metric
    for metric in re.findall(r"\b(?:deriv|min_over_time|max_over_time)\(([A-Za-z0-9_:]+)", expression):
        assert kind(metric) == "gauge", metric
    for metric in re.findall(r"histogram_quantile\([^)]*\) \(rate\(([A-Za-z0-9_:]+)", expression):
        assert metric.endswith("_bucket"), metric


def test_names_are_told_from_labels_and_texts() -> None:
    expression = 'sum by (server, up) (rate(sglang:a_b_total{role=~"up|sglang:x", up="1"}[5m])) / smg_c == bool 1'
    assert metrics(expression) == ["sglang:a_b_total", "smg_c"]
    assert kind("sglang:token_usage") == "gauge"
    assert kind("sglang:token_usage_bucket") is None


def test_the_names_are_those_of_the_engine_and_the_router_that_pdlab_locks() -> None:
    lock = (CHECKOUT / "roles" / "engine" / "files" / "locks" / "cpu.txt").read_text()
    for package, version in RECORDED["versions"].items():
        assert re.search(rf"^{package}=={re.escape(version)}\b", lock, re.MULTILINE), package


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_what_a_live_server_showed_is_among_the_names(role: str) -> None:
    text = (CHECKOUT / "tests" / "unit" / "data" / "engine-0.5.23" / f"metrics-{role}.txt").read_text()
    shown = dict(re.findall(r"^# TYPE (sglang:\S+) (\w+)", text, re.MULTILINE))
    assert shown
    assert {name: RECORDED["names"].get(name) for name in shown} == shown


def test_the_dashboard_is_what_its_table_says() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/dashboard.py", "--check"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_panels_lie_side_by_side_without_overlap_and_each_says_what_it_means() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken.get((x, y)))
                taken[x, y] = panel["title"]
    assert all(len(panel["description"]) > 5 for panel in PANELS)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_what_matters_in_a_disaggregated_deployment_is_shown() -> None:
    shown = {_PART.sub("", metric) for expression in EXPRESSIONS for metric in metrics(expression)}
    assert {
        "sglang:num_queue_reqs",
        "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
        "sglang:kv_transfer_speed_gb_s",
        "sglang:kv_transfer_latency_ms",
        "sglang:kv_transfer_total_mb",
        "sglang:num_transfer_failed_reqs_total",
        "sglang:token_usage",
        "sglang:num_running_reqs",
        "sglang:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        "sglang:generation_tokens_total",
        "smg_router_requests_total",
        "smg_worker_retries_total",
        "smg_worker_cb_state",
    } <= shown


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_means_and_concerns_only_pdlabs_targets(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    selectors = re.findall(r"[A-Za-z_:]+({[^}]*})", rule["expr"])
    assert selectors
    assert all('job="pdlab' in selector for selector in selectors)
