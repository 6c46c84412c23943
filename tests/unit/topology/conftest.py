# SPDX-License-Identifier: Apache-2.0
"""Inventories as plain values, to be changed by each test."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars

PRESETS: dict[str, Any] = {
    "default": {
        "description": "three loads",
        "input_len": 256,
        "output_len": 128,
        "points": [
            {"concurrency": 1, "prompts": 8},
            {"concurrency": 16, "prompts": 48},
            {"concurrency": 64, "prompts": 96},
        ],
    },
    "campaign": {"range_ratio": 0.0, "points": [{"concurrency": 1, "prompts": 8}]},
}
GPU_BOX: dict[str, Any] = {
    "pd_model": {"path": "/srv/models/flash", "served_name": "flash"},
    "pd_servers": [
        {"name": "prefill-0", "role": "prefill", "gpus": [0, 1, 2, 3], "numa_node": 0},
        {"name": "decode-0", "role": "decode", "gpus": [4, 5, 6, 7], "numa_node": 1},
    ],
    "pd_router": {"port": 8000},
}
CPU_BOX: dict[str, Any] = {
    "pd_device": "cpu",
    "pd_model": {"source": "canary"},
    "pd_servers": [{"name": "prefill-0", "role": "prefill"}, {"name": "decode-0", "role": "decode"}],
    "pd_router": {},
}


def one_host(**variables: Any) -> list[HostVars]:
    """The usual single host."""
    return [HostVars("box1", local=True, home="/home/user", variables={"pd_root": "/opt/pdlab", **variables})]


def two_hosts(first: dict[str, Any] | None = None, second: dict[str, Any] | None = None) -> list[HostVars]:
    """A fleet of two."""
    root = {"pd_root": "/opt/pdlab"}
    return [
        HostVars("box1", ansible_host="192.0.2.11", variables={**root, **(first or {})}),
        HostVars("box2", ansible_host="192.0.2.12", variables={**root, **(second or {})}),
    ]


@pytest.fixture
def gpu_box() -> dict[str, Any]:
    return deepcopy(GPU_BOX)


@pytest.fixture
def cpu_box() -> dict[str, Any]:
    return deepcopy(CPU_BOX)


@pytest.fixture
def fleet(gpu_box: dict[str, Any]) -> dict[str, Any]:
    gpu_box["pd_servers"][0]["host"] = "box1"
    gpu_box["pd_servers"][1]["host"] = "box2"
    return gpu_box


@pytest.fixture
def plan_of() -> Callable[..., dict[str, Any]]:
    """Resolve an inventory that is right."""

    def resolved(variables: dict[str, Any], hosts: list[HostVars] | None = None) -> dict[str, Any]:
        plan, faults = resolve(variables, hosts or one_host(), PRESETS)
        assert not faults, "\n".join(map(str, faults))
        assert plan is not None
        return plan

    return resolved


@pytest.fixture
def faults_of() -> Callable[..., dict[str, str]]:
    """Resolve an inventory that is wrong; {key: the rest of its line}, and no plan."""

    def found(variables: dict[str, Any], hosts: list[HostVars] | None = None) -> dict[str, str]:
        plan, faults = resolve(variables, hosts or one_host(), PRESETS)
        assert plan is None
        assert len({fault.key for fault in faults}) == len(faults), "two faults at one key: " + "\n".join(
            map(str, faults)
        )
        return {fault.key: str(fault).removeprefix(f"{fault.key}: ") for fault in faults}

    return found
