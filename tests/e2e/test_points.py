# SPDX-License-Identifier: Apache-2.0
"""What is kept with a point, on the real stack: a short closed and a short open loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_metrics

from tests.e2e.conftest import Done, Pdlab

BOTH = json.dumps({"pd_benchmark": {"workloads": ["quick", "quick-open"]}})
# What a busy test machine may do to a run of a second. All else must hold on the rehearsal, too.
BUSY = {"client_slow", "loop_not_full"}


@pytest.fixture(scope="module")
def benched(standing: Pdlab) -> Path:
    """The run folder of `pdlab bench` with both workloads."""
    done = standing("bench", "-e", BOTH)
    assert done.status == 0, done.text
    return sorted(path for path in standing.runs.iterdir() if (path / "plan.json").exists())[-1]


def record(run: Path, label: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run / "records" / f"point-{label}.json").read_text())
    return document


@pytest.mark.parametrize("label", ["quick-c1-n4", "quick-c4-n12", "quick-open-r4-n16"])
def test_a_point_is_warmed_up_cold_whole_and_counted_by_the_engine(benched: Path, label: str) -> None:
    point = record(benched, label)
    assert point["ok"]
    assert {check["id"] for check in point["checks"] if not check["ok"]} <= BUSY, point["why"]
    engine, requests = point["engine"], point["requested"]
    assert point["warmup"]["pairs"]["touched"] == point["warmup"]["pairs"]["pairs"] == 1
    assert (engine["prompt_tokens"], engine["generation_tokens"]) == (requests * 64, requests * 32)
    assert (engine["requests"], engine["kv_transfers"], engine["cached_tokens"]) == (requests, requests, 0)
    assert engine["kv_transfer_bytes"] > 0 and engine["decode_places"] > 0 and engine["pool_tokens"] > 0
    assert 0 < point["client"]["cpu_share"] < 1.2 and point["client"]["loop_lag_ms"]["n"] > 0
    samples = (benched / "bench" / f"{label}.samples.jsonl").read_text().splitlines()
    assert {json.loads(line)["phase"] for line in samples} == {"before", "warmup", "measuring", "after"}


def test_an_open_loop_keeps_its_rate_and_the_share_of_its_limits(benched: Path) -> None:
    point = record(benched, "quick-open-r4-n16")
    assert (point["workload"], point["loop"], point["rate_s"], point["concurrency"]) == ("quick-open", "open", 4, None)
    assert point["limits"] == [{"ttft_ms": 2000, "tpot_ms": 100}]
    assert point["result"]["goodput_slos_ms"] == {"ttft": 2000, "tpot": 100}


def test_every_metric_that_is_kept_exists_in_the_installed_engine_and_router(pdlab: Pdlab, first_up: Done) -> None:
    (packages,) = (pdlab.root / "engine" / "lib").glob("python3*/site-packages")
    source = (packages / "sglang" / "srt" / "observability" / "metrics_collector.py").read_text()
    names = {*engine_metrics.QUEUES, *engine_metrics.SHARES, *engine_metrics.SIZES, *engine_metrics.COUNTERS}
    for name in names:
        # A histogram's sum and count are the exporter's.
        declared = name.removesuffix("_sum").removesuffix("_count")
        assert f'name="{engine_metrics.ENGINE_PREFIX}{declared}"' in source, name
    router = b"".join(path.read_bytes() for path in (packages / "sglang_router").glob("*.so"))
    for name in engine_metrics.ROUTER:
        assert (engine_metrics.ROUTER_PREFIX + name).encode() in router, name
