# SPDX-License-Identifier: Apache-2.0
"""The files for Prometheus: whom to ask, by which labels, from the plan of every inventory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import scrape_files
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars

from pdlab import monitoring

SERVERS = [{"name": "prefill-0", "role": "prefill"}, {"name": "decode-0", "role": "decode"}]
BASE: dict[str, Any] = {
    "pd_device": "cpu",
    "pd_model": {"source": "canary"},
    "pd_servers": SERVERS,
    "pd_router": {"port": 8000},
}
Resolve = Callable[..., tuple[Any, list[str]]]


def box(name: str, **variables: Any) -> HostVars:
    return HostVars(name, variables={"pd_root": "/opt/pdlab", **variables})


def resolved(*hosts: HostVars, **variables: Any) -> tuple[Any, list[str]]:
    """The plan, or its faults as text."""
    plan, faults = resolve({**BASE, **variables}, hosts or [box("box1")], {"default": {"points": []}})
    return plan, [str(fault) for fault in faults]


def plan_of(*hosts: HostVars, **variables: Any) -> Any:
    points = {"pd_benchmark": {"points": [{"concurrency": 1, "prompts": 1}]}}
    plan, faults = resolved(*hosts, **{**points, **variables})
    assert not faults, faults
    return plan


def faults_of(*hosts: HostVars, **variables: Any) -> list[str]:
    points = {"pd_benchmark": {"points": [{"concurrency": 1, "prompts": 1}]}}
    return [fault for fault in resolved(*hosts, **{**points, **variables})[1] if "pd_monitoring" in fault]


def asked(plan: Any) -> dict[str, dict[str, str]]:
    """Labels by address."""
    return {entry["targets"][0]: entry["labels"] for entry in scrape_files.targets(plan)}


def test_every_server_and_the_router_are_asked_each_with_role_server_host_and_arm() -> None:
    found = asked(plan_of())
    assert found == {
        "127.0.0.1:30000": {"job": "pdlab", "role": "prefill", "server": "prefill-0", "host": "box1", "arm": "pd"},
        "127.0.0.1:30001": {"job": "pdlab", "role": "decode", "server": "decode-0", "host": "box1", "arm": "pd"},
        "127.0.0.1:29001": {"job": "pdlab", "role": "router", "server": "router", "host": "box1", "arm": "pd"},
    }


def test_the_arm_is_the_plans_own_or_what_the_roles_say() -> None:
    colocated = plan_of(pd_servers=[{"name": "c-0", "role": "colocated"}], pd_router=None)
    assert {labels["arm"] for labels in asked(colocated).values()} == {"colocated"}
    assert {labels["arm"] for labels in asked({**plan_of(), "arm": "tp2"}).values()} == {"tp2"}


def test_in_a_fleet_each_is_asked_at_the_address_that_others_reach() -> None:
    servers = [{**SERVERS[0], "host": "box1"}, {**SERVERS[1], "host": "box2"}]
    router = {"port": 8000, "prometheus_host": "::", "host": "box2"}
    hosts = box("box1", pd_address="fd00::1"), box("box2", pd_address="fd00::2")
    plan = plan_of(*hosts, pd_servers=servers, pd_router=router, pd_monitoring={"gpu_exporter_port": 9400})
    assert list(asked(plan)) == [
        "[fd00::1]:30000",
        "[fd00::2]:30001",
        "[fd00::2]:29001",
        "[fd00::1]:9400",
        "[fd00::2]:9400",
    ]
    assert asked(plan)["[fd00::1]:9400"] == {"job": "pdlab-gpu", "host": "box1", "arm": "pd"}
    assert scrape_files.loopback_hosts(plan) == []


def test_what_only_the_host_itself_can_ask_is_named() -> None:
    assert scrape_files.loopback_hosts(plan_of()) == ["box1"]
    only_router = plan_of(box("box1", pd_address="192.0.2.1"))
    assert scrape_files.loopback_hosts(only_router) == ["box1"]
    lines = monitoring.notes(plan_of(), Path("/srv/files"))
    assert any("box1" in line and "loopback" in line for line in lines)


def test_the_files_are_what_prometheus_reads_and_name_each_other() -> None:
    plan = plan_of(pd_monitoring={"interval_s": 2})
    files = monitoring.files(plan)
    config, scrape = yaml.safe_load(files["pdlab-prometheus.yml"]), yaml.safe_load(files["pdlab-scrape.yml"])
    assert config["scrape_configs"] == scrape["scrape_configs"]
    (job,) = scrape["scrape_configs"]
    assert (job["scrape_interval"], job["scrape_timeout"]) == ("2s", "2s")
    assert set(config["rule_files"]) | set(job["file_sd_configs"][0]["files"]) <= set(files)
    assert json.loads(files["pdlab-targets.json"]) == scrape_files.targets(plan)
    assert scrape_files.targets_text([]) == "[]\n"
    assert all(name.startswith("pdlab-") for name in files), "no one's prometheus.yml is overwritten"


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("sglang_num_running_reqs", "sglang:num_running_reqs"),
        ("sglang:num_running_reqs", "sglang:num_running_reqs"),
        ("smg_worker_health", "smg_worker_health"),
        ("up", "up"),
    ],
)
def test_the_engines_names_are_the_same_for_every_version_of_prometheus(asked: str, kept: str) -> None:
    (job,) = yaml.safe_load(scrape_files.scrape_text(5))["scrape_configs"]
    (rule,) = job["metric_relabel_configs"]
    assert (rule["source_labels"], rule["target_label"]) == (["__name__"], "__name__")
    # Prometheus anchors the expression at both ends and writes $1 where re writes \\1.
    match = re.fullmatch(rule["regex"], asked)
    assert (match.expand(rule["replacement"].replace("$", "\\")) if match else asked) == kept


def test_files_are_written_once_and_left_alone_when_they_say_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert set(monitoring.write_files(plan_of(), folder).values()) == {True}
    assert set(monitoring.write_files(plan_of(), folder).values()) == {False}
    changed = monitoring.write_files({**plan_of(), "arm": "other"}, folder)
    assert [path.name for path, new in changed.items() if new] == ["pdlab-targets.json"]


def test_nothing_is_installed_unless_it_is_asked_for() -> None:
    assert plan_of()["monitoring"]["install"] is False
    assert plan_of(pd_monitoring={"gpu_exporter_port": 9400})["monitoring"]["install"] is False


def test_prometheus_stands_beside_the_router_unless_the_inventory_says_otherwise() -> None:
    servers = [{**SERVERS[0], "host": "box1"}, {**SERVERS[1], "host": "box2"}]
    hosts = (
        box("box1", pd_address="192.0.2.1"),
        box("box2", pd_address="192.0.2.2"),
        box("box3", pd_address="192.0.2.3"),
    )
    wanted = {"pd_servers": servers, "pd_monitoring": {"install": True}}
    assert plan_of(*hosts, **wanted)["monitoring"]["host"] == "box2"
    wanted["pd_monitoring"] = {"install": True, "host": "box3"}
    (fault,) = faults_of(*hosts, **wanted)
    assert "box3 does not reach the router's metrics on box2" in fault
    wanted["pd_router"] = {"prometheus_host": "192.0.2.2"}
    assert plan_of(*hosts, **wanted)["monitoring"]["host"] == "box3"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"install": True, "port": 30000}, "30000 is taken by"),
        ({"install": True, "port": 8000}, "8000 is taken by router"),
        ({"install": True, "host": "box9"}, "'box9' is not in the inventory's group pdlab"),
        ({"enabled": True}, "did you mean install?"),
        ({"install": "yes"}, "not true or false"),
        ({"interval_s": 0}, "out of range"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cure(written: dict[str, Any], says: str) -> None:
    servers = [{**SERVERS[0], "port": 30000}, SERVERS[1]]
    faults = faults_of(pd_servers=servers, pd_monitoring=written)
    assert any(says in fault for fault in faults), faults


def test_a_port_that_nobody_uses_since_nothing_is_installed_is_no_fault() -> None:
    assert faults_of(pd_monitoring={"port": 8000}) == []
