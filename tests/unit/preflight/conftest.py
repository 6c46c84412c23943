# SPDX-License-Identifier: Apache-2.0
"""Recorded boxes and plans for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars

BOXES = Path(__file__).resolve().parents[2] / "boxes"
PRESETS = {"default": {"points": [{"concurrency": 1, "prompts": 8}]}}
Verdicts = dict[str, dict[str, Any]]


def recorded(name: str) -> dict[str, Any]:
    """The facts of a recorded box."""
    facts: dict[str, Any] = json.loads((BOXES / f"{name}.json").read_text())
    return facts


@pytest.fixture
def cpu_facts() -> dict[str, Any]:
    return recorded("two-core-cpu")


@pytest.fixture
def gpu_facts() -> dict[str, Any]:
    """The recorded H200, as if it had two of them and the checkpoint."""
    facts = recorded("one-h200")
    first = facts["gpu"]["gpus"][0]
    facts["gpu"]["gpus"].append({**deepcopy(first), "index": 1, "uuid": first["uuid"][:-1] + "1"})
    facts["paths"]["/srv/models/flash"] = {**facts["paths"]["/tmp"], "at": "/srv/models/flash"}
    facts["checkpoint"] = {"path": "/srv/models/flash", "faults": []}
    return facts


def plan_of(variables: dict[str, Any], *names: str) -> dict[str, Any]:
    """A plan for hosts of these names."""
    hosts = [
        HostVars(name, variables={"pd_root": "/opt/pdlab"}, ansible_host=f"192.0.2.{number}")
        for number, name in enumerate(names or ("box1",), start=1)
    ]
    plan, faults = resolve(variables, hosts, PRESETS)
    assert plan is not None, list(map(str, faults))
    return plan


@pytest.fixture
def cpu_plan() -> dict[str, Any]:
    return plan_of(
        {
            "pd_device": "cpu",
            "pd_model": {"source": "canary"},
            "pd_servers": [{"name": "prefill-0", "role": "prefill"}, {"name": "decode-0", "role": "decode"}],
            "pd_router": {},
        }
    )


@pytest.fixture
def gpu_plan() -> dict[str, Any]:
    return plan_of(
        {
            "pd_model": {"path": "/srv/models/flash"},
            "pd_servers": [
                {"name": "prefill-0", "role": "prefill", "gpus": [0], "numa_node": 0},
                {"name": "decode-0", "role": "decode", "gpus": [1], "numa_node": 0},
            ],
            "pd_router": {},
        }
    )


@pytest.fixture
def judge() -> Callable[..., Verdicts]:
    """Verdicts by id; those that are not well only, unless `every`."""

    def verdicts(facts: dict[str, Any], plan: dict[str, Any], every: bool = False, host: str = "box1") -> Verdicts:
        found = preflight_rules.judge(facts, plan, host)
        assert len({verdict["id"] for verdict in found}) == len(found), "one verdict a fault"
        return {verdict["id"]: verdict for verdict in found if every or not verdict["ok"]}

    return verdicts
