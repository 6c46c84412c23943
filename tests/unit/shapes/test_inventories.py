# SPDX-License-Identifier: Apache-2.0
"""The inventories that pdlab ships for GPU boxes are right as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import PER_HOST

CHECKOUT = Path(__file__).resolve().parents[3]
SWEEPS = yaml.safe_load((CHECKOUT / "roles" / "benchmark" / "vars" / "sweeps.yml").read_text())["benchmark_sweeps"]
GPU_INVENTORIES = sorted(path.name for path in (CHECKOUT / "inventory").glob("gpu*"))


def plan_of(name: str) -> dict[str, Any]:
    given = yaml.safe_load((CHECKOUT / "inventory" / name / "group_vars" / "pdlab.yml").read_text())
    own = {key: value for key, value in given.items() if key in PER_HOST}
    shared = {key: value for key, value in given.items() if key not in PER_HOST}
    plan, faults = resolve(shared, [HostVars("gpubox", ansible_host="192.0.2.11", variables=own)], SWEEPS)
    assert plan, list(map(str, faults))
    return plan


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
