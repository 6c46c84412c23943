# SPDX-License-Identifier: Apache-2.0
"""The variable pd_host: what it may say, and what a wrong one is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.variable import HOST
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules import RULES

from .conftest import one_host, two_hosts


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"packages": {}},
        {"packages": {"gcc": "gcc", "lspci": "pciutils"}, "swap": False, "gpu_persistence": True},
        {"limits": {"memlock_gib": "unlimited", "nofile": 1048576, "user": "@gpu"}, "shm_gib": 64},
        {"hugepages": [{"node": 0, "count": 512}, {"node": 1, "count": 4, "size_mib": 1024}]},
        {"sysctl": {"vm.swappiness": 0, "net.ipv4.ip_local_reserved_ports": "8998,30000-30010"}},
        {"numa_balancing": None, "transparent_hugepages": "never", "cpu_governor": "performance"},
    ],
)
def test_what_makes_sense_is_no_fault(cpu_box: dict[str, Any], plan_of: Any, written: dict[str, Any]) -> None:
    assert plan_of(cpu_box, one_host(pd_host=written))


@pytest.mark.parametrize(
    ("written", "key", "words"),
    [
        ([], "", "not a mapping"),
        ({"swappiness": 1}, ".swappiness", "is an unknown key"),
        ({"thp": "never"}, ".thp", "did you mean transparent_hugepages?"),
        ({"acs": False}, ".acs", "pdlab does not touch ACS"),
        ({"swap": True}, ".swap", "write false, or leave it out"),
        ({"numa_balancing": 0}, ".numa_balancing", "write true or false"),
        ({"transparent_hugepages": "off"}, ".transparent_hugepages", "always, madvise, never"),
        ({"shm_gib": "64"}, ".shm_gib", "without quotes"),
        ({"packages": ["gcc"]}, ".packages", "not a mapping"),
        ({"packages": {"/usr/bin/gcc": "gcc"}}, ".packages./usr/bin/gcc", "no command's name"),
        ({"packages": {"gcc": "--force gcc"}}, ".packages.gcc", "no Debian package"),
        ({"limits": {"memlock_gib": "8G"}}, ".limits.memlock_gib", "write unlimited"),
        ({"limits": {"memlock_gib": 0}}, ".limits.memlock_gib", "out of range"),
        ({"hugepages": [{"node": 0}]}, ".hugepages[0].count", "is missing"),
        ({"hugepages": [{"node": 0, "count": 1, "size_mib": 4}]}, ".hugepages[0].size_mib", "write one of 2, 1024"),
        ({"sysctl": {"vm.swapiness": 1}}, ".sysctl.vm.swapiness", "did you mean vm.swappiness?"),
        ({"sysctl": {"vm.swappiness": 300}}, ".sysctl.vm.swappiness", "a whole number from 0 to 200"),
        ({"sysctl": {"vm.swappiness": True}}, ".sysctl.vm.swappiness", "a whole number from 0 to 200"),
        ({"sysctl": {"kernel.numa_balancing": 0}}, ".sysctl.kernel.numa_balancing", "numa_balancing: false"),
        ({"sysctl": {"net.ipv4.ip_local_reserved_ports": "9-"}}, ".sysctl.net.ipv4.ip_local_reserved_ports", "ports"),
    ],
)
def test_what_makes_none_is_a_fault_with_its_cure(
    cpu_box: dict[str, Any], faults_of: Any, written: Any, key: str, words: str
) -> None:
    found = faults_of(cpu_box, one_host(pd_host=written))
    assert list(found) == [f"pd_host{key}"]
    assert words in found[f"pd_host{key}"]


def test_a_cure_that_names_a_setting_names_one_that_can_be_made() -> None:
    cures = [rule.cure for rule in RULES if isinstance(rule.cure, str)]
    named = [found for cure in cures for found in re.findall(r"pd_host: (\{.*?\}+)", cure)]
    assert len(named) >= 7
    for written in named:
        faults = Faults()
        assert HOST(faults, "pd_host", yaml.safe_load(written))
        assert not list(faults), written


def test_a_host_may_have_settings_of_its_own(fleet: dict[str, Any], plan_of: Any) -> None:
    assert plan_of(fleet, two_hosts({"pd_host": {"swap": False}}, {"pd_host": {"shm_gib": 8}}))


def test_a_server_cannot_have_the_name_of_the_settings_unit(cpu_box: dict[str, Any], faults_of: Any) -> None:
    cpu_box["pd_servers"][0]["name"] = "host"
    assert "'host' is the name of a part of pdlab" in faults_of(cpu_box)["pd_servers[0].name"]
