# SPDX-License-Identifier: Apache-2.0
"""Arms: what each runs, which is picked, and what would make a comparison unfair."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import part_of, resolve

from pdlab.topology import Plan

from .conftest import PRESETS, one_host, two_hosts

TP8 = [{"name": "tp8", "role": "colocated", "gpus": list(range(8)), "numa_node": "unbound"}]
DP2 = [
    {"name": "dp-0", "role": "colocated", "gpus": [0, 1, 2, 3], "numa_node": 0},
    {"name": "dp-1", "role": "colocated", "gpus": [4, 5, 6, 7], "numa_node": 1},
]


@pytest.fixture
def arms_box(gpu_box: dict[str, Any]) -> dict[str, Any]:
    return {
        **gpu_box,
        "pd_arms": {"pd": {}, "tp8": {"pd_servers": deepcopy(TP8)}, "dp2": {"pd_servers": deepcopy(DP2)}},
    }


def test_without_an_arms_name_the_inventory_is_as_declared_and_says_which_arm_that_is(
    arms_box: dict[str, Any], gpu_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    plan, plain = plan_of(arms_box), plan_of(gpu_box)
    assert plan["arm"] == "pd"
    assert (plain["arm"], plain["arms"]) == (None, [])
    assert {**plan, "arm": None, "arms": []} == plain


@pytest.mark.parametrize(
    ("arm", "names"), [("pd", ["prefill-0", "decode-0"]), ("tp8", ["tp8"]), ("dp2", ["dp-0", "dp-1"])]
)
def test_pd_arm_picks_one_and_the_router_stands_in_front_of_it(
    arm: str, names: list[str], arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    plan = plan_of({**arms_box, "pd_arm": arm})
    assert plan["arm"] == arm
    assert [server["name"] for server in plan["servers"]] == names
    assert [worker["name"] for worker in plan["router"]["workers"]] == names
    assert plan["oracle"]["enabled"] is (arm == "pd")
    Plan.model_validate(plan)


def test_a_plan_says_what_every_arm_runs(arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]) -> None:
    arms = plan_of({**arms_box, "pd_arm": "tp8"})["arms"]
    assert [arm["name"] for arm in arms] == ["pd", "tp8", "dp2"]
    ports = {"port": 30000, "nccl_port": 21000, "bootstrap_port": None}
    assert arms[1]["servers"] == [{"name": "tp8", "role": "colocated", "host": "box1", "gpus": list(range(8)), **ports}]
    assert len({arm["fingerprint"] for arm in arms}) == 3
    assert arms == plan_of(arms_box)["arms"]


def test_a_fingerprint_changes_with_a_flag_and_not_with_the_sweep(
    arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    def prints(**change: Any) -> list[str]:
        return [arm["fingerprint"] for arm in plan_of({**arms_box, **change})["arms"]]

    assert prints(pd_benchmark={"sweep": "campaign"}) == prints()
    assert all(a != b for a, b in zip(prints(pd_server_args={"page-size": 16}), prints(), strict=True))


def test_a_host_knows_the_services_of_other_arms_and_never_its_own_arms(
    arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    assert part_of(plan_of(arms_box), "box1")["others"] == ["tp8", "dp-0", "dp-1"]
    assert part_of(plan_of({**arms_box, "pd_arm": "dp2"}), "box1")["others"] == ["prefill-0", "decode-0", "tp8"]


def test_an_arm_without_a_router_has_the_others_router_taken_away(
    arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    arms_box["pd_arms"]["tp8"]["pd_router"] = None
    plan = plan_of({**arms_box, "pd_arm": "tp8"})
    assert plan["router"] is None
    assert part_of(plan, "box1")["others"] == ["router", "prefill-0", "decode-0", "dp-0", "dp-1"]


def test_arms_of_a_fleet_are_cleared_host_by_host(
    fleet: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    servers = [{**deepcopy(DP2[0]), "host": "box1"}, {**deepcopy(DP2[1]), "host": "box2"}]
    fleet["pd_arms"] = {"pd": {}, "dp2": {"pd_servers": servers}}
    plan = plan_of(fleet, two_hosts())
    assert [part_of(plan, host)["others"] for host in ("box1", "box2")] == [["dp-0"], ["dp-1"]]


def test_only_the_arm_that_moves_kv_cache_tries_whether_it_moves(
    arms_box: dict[str, Any], gpu_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    def tried(variables: dict[str, Any]) -> bool:
        return part_of(plan_of(variables), "box1")["probes"]["kv"] is not None

    assert tried({**arms_box, "pd_arm": "pd"}) and not tried({**arms_box, "pd_arm": "tp8"})
    assert tried({**gpu_box, "pd_servers": deepcopy(TP8)}), "an inventory without arms tries it as ever"


# --- faults ------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no mapping": ({"pd_arms": ["pd"]}, {"pd_arms": "is a list, not a mapping"}),
    "empty": ({"pd_arms": {}}, {"pd_arms": "is empty"}),
    "a name that no folder can have": ({"pd_arms": {"pd": {}, "TP 8": {}}}, {"pd_arms.TP 8": "cannot name an arm"}),
    "not a mapping": ({"pd_arms": {"pd": 5}}, {"pd_arms.pd": "is the number 5, not a mapping"}),
    "a misspelt key": ({"pd_arms": {"pd": {"difers": []}}}, {"pd_arms.pd.difers": "did you mean differs?"}),
    "another model": (
        {"pd_arms": {"pd": {}, "x": {"pd_model": {"path": "/m"}}}},
        {"pd_arms.x.pd_model": "is the same for all arms"},
    ),
    "another sweep": (
        {"pd_arms": {"pd": {}, "x": {"pd_benchmark": {"sweep": "campaign"}}}},
        {"pd_arms.x.pd_benchmark": "is the same for all arms"},
    ),
    "an arm that is not there": ({"pd_arms": {"pd": {}}, "pd_arm": "dp"}, {"pd_arm": "there is no arm 'dp'"}),
    "an arm and no arms": ({"pd_arm": "pd"}, {"pd_arm": "the inventory has no pd_arms"}),
    "other GPUs": (
        {
            "pd_arm": "pd",
            "pd_arms": {"pd": {}, "tp4": {"pd_servers": [{"name": "tp4", "role": "colocated", "gpus": [0, 1, 2, 3]}]}},
        },
        {"pd_arms.tp4": "uses GPU 0, 1, 2, 3 of box1, and pd uses GPU 0, 1, 2, 3, 4, 5, 6, 7 of box1"},
    ),
    "another cache": (
        {"pd_arm": "pd", "pd_arms": {"pd": {}, "tp8": {"pd_servers": TP8, "pd_server_args": {"page-size": 64}}}},
        {"pd_arms.tp8": "page-size is 64 and not set in pd"},
    ),
    "another environment": (
        {"pd_arm": "pd", "pd_arms": {"pd": {}, "tp8": {"pd_servers": [{**TP8[0], "env": {"NCCL_ALGO": "Ring"}}]}}},
        {"pd_arms.tp8": 'NCCL_ALGO is "Ring" and not set in pd'},
    ),
    "one name on two sets of GPUs": (
        {"pd_arms": {"pd": {}, "x": {"pd_servers": [{**TP8[0], "name": "decode-0"}]}}},
        {"pd_arms.x.pd_servers": "decode-0 has GPU 0, 1, 2, 3, 4, 5, 6, 7 here and 4, 5, 6, 7 in pd"},
    ),
}


@pytest.mark.parametrize("case", ["other GPUs", "another cache", "another environment"])
def test_a_plain_deployment_holds_no_arms_against_each_other(
    case: str, gpu_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    change, _expected = WRONG[case]
    assert plan_of({**gpu_box, **deepcopy(change), "pd_arm": None})["arm"] == "pd"


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_arm_is_one_fault_that_says_where(
    case: str, gpu_box: dict[str, Any], faults_of: Callable[..., dict[str, str]]
) -> None:
    change, expected = WRONG[case]
    found = faults_of({**gpu_box, **deepcopy(change)})
    assert set(found) == set(expected)
    for key, words in expected.items():
        assert words in found[key]


@pytest.mark.parametrize("setting", ["page-size", "cuda-graph-max-bs", "attention-backend", "disable-radix-cache"])
def test_what_differs_on_purpose_is_said_by_either_arm(
    setting: str, arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    arms_box["pd_arms"]["tp8"]["pd_server_args"] = {setting: 64}
    for declares in ("pd", "tp8"):
        declared = deepcopy(arms_box)
        declared["pd_arms"][declares]["differs"] = [setting]
        arms = {arm["name"]: arm for arm in plan_of(declared)["arms"]}
        assert arms[declares]["differs"] == [setting]


def test_flags_of_the_topology_itself_may_differ(
    arms_box: dict[str, Any], plan_of: Callable[..., dict[str, Any]]
) -> None:
    arms_box["pd_arms"]["tp8"]["pd_servers"][0]["args"] = {"load-balance-method": "round_robin"}
    arms_box["pd_servers"][1]["args"] = {"disaggregation-decode-retraction-backup": "cpu_tensor"}
    assert len(plan_of(arms_box)["arms"]) == 3


def test_faults_of_all_arms_come_at_once_each_at_its_own_line(arms_box: dict[str, Any]) -> None:
    arms_box["pd_arms"]["tp8"]["pd_servers"][0]["rol"] = "x"
    arms_box["pd_arms"]["dp2"]["pd_servers"][1]["gpus"] = [3, 4]
    arms_box["pd_ansers"] = 1
    origins = {
        "pd_arms": "f.yml:1",
        "pd_arms.tp8.pd_servers[0].rol": "f.yml:7",
        "pd_arms.dp2.pd_servers[1].gpus": "f.yml:9",
    }
    plan, faults = resolve(arms_box, one_host(), PRESETS, origins)
    assert plan is None
    assert [(fault.key, fault.origin) for fault in faults] == [
        ("pd_ansers", None),
        ("pd_arms.tp8.pd_servers[0].rol", "f.yml:7"),
        ("pd_arms.dp2.pd_servers[1].gpus", "f.yml:9"),
    ]


def test_a_fault_of_the_inventory_is_said_once_and_not_for_every_arm(
    arms_box: dict[str, Any], faults_of: Callable[..., dict[str, str]]
) -> None:
    arms_box["pd_model"]["quant"] = "x"
    assert list(faults_of(arms_box)) == ["pd_model.quant"]


def test_a_fault_that_only_an_arm_makes_of_a_common_variable_names_the_arm(
    arms_box: dict[str, Any], faults_of: Callable[..., dict[str, str]]
) -> None:
    arms_box["pd_oracle"] = {"enabled": True}
    assert set(faults_of(arms_box)) == {"pd_oracle.enabled in arm tp8", "pd_oracle.enabled in arm dp2"}
