# SPDX-License-Identifier: Apache-2.0
"""A server is bound to the node of its GPUs; what the box does not say, or contradicts, is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import pending, place

from .conftest import one_host, two_hosts


def box(*nodes_of_gpus: int | None, nodes: int = 2) -> dict[str, Any]:
    """Facts of a box: at which node each GPU lies."""
    gpus = [{"index": index, "numa_node": node} for index, node in enumerate(nodes_of_gpus)]
    return {"gpu": {"gpus": gpus, "error": None}, "numa": [{"node": node} for node in range(nodes)]}


REFERENCE = box(0, 0, 0, 0, 1, 1, 1, 1)


@pytest.fixture
def unsaid(gpu_box: dict[str, Any]) -> dict[str, Any]:
    for server in gpu_box["pd_servers"]:
        del server["numa_node"]
    return gpu_box


def placed(plan: dict[str, Any], facts: dict[str, Any], host: str = "box1") -> tuple[dict[str, Any], list[str]]:
    faults = Faults()
    return place(plan, {host: facts}, faults), [str(fault) for fault in faults]


def test_a_server_without_a_node_gets_that_of_its_gpus_in_all_that_follows_from_it(
    unsaid: dict[str, Any], plan_of: Any
) -> None:
    open_plan = plan_of(unsaid)
    assert pending(open_plan, "box1")
    assert [server["argv"][0] for server in open_plan["servers"]] == ["/opt/pdlab/engine/bin/python"] * 2
    plan, faults = placed(open_plan, REFERENCE)
    assert not faults
    prefill, decode = plan["servers"]
    assert (prefill["numa_node"], decode["numa_node"], plan["reference"]["numa_node"]) == (0, 1, 1)
    assert decode["argv"][:3] == ["numactl", "--cpunodebind=1", "--membind=1"]
    assert decode["environment"]["SGLANG_CRASH_ON_NUMA_BIND_FAILURE"] == "1"
    assert decode["numa_reason"] == "GPU 4, 5, 6, 7 lie there"
    assert not pending(plan, "box1")


def test_what_is_derived_is_what_would_have_been_written(gpu_box: dict[str, Any], plan_of: Any) -> None:
    written = plan_of(gpu_box)
    for server in gpu_box["pd_servers"]:
        del server["numa_node"]
    derived, _faults = placed(plan_of(gpu_box), REFERENCE)
    for mine, other in zip(derived["servers"], written["servers"], strict=True):
        assert {**mine, "numa_reason": ""} == {**other, "numa_reason": ""}


def test_a_box_with_one_node_binds_nothing_whatever_its_firmware_says(unsaid: dict[str, Any], plan_of: Any) -> None:
    for node in (0, -1, None):
        plan, faults = placed(plan_of(unsaid), box(*[node] * 8, nodes=1))
        assert not faults
        assert [server["numa_node"] for server in plan["servers"]] == [None, None]
        assert plan["servers"][0]["numa_reason"] == "not bound: the box has one NUMA node"


def test_gpus_across_nodes_are_refused_unless_the_inventory_says_unbound(unsaid: dict[str, Any], plan_of: Any) -> None:
    facts = box(0, 0, 1, 1, 0, 0, 1, 1)
    plan, faults = placed(plan_of(unsaid), facts)
    assert faults == [
        "pd_servers[0].gpus: the GPUs lie across NUMA nodes: 0, 1 at node 0, 2, 3 at node 1; "
        "choose GPUs of one node, or write `numa_node: unbound` to say that it is meant",
        "pd_servers[1].gpus: the GPUs lie across NUMA nodes: 4, 5 at node 0, 6, 7 at node 1; "
        "choose GPUs of one node, or write `numa_node: unbound` to say that it is meant",
    ]
    assert pending(plan, "box1")
    for server in unsaid["pd_servers"]:
        server["numa_node"] = "unbound"
    plan, faults = placed(plan_of(unsaid), facts)
    assert not faults
    assert [server["numa_node"] for server in plan["servers"]] == [None, None]
    assert "numactl" not in plan["servers"][0]["argv"]


def test_a_node_that_is_written_must_be_where_the_gpus_lie(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(gpu_box)
    assert placed(plan, REFERENCE) == (plan, [])
    _plan, faults = placed(plan, box(1, 1, 1, 1, 1, 1, 1, 1))
    assert faults == ["pd_servers[0].numa_node: is 0, and GPU 0, 1, 2, 3 of box1 lie at node 1; remove it, or write 1"]


def test_a_firmware_that_keeps_silent_is_a_fault_and_a_written_node_is_the_cure(
    unsaid: dict[str, Any], plan_of: Any
) -> None:
    facts = box(0, 0, -1, None, 1, 1, 1, 1)
    _plan, faults = placed(plan_of(unsaid), facts)
    assert len(faults) == 1
    assert "does not say at which NUMA node GPU 2, 3 lie" in faults[0]
    unsaid["pd_servers"][0]["numa_node"] = 0
    assert placed(plan_of(unsaid), facts)[1] == []


def test_gpus_that_are_not_there_and_a_driver_that_keeps_silent_are_faults(
    unsaid: dict[str, Any], plan_of: Any
) -> None:
    _plan, faults = placed(plan_of(unsaid), box(0, 0, 0, 0, 1, 1))
    assert faults == ["pd_servers[1].gpus: GPU 6, 7 is not on box1, which has 0, 1, 2, 3, 4, 5; "
                      "name GPUs that nvidia-smi lists"]  # fmt: skip
    silent = {"gpu": {"gpus": None, "error": "nvidia-smi is not installed"}, "numa": [{"node": 0}, {"node": 1}]}
    _plan, faults = placed(plan_of(unsaid), silent)
    assert len(faults) == 2
    assert "nvidia-smi is not installed" in faults[0]


def test_only_hosts_that_were_asked_are_placed(fleet: dict[str, Any], plan_of: Any) -> None:
    for server in fleet["pd_servers"]:
        del server["numa_node"]
    plan, faults = placed(plan_of(fleet, two_hosts()), REFERENCE, "box2")
    assert not faults
    assert [server["numa_node"] for server in plan["servers"]] == [None, 1]
    assert pending(plan, "box1")
    assert not pending(plan, "box2")


def test_a_rehearsal_without_gpus_asks_nobody(cpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(cpu_box, one_host())
    assert not pending(plan, "box1")
    assert placed(plan, REFERENCE) == (plan, [])
