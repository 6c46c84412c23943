# SPDX-License-Identifier: Apache-2.0
"""Recorded boxes and plans for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import PER_HOST

CHECKOUT = Path(__file__).resolve().parents[3]
BOXES = CHECKOUT / "tests" / "boxes"
WORKLOADS = yaml.safe_load((CHECKOUT / "roles" / "benchmark" / "vars" / "workloads.yml").read_text())[
    "benchmark_workloads"
]
PRESETS = {"default": {"points": [{"concurrency": 1, "prompts": 8}]}}
Verdicts = dict[str, dict[str, Any]]


@pytest.fixture
def cpu_facts(cpu_plan: dict[str, Any]) -> dict[str, Any]:
    """The recorded virtual machine, as preflight of a rehearsal looks at it."""
    return read_facts(Recording(BOXES / "vm"), preflight_rules.facts_options(cpu_plan, "box1"))


@pytest.fixture
def reference_facts(reference_plan: dict[str, Any]) -> dict[str, Any]:
    """The reference box, built from documentation, as preflight of inventory/gpu looks at it."""
    facts = read_facts(Recording(BOXES / "rtx-pro-6000-x8"), preflight_rules.facts_options(reference_plan, "gpubox"))
    # A recording holds no models.
    facts["checkpoint"] = {"path": reference_plan["model"]["path"], "faults": []}
    # What the probes would say of such links; no such box has been tried.
    groups = [{"ranks": ranks, "latency_us": 30.0, "bus_gib_s": 40.0} for ranks in (2, 3, 4, 8)]
    kv = {"memory": "VRAM", "transport": "zero-copy cuda_ipc/cuda", "gib_s": 48.0, "copy_gib_s": 51.0}
    facts["probes"] = {"kv": {"ok": True, **kv}, "collectives": {"ok": True, "groups": groups}}
    return facts


@pytest.fixture
def reference_plan() -> dict[str, Any]:
    return shipped_plan("gpu")


def shipped_plan(name: str) -> dict[str, Any]:
    """The plan of an inventory that pdlab ships."""
    given = yaml.safe_load((CHECKOUT / "inventory" / name / "group_vars" / "pdlab.yml").read_text())
    own = {key: value for key, value in given.items() if key in PER_HOST}
    shared = {key: value for key, value in given.items() if key not in PER_HOST}
    plan, faults = resolve(shared, [HostVars("gpubox", ansible_host="192.0.2.11", variables=own)], WORKLOADS)
    assert plan is not None, list(map(str, faults))
    return plan


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
def fleet_plan() -> dict[str, Any]:
    """Prefill on box1, decode and the router on box2."""
    servers = [{"name": "prefill-0", "role": "prefill", "host": "box1"}]
    servers += [{"name": "decode-0", "role": "decode", "host": "box2"}]
    variables = {"pd_device": "cpu", "pd_model": {"source": "canary"}, "pd_servers": servers, "pd_router": {}}
    return plan_of(variables, "box1", "box2")


@pytest.fixture
def judge() -> Callable[..., Verdicts]:
    """Verdicts by id; those that are not well only, unless `every`. The host is the plan's first."""

    def verdicts(facts: dict[str, Any], plan: dict[str, Any], every: bool = False, host: str | None = None) -> Verdicts:
        found = preflight_rules.judge(facts, plan, host or next(iter(plan["hosts"])))
        assert len({verdict["id"] for verdict in found}) == len(found), "one verdict a fault"
        return {verdict["id"]: verdict for verdict in found if every or not verdict["ok"]}

    return verdicts
