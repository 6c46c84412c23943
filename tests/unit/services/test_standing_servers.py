# SPDX-License-Identifier: Apache-2.0
"""What preflight saw of a running server stands for the module's answer only for the same options, and not for long."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.action.pd_servers import ActionModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import standing_servers
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import (
    ARGUMENTS,
    OF_THEM_ALL,
    options_of_host,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError

ASKED: dict[str, Any] = {
    "name": "decode-0", "role": "decode", "root": "/opt/pdlab", "python": "/opt/pdlab/engine/bin/python",
    "home": "/root", "model_path": "/srv/m", "served_name": "m", "port": 30001, "nccl_port": 21001, "device": "cpu",
    "gpus": [], "tp": 1, "args": {"page-size": 16}, "env": {"A": "1"}, "manager": "supervisor",
}  # fmt: skip
TASK = {**ASKED, "engine_fingerprint": "e", "wait": False, "timeout_s": 900, "flag_table": "/t", "peers": [{"a": 1}]}
RESULT = {"changed": False, "manager": "supervisor", "reasons": [], "pid": 7, "seconds_to_ready": None}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a look found at 1000 s."""
    monkeypatch.setattr(standing_servers, "_standing", lambda _params: RESULT)
    return {"at": 1000.0, "servers": standing_servers.look([ASKED], "e")}


def test_the_same_question_has_the_same_answer_whatever_it_says_of_starting(seen: dict[str, Any]) -> None:
    assert standing_servers.result_for(TASK, seen, 1003.0) == RESULT


@pytest.mark.parametrize(
    "other",
    [
        {"engine_fingerprint": "f"},
        {"args": {"page-size": 32}},
        {"env": {"A": "2"}},
        {"port": 30002},
        {"model_path": "/srv/n"},
        {"tp": 2},
        {"numa_node": 0},
        {"user": "pdlab"},
        {"root": "/opt/other"},
        {"stop_timeout_s": 5},
        {"manager": "systemd"},
        {"name": "decode-1"},
        {"state": "restarted"},
        {"state": "stopped"},
        {"state": "absent"},
        {"wait": True},
        {"unknown": 1},
    ],
)
def test_any_other_question_is_put_to_the_host(seen: dict[str, Any], other: dict[str, Any]) -> None:
    assert standing_servers.result_for({**TASK, **other}, seen, 1003.0) is None


def test_a_task_that_waits_is_answered_for_a_server_that_was_seen_ready(
    seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = {**TASK, "wait": True}
    assert standing_servers.result_for(waits, seen, 1003.0) is None
    ready = {**RESULT, "seconds_to_ready": 41.2}
    monkeypatch.setattr(standing_servers, "_standing", lambda _params: ready)
    seen = {"at": 1000.0, "servers": standing_servers.look([ASKED], "e")}
    assert standing_servers.result_for(waits, seen, 1003.0) == ready


def test_every_option_either_decides_or_belongs_to_a_start() -> None:
    """A new option counts until somebody says that it does not."""
    complete = standing_servers.completed(TASK)
    assert complete is not None
    assert set(ARGUMENTS) == set(complete)
    assert set(ARGUMENTS) - set(standing_servers._deciding(complete)) == set(standing_servers.OF_A_START)


def test_a_task_that_does_not_say_that_it_will_not_wait_is_put_to_the_host(seen: dict[str, Any]) -> None:
    assert standing_servers.result_for({k: v for k, v in TASK.items() if k != "wait"}, seen, 1003.0) is None


@pytest.mark.parametrize("now", [999.0, 1000.1 + standing_servers.FRESH_S])
def test_what_was_seen_is_old_soon(seen: dict[str, Any], now: float) -> None:
    assert standing_servers.result_for(TASK, seen, now) is None


@pytest.mark.parametrize("nothing", [{}, {"at": 1000.0, "servers": {}}])
def test_what_was_not_seen_is_put_to_the_host(nothing: dict[str, Any]) -> None:
    assert standing_servers.result_for(TASK, nothing, 1003.0) is None


@pytest.mark.parametrize(("manager", "stands"), [("supervisor", True), ("systemd", False), ("auto", True)])
def test_auto_was_answered_by_one_manager(monkeypatch: pytest.MonkeyPatch, manager: str, stands: bool) -> None:
    monkeypatch.setattr(standing_servers, "_standing", lambda _params: RESULT)
    found = {"at": 1000.0, "servers": standing_servers.look([{**ASKED, "manager": "auto"}], "e")}
    answer = standing_servers.result_for({**TASK, "manager": manager}, found, 1003.0)
    assert (answer is not None) is stands


@pytest.mark.parametrize(("asked", "fingerprint"), [([ASKED], None), ([ASKED], ""), ([{"name": "x"}], "e"), ([], "e")])
def test_nothing_stands_without_an_engine_or_a_whole_description(asked: list[Any], fingerprint: str | None) -> None:
    assert standing_servers.look(asked, fingerprint) == {}


def test_a_service_manager_that_does_not_answer_leaves_the_question_to_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object) -> None:
        raise ServiceError("no answer")

    monkeypatch.setattr(standing_servers.ServerState, "plan", refuse)
    assert standing_servers.look([ASKED], "e") == {}


def test_a_plan_asks_for_the_servers_of_one_host_with_what_decides() -> None:
    server = {**ASKED, "host": "a", "user": None, "numa_node": None, "argv": ["x"], "unit": "pdlab-decode-0"}
    del server["root"], server["manager"]
    plan = {
        "hosts": {"a": {"root": "/opt/pdlab", "service_manager": "supervisor"}},
        "servers": [server, {**server, "host": "b"}],
        "router": {"name": "router", "role": "router", "host": "b"},
    }
    assert options_of_host(plan, "a") == [ASKED]


def test_all_servers_of_a_host_are_answered_from_sight_and_its_router_though_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = {
        "name": "router", "role": "router", "root": "/opt/pdlab", "python": "/p", "home": "/root", "port": 8000,
        "prometheus_port": 29001, "workers": [], "manager": "supervisor",
    }  # fmt: skip
    ready = {"decode-0": 41.2, "router": None}
    monkeypatch.setattr(
        standing_servers, "_standing", lambda params: {**RESULT, "seconds_to_ready": ready[params["name"]]}
    )
    seen = {"at": time.time(), "servers": standing_servers.look([ASKED, router], "e")}
    own = [{key: value for key, value in part.items() if key not in OF_THEM_ALL} for part in (ASKED, router)]
    asked = {"servers": own, "root": "/opt/pdlab", "manager": "supervisor", "engine_fingerprint": "e", "wait": True}
    action = ActionModule.__new__(ActionModule)
    known = action.from_sight(asked, seen)
    assert known is not None and [one["seconds_to_ready"] for one in known["servers"]] == [41.2, None]
    ready["decode-0"] = None
    seen = {"at": time.time(), "servers": standing_servers.look([ASKED, router], "e")}
    assert action.from_sight(asked, seen) is None, "a server that was not seen ready is waited for"
