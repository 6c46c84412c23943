# SPDX-License-Identifier: Apache-2.0
"""The table of the environment: well formed, made of names that exist, and set only where a row says so."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import collectives
from ansible_collections.pdlab.pdlab.plugins.module_utils.collectives import KNOBS, Knob
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rule_table import RULES

from .conftest import box, case, planned, resolved

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "environment-sglang-0.5.23.json.gz").read_bytes())
)
USES = (
    collectives.ALWAYS,
    collectives.PROFILE,
    collectives.OFFERED,
    collectives.REMEDY,
    collectives.LEFT_ALONE,
)


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_row_says_what_when_why_and_from_where(knob: Knob) -> None:
    assert knob.use in USES
    assert knob.when and knob.why.endswith(".") and knob.source
    assert set(knob.profiles) <= set(collectives.PROFILES)
    assert (knob.value is None) == (knob.use == collectives.LEFT_ALONE or knob.read_by == collectives.FLAG)
    assert isinstance(knob.value, (str, type(None))) or knob.shown, "a computed value needs words for it"


def test_no_name_has_two_rows() -> None:
    names = [knob.name for knob in KNOBS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "knob", [knob for knob in KNOBS if knob.read_by != collectives.FLAG], ids=lambda knob: knob.name
)
def test_a_name_is_one_that_the_installed_library_reads(knob: Knob) -> None:
    # What CUDA reads is known from sglang, which sets or reads it, too.
    library = "sglang" if knob.read_by == "cuda" else knob.read_by
    assert knob.name in RECORDED[library]["names"]


def test_the_recorded_names_are_those_of_the_engine_that_is_locked() -> None:
    lock = (Path(__file__).parents[3] / "roles/engine/files/locks/engine.in").read_text()
    assert f"sglang=={RECORDED['sglang']['version']}" in lock


def test_a_rule_that_a_row_points_to_exists() -> None:
    known = {rule.id for rule in RULES}
    for knob in KNOBS:
        for text in (knob.why, knob.source):
            words = text.replace(",", " ").replace(".", " ").split()
            named = [word for before, word in itertools.pairwise(words) if before.lower() == "rule"]
            assert set(named) <= known, knob.name


@pytest.mark.parametrize(
    ("given", "device", "profile"),
    [(None, "cuda", "pcie"), (None, "cpu", "off"), ("nvlink", "cuda", "nvlink"), ("off", "cuda", "off")],
)
def test_without_a_profile_a_gpu_box_gets_pcie_and_a_cpu_nothing(given: str | None, device: str, profile: str) -> None:
    assert collectives.profile_of(given, device) == profile


@pytest.mark.parametrize(
    ("role", "changes", "names"),
    [
        ("prefill", {}, {"SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS", "NCCL_DEBUG"}),
        ("decode", {}, {"NCCL_DEBUG"}),
        ("colocated", {}, {"NCCL_DEBUG"}),
        ("prefill", {"tp": 1}, set()),
        ("prefill", {"profile": "nvlink"}, {"SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS", "NCCL_DEBUG"}),
        ("prefill", {"profile": "off"}, set()),
        ("decode", {"env": {"NCCL_DEBUG": "INFO"}}, set()),
    ],
)
def test_a_profile_sets_what_its_rows_say_and_never_what_the_inventory_sets(
    role: str, changes: dict[str, Any], names: set[str]
) -> None:
    assert set(collectives.settings(case(role, **changes))) == names


def test_nothing_is_set_that_steers_p2p_or_a_transport() -> None:
    """Nothing is forced without evidence: what changes a path is offered, or left alone."""
    forced = {knob.name for knob in KNOBS if knob.use in (collectives.ALWAYS, collectives.PROFILE)}
    assert not [name for name in forced if name.startswith(("NCCL_P2P", "NCCL_ALGO", "NCCL_PROTO", "UCX_"))]
    assert collectives.PCIE_ALLREDUCE not in forced


@pytest.mark.parametrize(
    ("role", "changes", "offered"),
    [
        ("decode", {}, True),
        ("colocated", {}, True),
        ("prefill", {}, False),
        ("decode", {"tp": 3}, False),
        ("decode", {"profile": "nvlink"}, False),
        ("decode", {"version": "0.5.17"}, False),
        ("decode", {"args": {"enable-dp-attention": True}}, False),
        ("decode", {"env": {collectives.PCIE_ALLREDUCE: 1}}, False),
    ],
)
def test_the_pcie_all_reduce_is_offered_where_it_has_kernels_and_is_not_set(
    role: str, changes: dict[str, Any], offered: bool
) -> None:
    names = [offer["name"] for offer in collectives.offers(case(role, **changes))]
    assert (collectives.PCIE_ALLREDUCE in names) == offered


def test_nixl_parameters_are_texts_as_the_engine_asks_for() -> None:
    (value,) = [value for name, value in collectives.settings(case("prefill")).items() if "NIXL" in name]
    assert all(isinstance(entry, str) for entry in json.loads(value).values())


def test_the_plan_shows_the_environment_that_a_profile_makes_and_pd_server_gets_it() -> None:
    plan = planned(box())
    prefill, decode = plan["servers"]
    assert plan["collectives"]["profile"] == "pcie" and plan["collectives"]["declared"] is False
    for server in (prefill, decode):
        assert server["environment"]["NCCL_DEBUG"] == server["env"]["NCCL_DEBUG"] == "WARN"
        assert server["environment"]["SGLANG_HOST_IP"] == "127.0.0.1"
        assert server["environment"]["SGLANG_CRASH_ON_NUMA_BIND_FAILURE"] == "1"
        assert server["environment"]["SPT_NOENV"] == "1"
    assert json.loads(prefill["environment"]["SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS"]) == {"num_threads": "2"}
    assert "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS" not in decode["environment"]
    assert "NCCL_DEBUG" not in plan["router"]["environment"]


@pytest.mark.parametrize("where", ["pd_server_env", "env"])
def test_what_the_inventory_sets_wins_over_the_profile(where: str) -> None:
    inventory = box()
    if where == "env":
        inventory["pd_servers"][1]["env"] = {"NCCL_DEBUG": "INFO"}
    else:
        inventory[where] = {"NCCL_DEBUG": "INFO"}
    plan = planned(inventory)
    assert plan["servers"][1]["environment"]["NCCL_DEBUG"] == "INFO"
    assert plan["servers"][0]["environment"]["NCCL_DEBUG"] == ("WARN" if where == "env" else "INFO")


def test_off_sets_nothing_and_may_be_written_as_yaml_reads_it() -> None:
    for value in ("off", False):
        plan = planned(box(pd_collectives=value))
        assert plan["collectives"] == {"profile": "off", "declared": True, "offers": []}
        assert "NCCL_DEBUG" not in plan["servers"][0]["environment"]


def test_a_profile_that_does_not_exist_is_a_fault_that_names_those_that_do() -> None:
    _plan, faults = resolved(box(pd_collectives="infiniband"))
    assert faults == ["pd_collectives: 'infiniband' is unknown; write one of pcie, nvlink, off"]


def test_the_record_says_of_each_variable_where_it_comes_from() -> None:
    server = case("prefill", env={"NCCL_DEBUG": "WARN", "MINE": 1, "UCX_NET_DEVICES": "eth0"})
    lines = {line["name"]: line for line in collectives.explained(server)}
    origins = {name: line["from"] for name, line in lines.items()}
    assert origins == {
        "CUDA_DEVICE_ORDER": "always",
        "HF_HUB_OFFLINE": "always",
        "MINE": "inventory",
        "NCCL_DEBUG": "profile",
        "SGLANG_CRASH_ON_NUMA_BIND_FAILURE": "always",
        "SGLANG_HOST_IP": "always",
        "SGLANG_TIMEOUT_KEEP_ALIVE": "always",
        "SPT_NOENV": "always",
        "UCX_NET_DEVICES": "inventory",
    }
    assert lines["NCCL_DEBUG"]["why"] and lines["NCCL_DEBUG"]["source"]
