# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.benchmark_points import resolve_benchmark
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults

REPOSITORY = Path(__file__).parents[3]
WORKLOADS: dict[str, Any] = yaml.safe_load((REPOSITORY / "roles/benchmark/vars/workloads.yml").read_text())[
    "benchmark_workloads"
]
CAMPAIGN = yaml.safe_load((REPOSITORY / "pdlab/bench/baselines/rtx-pro-6000-campaign.yml").read_text())


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_every_preset_resolves_to_points(name: str) -> None:
    faults = Faults()
    resolved = resolve_benchmark({"sweep": name}, WORKLOADS, faults)
    assert len(faults) == 0 and resolved is not None
    assert resolved["name"] == name and resolved["description"]
    assert len(resolved["points"]) == len(WORKLOADS[name]["points"])


@pytest.mark.parametrize(
    ("named", "loads"),
    [(None, [(1, 8), (16, 48), (64, 96)]), ({"sweep": "short"}, [(1, 64), (16, 80), (64, 320)])],
)
def test_the_default_is_152_requests_and_short_464_both_of_exact_length(
    named: dict[str, Any] | None, loads: list[tuple[int, int]]
) -> None:
    resolved = resolve_benchmark(named, WORKLOADS, Faults())
    assert resolved is not None
    assert [(point["concurrency"], point["prompts"]) for point in resolved["points"]] == loads
    assert {(point["input_len"], point["output_len"], point["range_ratio"]) for point in resolved["points"]} == {
        (256, 128, 1.0)
    }


def test_the_campaign_preset_repeats_the_baselines_loads_and_lengths() -> None:
    loads = [(point["concurrency"], point["prompts"]) for point in CAMPAIGN["points"]]
    assert loads == [(point["concurrency"], point["prompts"]) for point in WORKLOADS["campaign"]["points"]]
    for name in ("input_len", "output_len", "range_ratio"):
        assert CAMPAIGN["lengths"][name] == WORKLOADS["campaign"][name]


def test_the_campaigns_table_is_marked_as_another_machines_and_keeps_its_ratios() -> None:
    assert CAMPAIGN["another_machine"] is True and CAMPAIGN["source"] and CAMPAIGN["machine"] and CAMPAIGN["model"]
    for point in CAMPAIGN["points"]:
        if point["tpot_gain"] is not None:
            gain = point["tp4"]["tpot_ms"]["unstated"] / point["pd"]["tpot_ms"]["unstated"]
            assert gain == pytest.approx(point["tpot_gain"], abs=0.01)
    last = CAMPAIGN["points"][-1]
    assert 1 - last["pd"]["output_tok_s"] / last["tp4"]["output_tok_s"] == pytest.approx(0.24, abs=0.005)
