# SPDX-License-Identifier: Apache-2.0
"""Cases of the tables of collectives and engine rules, and the reference box as an inventory."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import Case, with_peers
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars

LOCKED = "0.5.23"
RTX_PRO_6000, H200, B200 = "12.0", "9.0", "10.0"
V4 = "DeepseekV4ForCausalLM"


def case(role: str = "decode", **changes: Any) -> Case:
    """A server of the reference box, of which everything is known."""
    known: dict[str, Any] = {
        "name": f"{role}-0",
        "role": role,
        "device": "cuda",
        "address": "127.0.0.1",
        "tp": 4,
        "numa_node": 0,
        "profile": "pcie",
        "version": LOCKED,
        "capability": RTX_PRO_6000,
        "quantization": "nvfp4",
        "architecture": V4,
    }
    return Case(**{**known, **changes})


def pair(prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None, **both: Any) -> list[Case]:
    """Prefill and decode that know each other."""
    return with_peers([case("prefill", **both, **(prefill or {})), case("decode", **both, **(decode or {}))])


def box(**changes: Any) -> dict[str, Any]:
    """The reference box as an inventory, with what a user may declare."""
    return {
        "pd_model": {"path": "/srv/models/flash", "quantization": "modelopt_nvfp4", "architecture": V4},
        "pd_compute_capability": RTX_PRO_6000,
        "pd_servers": [
            {"name": "prefill-0", "role": "prefill", "gpus": [0, 1, 2, 3], "numa_node": 0},
            {"name": "decode-0", "role": "decode", "gpus": [4, 5, 6, 7], "numa_node": 1},
        ],
        "pd_router": {"port": 8000},
        **changes,
    }


def resolved(variables: dict[str, Any], version: str | None = LOCKED) -> tuple[dict[str, Any] | None, list[str]]:
    """The plan and the texts of the faults."""
    presets = {"default": {"points": [{"concurrency": 1, "prompts": 1}], "input_len": 1, "output_len": 1}}
    hosts = [HostVars("box1", local=True, home="/root", variables={"pd_root": "/opt/pdlab"})]
    plan, faults = resolve(variables, hosts, presets, None, {"box1": version})
    return plan, [str(fault) for fault in faults]


def planned(variables: dict[str, Any], version: str | None = LOCKED) -> dict[str, Any]:
    """The plan of an inventory without a fault."""
    plan, faults = resolved(variables, version)
    assert plan is not None, faults
    return plan
