# SPDX-License-Identifier: Apache-2.0
"""What a right inventory becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import part_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars

from .conftest import one_host, two_hosts


def test_the_smallest_gpu_inventory_gets_every_default(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(gpu_box)
    prefill, decode = plan["servers"]
    assert plan["device"] == "cuda"
    assert plan["rehearsal"] is False
    assert plan["model"] == {"source": "local", "path": "/srv/models/flash", "served_name": "flash", "revision": None}
    assert (prefill["port"], prefill["bootstrap_port"], prefill["nccl_port"]) == (30000, 8998, 21000)
    assert (decode["port"], decode["bootstrap_port"], decode["nccl_port"]) == (30001, None, 21001)
    assert [server["tp"] for server in plan["servers"]] == [4, 4]
    assert {server["address"] for server in plan["servers"]} == {"127.0.0.1"}
    assert (prefill["unit"], prefill["log"]) == ("pdlab-prefill-0", "/opt/pdlab/logs/prefill-0.log")
    router = plan["router"]
    assert (router["port"], router["prometheus_host"], router["prometheus_port"]) == (8000, "127.0.0.1", 29001)
    assert router["policy"] == "round_robin"
    assert [answer["expected"] for answer in plan["answers"]] == ["391", "Paris", "2, 3, 5, 7, 11"]
    assert plan["oracle"] == {"enabled": True, "lengths": "auto"}


def test_a_hub_model_lies_in_a_folder_of_its_own_for_each_revision_and_on_each_host_below_its_root(
    gpu_box: dict[str, Any], plan_of: Any
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    gpu_box["pd_model"] = {"source": "hub", "repo": "owner/name", "revision": commit, "size_gib": 150}
    gpu_box["pd_model"]["quantization"] = "modelopt_nvfp4"
    gpu_box["pd_servers"][0]["host"], gpu_box["pd_servers"][1]["host"] = "box1", "box2"
    gpu_box["pd_hub_token"] = "hf_secret"
    plan = plan_of(gpu_box, two_hosts(second={"pd_root": "/data/pdlab"}))
    assert [server["model_path"] for server in plan["servers"]] == [
        "/opt/pdlab/models/owner--name--0123456789ab",
        "/data/pdlab/models/owner--name--0123456789ab",
    ]
    assert (plan["model"]["served_name"], plan["model"]["revision"]) == ("name", commit)
    assert (plan["model"]["quantization"], plan["model"]["size_gib"]) == ("modelopt_nvfp4", 150)
    assert "hf_secret" not in json.dumps(plan)


def test_a_plan_is_plain_json(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(gpu_box)
    assert json.loads(json.dumps(plan)) == plan


def test_a_rehearsal_runs_the_canary_below_the_root_and_says_so(cpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(cpu_box)
    assert plan["rehearsal"] is True
    assert plan["model"]["path"] == "/opt/pdlab/models/canary"
    assert plan["model"]["served_name"] == "canary"
    assert all(server["gpus"] == [] and server["tp"] == 1 for server in plan["servers"])
    assert "--base-gpu-id" not in plan["servers"][0]["argv"]


def test_argv_and_environment_come_from_the_same_description(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_server_args"] = {"page-size": 64, "mem_fraction_static": 0.8}
    gpu_box["pd_server_env"] = {"TIMEOUT": 120}
    gpu_box["pd_servers"][1] |= {"args": {"mem-fraction-static": 0.9}, "env": {"TIMEOUT": 60}}
    prefill, decode = plan_of(gpu_box)["servers"]
    assert prefill["argv"][:3] == ["numactl", "--cpunodebind=0", "--membind=0"]
    assert prefill["argv"][prefill["argv"].index("--mem-fraction-static") + 1] == "0.8"
    assert decode["argv"][decode["argv"].index("--mem-fraction-static") + 1] == "0.9"
    assert decode["argv"][decode["argv"].index("--base-gpu-id") + 1] == "4"
    assert decode["args"] == {"page-size": 64, "mem-fraction-static": 0.9}
    assert (prefill["environment"]["TIMEOUT"], decode["environment"]["TIMEOUT"]) == ("120", "60")


def test_a_server_takes_out_a_common_argument_with_null(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_server_args"] = {"attention-backend": "fa3"}
    gpu_box["pd_servers"][1]["args"] = {"attention-backend": None}
    prefill, decode = plan_of(gpu_box)["servers"]
    assert "--attention-backend" in prefill["argv"]
    assert "--attention-backend" not in decode["argv"]


def test_the_reference_is_the_decode_server_without_disaggregation(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_server_args"] = {"page-size": 64}
    gpu_box["pd_servers"][1]["args"] = {
        "disaggregation-decode-retraction-backup": "cpu_tensor",
        "num-reserved-decode-tokens": 64,
    }
    plan = plan_of(gpu_box)
    reference = plan["reference"]
    assert (reference["name"], reference["role"], reference["unit"]) == ("reference", "colocated", "pdlab-reference")
    assert reference["gpus"] == [4, 5, 6, 7]
    assert reference["args"] == {"page-size": 64}
    assert not [item for item in reference["argv"] if "disaggregation" in item]
    others = {server[kind] for server in plan["servers"] for kind in ("port", "nccl_port")}
    assert not others & {reference["port"], reference["nccl_port"]}


def test_all_ports_of_many_servers_on_one_host_differ(cpu_box: dict[str, Any], plan_of: Any) -> None:
    roles = ["prefill"] * 3 + ["decode"] * 3
    cpu_box["pd_servers"] = [{"name": f"s{index}", "role": role} for index, role in enumerate(roles)]
    plan = plan_of(cpu_box)
    parts = [*plan["servers"], plan["reference"]]
    ports = [part[kind] for part in parts for kind in ("port", "nccl_port", "bootstrap_port") if part[kind]]
    ports += [plan["router"]["port"], plan["router"]["prometheus_port"]]
    assert len(ports) == len(set(ports)) == 19
    assert not [part["nccl_port"] for part in parts if 22000 <= part["nccl_port"] <= 29999]


def test_a_new_server_moves_no_port_of_the_others(cpu_box: dict[str, Any], plan_of: Any) -> None:
    before = {server["name"]: server["port"] for server in plan_of(cpu_box)["servers"]}
    cpu_box["pd_servers"] += [{"name": "prefill-1", "role": "prefill"}, {"name": "decode-1", "role": "decode"}]
    after = {server["name"]: server["port"] for server in plan_of(cpu_box)["servers"]}
    assert {name: after[name] for name in before} == before


def test_a_derived_port_makes_way_for_a_given_one(cpu_box: dict[str, Any], plan_of: Any) -> None:
    cpu_box["pd_servers"][1] |= {"port": 30000, "nccl_port": 8000}
    plan = plan_of(cpu_box)
    assert plan["servers"][0]["port"] == 30010
    assert plan["router"]["port"] == 8001


def test_dp_attention_reserves_its_further_ports(cpu_box: dict[str, Any], plan_of: Any, faults_of: Any) -> None:
    cpu_box["pd_server_args"] = {"enable-dp-attention": True}
    prefill, decode = plan_of(cpu_box)["servers"]
    assert abs(prefill["port"] - decode["port"]) >= 7
    cpu_box["pd_servers"][0]["port"] = 30000
    cpu_box["pd_servers"][1]["port"] = 30001
    assert "30234 (port + 233, for DP attention) is taken by prefill-0" in faults_of(cpu_box)["pd_servers[1].port"]


def test_pp_and_dp_leave_the_rest_of_the_gpus_to_tp(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_servers"][0]["args"] = {"pp-size": 2}
    gpu_box["pd_servers"][1]["args"] = {"enable-dp-attention": True, "dp-size": 4}
    assert [server["tp"] for server in plan_of(gpu_box)["servers"]] == [2, 4]


def test_colocated_servers_need_no_router_and_no_reference(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_servers"] = [{"name": "colo", "role": "colocated", "gpus": [0, 1]}]
    del gpu_box["pd_router"]
    plan = plan_of(gpu_box)
    assert plan["router"] is None
    assert plan["reference"] is None
    assert plan["oracle"]["enabled"] is False
    assert plan["servers"][0]["transfer_backend"] is None
    assert part_of(plan, "box1")["gate"] is True


def test_a_fleet_uses_the_addresses_at_which_hosts_reach_each_other(fleet: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(fleet, two_hosts())
    prefill, decode = plan["servers"]
    assert prefill["url"] == "http://192.0.2.11:30000"
    assert decode["environment"]["SGLANG_HOST_IP"] == "192.0.2.12"
    assert plan["router"]["host"] == "box2", "the router stands beside the first decode"
    assert plan["router"]["workers"][0] == {
        "name": "prefill-0",
        "role": "prefill",
        "url": "http://192.0.2.11:30000",
        "bootstrap_port": 8998,
    }
    mine = part_of(plan, "box1")
    assert [server["name"] for server in mine["servers"]] == ["prefill-0"]
    assert mine["router"] is None
    assert mine["gate"] is False
    assert part_of(plan, "box2")["gate"] is True


def test_two_hosts_may_use_the_same_ports_and_gpus(fleet: dict[str, Any], plan_of: Any) -> None:
    fleet["pd_servers"][0] |= {"gpus": [0], "port": 30000}
    fleet["pd_servers"][1] |= {"gpus": [0], "port": 30000}
    assert [server["port"] for server in plan_of(fleet, two_hosts())["servers"]] == [30000, 30000]


def test_a_host_that_runs_nothing_needs_no_address(gpu_box: dict[str, Any], plan_of: Any) -> None:
    hosts = [*one_host(), HostVars("spare", variables={"pd_root": "/opt/pdlab"})]
    for server in gpu_box["pd_servers"]:
        server["host"] = "box1"
    plan = plan_of(gpu_box, hosts)
    assert plan["servers"][0]["address"] == "127.0.0.1"
    assert part_of(plan, "spare") == {
        "servers": [],
        "router": None,
        "gate": False,
        "host": plan["hosts"]["spare"],
        "probes": {"kv": None, "collectives": None},
        "others": [],
        "monitoring": False,
    }


def test_ipv6_addresses_stand_in_brackets_in_urls(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(gpu_box, one_host(pd_address="2001:db8::1"))
    assert plan["servers"][0]["url"] == "http://[2001:db8::1]:30000"
    assert plan["servers"][0]["address"] == "2001:db8::1"


def test_a_router_on_all_addresses_is_reached_at_the_hosts_own(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_router"]["address"] = "0.0.0.0"
    router = plan_of(gpu_box)["router"]
    assert router["argv"][router["argv"].index("--host") + 1] == "0.0.0.0"
    assert router["url"] == "http://127.0.0.1:8000"


@pytest.mark.parametrize("written", ["~/.pdlab", "~/.pdlab/", "/home/user/.pdlab"])
def test_a_home_is_expanded_on_a_local_host(cpu_box: dict[str, Any], plan_of: Any, written: str) -> None:
    plan = plan_of(cpu_box, one_host(pd_root=written))
    assert plan["hosts"]["box1"]["root"] == "/home/user/.pdlab"
    assert plan["servers"][0]["python"] == "/home/user/.pdlab/engine/bin/python"


def test_the_words_true_and_false_count_as_such_for_extra_variables(cpu_box: dict[str, Any], plan_of: Any) -> None:
    cpu_box["pd_rehearsal"] = "true"
    assert plan_of(cpu_box)["rehearsal"] is True


def test_values_with_quotes_percent_dollar_json_and_letters_stay_as_they_are(
    gpu_box: dict[str, Any], plan_of: Any
) -> None:
    odd = 'a \'b\' "c" %d $HOME {"k": [1]} é 漢'
    gpu_box["pd_servers"][0] |= {"env": {"ODD": odd}, "args": {"chat-template": odd, "json": {"k": "é"}}}
    prefill = plan_of(gpu_box)["servers"][0]
    assert prefill["environment"]["ODD"] == odd
    assert odd in prefill["argv"]
    assert '{"k": "é"}' in prefill["argv"]
