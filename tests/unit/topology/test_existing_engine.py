# SPDX-License-Identifier: Apache-2.0
"""An engine that is there already, as the plan and the faults see it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_versions import HEALTH_PATH, trait
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve

from .conftest import PRESETS, one_host

EXISTING = {"python": "/usr/bin/python3", "pythonpath": ["/srv/site", "/srv/more"]}


def plan_of(variables: dict[str, Any], **host: Any) -> dict[str, Any]:
    plan, faults = resolve(variables, one_host(**host), PRESETS)
    assert plan, list(map(str, faults))
    return plan


def faults_of(variables: dict[str, Any], **host: Any) -> dict[str, str]:
    _plan, faults = resolve(variables, one_host(**host), PRESETS)
    return {fault.key: str(fault) for fault in faults}


def test_every_part_runs_on_it_and_finds_its_folders(gpu_box: dict[str, Any]) -> None:
    plan = plan_of(gpu_box, pd_engine={"existing": EXISTING})
    host = plan["hosts"]["box1"]
    assert (host["engine_python"], host["engine_existing"]) == ("/usr/bin/python3", True)
    assert host["engine_pythonpath"] == ["/srv/site", "/srv/more"]
    for part in [*plan["servers"], plan["router"], plan["reference"]]:
        assert "/usr/bin/python3" in part["argv"]
        assert part["environment"]["PYTHONPATH"] == "/srv/site:/srv/more"


def test_what_it_needs_to_be_imported_reaches_every_part_and_a_servers_own_value_wins(gpu_box: dict[str, Any]) -> None:
    existing = {**EXISTING, "env": {"SGLANG_IS_FLASHINFER_AVAILABLE": "false"}}
    gpu_box["pd_servers"][1]["env"] = {"SGLANG_IS_FLASHINFER_AVAILABLE": "true"}
    plan = plan_of(gpu_box, pd_engine={"existing": existing})
    assert plan["hosts"]["box1"]["engine_env"] == {"SGLANG_IS_FLASHINFER_AVAILABLE": "false"}
    found = [part["environment"]["SGLANG_IS_FLASHINFER_AVAILABLE"] for part in [*plan["servers"], plan["router"]]]
    assert found == ["false", "true", "false"]


def test_its_environment_may_not_hide_its_folders(gpu_box: dict[str, Any]) -> None:
    found = faults_of(gpu_box, pd_engine={"existing": {**EXISTING, "env": {"PYTHONPATH": "/mine"}}})
    assert "would hide" in found["pd_engine.existing.env.PYTHONPATH"]


def test_without_one_no_part_has_a_pythonpath(gpu_box: dict[str, Any]) -> None:
    plan = plan_of(gpu_box)
    assert plan["hosts"]["box1"]["engine_existing"] is False
    assert all("PYTHONPATH" not in part["environment"] for part in [*plan["servers"], plan["router"]])


def test_the_rehearsal_distribution_comes_last_and_lies_below_the_root(cpu_box: dict[str, Any]) -> None:
    plan = plan_of(cpu_box, pd_engine={"existing": EXISTING})
    folders = plan["servers"][0]["environment"]["PYTHONPATH"].split(":")
    assert folders == ["/srv/site", "/srv/more", "/opt/pdlab/engine/extras"]


def test_what_would_build_or_change_it_and_what_would_hide_it_is_refused(gpu_box: dict[str, Any]) -> None:
    engine = {"existing": EXISTING, "lock": "cuda13", "python": "/x", "overlay": "/y", "wheelhouse": "/z"}
    found = faults_of({**gpu_box, "pd_server_env": {"PYTHONPATH": "/mine"}}, pd_engine=engine)
    assert {"pd_engine.lock", "pd_engine.python", "pd_engine.overlay"} <= set(found)
    assert not any("wheelhouse" in key for key in found)
    assert "would hide what pd_engine.existing.pythonpath gives" in found["pd_servers[0].env.PYTHONPATH"]


@pytest.mark.parametrize(
    ("existing", "key", "said"),
    [
        ({"pythonpath": []}, "pd_engine.existing.python", "is missing"),
        ({"python": "python3"}, "pd_engine.existing.python", "is not an absolute path"),
        ({"python": "/opt/pdlab/engine/bin/python"}, "pd_engine.existing.python", "lies below pd_root"),
        ({"python": "/p", "pythonpath": ["/opt/pdlab/x"]}, "pd_engine.existing.pythonpath", "lies below pd_root"),
        ({"python": "/p", "pythonpath": ["/a:b"]}, "pd_engine.existing.pythonpath", "has a ':'"),
        ({"python": "/p", "pythonpath": "/a"}, "pd_engine.existing.pythonpath", "not a list"),
    ],
)
def test_a_path_that_cannot_be_meant_is_a_fault(
    gpu_box: dict[str, Any], existing: dict[str, Any], key: str, said: str
) -> None:
    assert said in faults_of(gpu_box, pd_engine={"existing": existing})[key]


def test_a_version_that_is_declared_must_be_text(gpu_box: dict[str, Any]) -> None:
    found = faults_of(gpu_box, pd_engine={"existing": {"python": "/p", "sglang": 0.5}})
    assert "pd_engine.existing.sglang" in found


@pytest.mark.parametrize(
    ("engine", "version", "asked"),
    [
        ({"existing": EXISTING}, "0.5.17", "/health"),
        ({"existing": EXISTING}, "0.5.23", "/ready"),
        ({"existing": EXISTING}, None, "/health"),
        ({}, "0.5.17", "/health"),
        ({}, "0.5.23", "/ready"),
        ({}, None, "/ready"),
    ],
)
def test_the_router_asks_where_the_engine_of_this_version_answers(
    gpu_box: dict[str, Any], engine: dict[str, Any], version: str | None, asked: str
) -> None:
    def asks(variables: dict[str, Any]) -> str:
        hosts = one_host(**({"pd_engine": engine} if engine else {}))
        plan, faults = resolve(variables, hosts, PRESETS, engine_versions={"box1": version})
        assert plan, faults
        argv = plan["router"]["argv"]
        assert argv.count("--health-check-endpoint") == 1
        return str(argv[argv.index("--health-check-endpoint") + 1])

    assert asks(gpu_box) == asked
    assert asks({**gpu_box, "pd_router": {"args": {"health-check-endpoint": "/mine"}}}) == "/mine"


def test_where_an_engine_answers_is_known_for_every_version() -> None:
    assert [trait(HEALTH_PATH, version) for version in ("0.5.9", "0.5.23.post1", "0.6.0")] == [
        "/health",
        "/ready",
        "/ready",
    ]
