# SPDX-License-Identifier: Apache-2.0
"""The inventories that pdlab ships for GPU boxes are right as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import flag_faults, load_table

from scripts.golden_plans import names, plan_of

CHECKOUT = Path(__file__).resolve().parents[3]
FLAGS = load_table(str(CHECKOUT / "tests" / "unit" / "data" / "flags-sglang-0.5.23.json.gz"))
GPU_INVENTORIES = names()


@pytest.mark.parametrize("name", GPU_INVENTORIES)
def test_an_inventory_for_gpus_is_without_a_fault_and_no_rehearsal(name: str) -> None:
    plan = plan_of(name)
    assert plan["device"] == "cuda"
    assert plan["rehearsal"] is False


def test_the_reference_box_has_the_campaigns_topology() -> None:
    plan = plan_of("gpu")
    prefill, decode = plan["servers"]
    assert (prefill["role"], prefill["gpus"], prefill["tp"], prefill["port"]) == ("prefill", [0, 1, 2, 3], 4, 30000)
    assert (decode["role"], decode["gpus"], decode["tp"], decode["port"]) == ("decode", [4, 5, 6, 7], 4, 30001)
    assert (plan["router"]["port"], plan["router"]["prometheus_port"]) == (8000, 29001)
    assert plan["model"]["path"].endswith("DeepSeek-V4-Flash-NVFP4")


@pytest.mark.parametrize("name", GPU_INVENTORIES)
def test_the_engine_knows_every_flag_of_a_shipped_inventory(name: str) -> None:
    plan = plan_of(name)
    for server in [*plan["servers"], *([plan["reference"]] if plan["reference"] else [])]:
        assert flag_faults(server["argv"], FLAGS, server["name"]) == []


@pytest.mark.parametrize("name", GPU_INVENTORIES)
def test_tensor_parallelism_of_a_shipped_inventory_divides_the_heads_of_the_reference_model(name: str) -> None:
    # 64 attention heads and 256 experts: sglang configs/deepseek_v4.py, and the campaign's notes on the model.
    for server in plan_of(name)["servers"]:
        assert 64 % server["tp"] == 0
        assert 256 % server["tp"] == 0


@pytest.mark.parametrize("name", GPU_INVENTORIES)
def test_a_user_changes_hosts_model_and_gpus_and_is_told_so(name: str) -> None:
    folder = CHECKOUT / "inventory" / name
    text = (folder / "hosts.yml").read_text() + (folder / "group_vars" / "pdlab.yml").read_text()
    assert [f"CHANGE {number} of 3" in text for number in (1, 2, 3)] == [True, True, True]
    assert "numa_node" not in yaml.safe_load((folder / "group_vars" / "pdlab.yml").read_text())["pd_servers"][0]


def test_all_inventories_for_gpus_reach_the_box_in_the_same_way() -> None:
    assert len({(CHECKOUT / "inventory" / name / "hosts.yml").read_text() for name in GPU_INVENTORIES}) == 1
