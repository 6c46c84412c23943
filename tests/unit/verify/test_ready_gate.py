# SPDX-License-Identifier: Apache-2.0
"""The ready gate: one test a fault, each found by the step that is there for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import ready_gate

from tests.unit.verify.replay_server import recorded, replay
from tests.unit.verify.stack import ALL_RANKS, RANK_0, Stack

STEPS = ["servers", "registration", "ranks", "agreement", "router", "generation"]


def gate(
    stack: Stack,
    servers: list[dict[str, Any]] | None = None,
    router: dict[str, Any] | bool | None = True,
    timeout_s: float = 0.2,
    stop_reason: Callable[[], str | None] = lambda: None,
) -> dict[str, Any]:
    return ready_gate.ReadyGate(
        servers if servers is not None else stack.servers(),
        stack.router_of_plan() if router is True else (router or None),
        timeout_s,
        0.02,
        5.0,
        None,
        stop_reason,
    ).run()


def failed_step(result: dict[str, Any]) -> dict[str, Any]:
    """The one failed step, which must be the last."""
    assert result["ok"] is False
    assert [step["ok"] for step in result["steps"][:-1]].count(False) == 0
    last: dict[str, Any] = result["steps"][-1]
    assert last["ok"] is False
    assert last["why"] in result["why"]
    return last


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_gate, "REGISTRATION_S", 0.2)
    monkeypatch.setattr(ready_gate, "METRICS_SETTLE_S", 0.2)


def test_a_healthy_stack_passes_all_six_steps_in_under_a_second(stack: Stack) -> None:
    started = time.monotonic()
    result = gate(stack)
    assert result["ok"], result["why"]
    assert [step["id"] for step in result["steps"]] == STEPS
    assert all(step["ok"] and step["why"] is None and step["seen"] for step in result["steps"])
    assert time.monotonic() - started < 1


def test_the_generation_says_what_came_and_what_moved(stack: Stack) -> None:
    seen = gate(stack)["steps"][-1]["seen"]
    assert "6 new" in seen
    assert "KV moved: 65536 bytes in 1 transfers, 0 failed" in seen


def test_an_engine_without_ready_is_asked_for_health(stack: Stack) -> None:
    del stack.prefill.routes["GET /ready"]
    stack.prefill.routes["GET /health"] = (200, "")
    assert "/health: 200" in gate(stack)["steps"][0]["seen"]


def test_a_server_that_does_not_listen_is_named_and_not_passed(stack: Stack) -> None:
    stack.decode.close()
    step = failed_step(gate(stack))
    assert step["id"] == "servers"
    assert "decode-0" in step["why"] and "refuses the connection" in step["why"]
    assert "prefill-0 /ready: 200" in step["seen"]


def test_a_server_that_is_starting_is_waited_for(stack: Stack) -> None:
    looks = iter([503, 503, 200])
    stack.prefill.routes["GET /ready"] = lambda _body: (next(looks, 200), "")
    assert gate(stack, timeout_s=5)["ok"]


def test_a_server_that_dies_ends_the_waiting_at_once(stack: Stack) -> None:
    stack.prefill.routes["GET /ready"] = (503, "")
    looks = iter([None, None, "The process of prefill-0, PID 1, has ended."])
    started = time.monotonic()
    result = gate(stack, timeout_s=60, stop_reason=lambda: next(looks, "The process of prefill-0 has ended."))
    assert "has ended" in failed_step(result)["why"]
    assert time.monotonic() - started < 5


def test_a_server_that_dies_during_the_generation_is_not_waited_for_until_the_requests_time_limit(stack: Stack) -> None:
    asked, over = threading.Event(), threading.Event()

    def hang(_body: Any) -> Any:
        asked.set()
        over.wait(60)
        return (200, "")

    stack.router.routes["POST /generate"] = hang
    started = time.monotonic()
    died = "The process of prefill-0 has ended."
    result = gate(stack, timeout_s=60, stop_reason=lambda: died if asked.is_set() else None)
    over.set()
    assert failed_step(result)["id"] == "generation"
    assert failed_step(result)["why"] == died
    assert time.monotonic() - started < 5


def test_a_prefill_that_is_not_fully_registered_is_found(stack: Stack) -> None:
    stack.bootstrap.routes[ALL_RANKS] = (503, "Prefill server not fully registered yet (1 workers registered).")
    step = failed_step(gate(stack, timeout_s=30))
    assert step["id"] == "registration"
    assert "1 workers registered" in step["why"]


def test_registration_is_waited_for(stack: Stack) -> None:
    whole = stack.bootstrap.routes[ALL_RANKS]
    assert not callable(whole)
    answers = iter([(503, "Prefill server not fully registered yet (0 workers registered)."), whole])
    stack.bootstrap.routes[ALL_RANKS] = lambda _body: next(answers, whole)
    assert gate(stack, timeout_s=5)["ok"]


def test_a_dead_bootstrap_port_is_found(stack: Stack) -> None:
    stack.bootstrap.close()
    step = failed_step(gate(stack))
    assert step["id"] == "registration"
    assert str(stack.bootstrap.port) in step["why"]


def test_a_cross_wired_prefill_is_found_by_the_http_port_it_registered(stack: Stack) -> None:
    stack.change(stack.bootstrap, ALL_RANKS, prefill_http_port=30777)
    step = failed_step(gate(stack))
    assert step["id"] == "registration"
    assert "Cross-wired" in step["why"] and "30777" in step["why"] and "bootstrap_port" in step["why"]


def test_two_prefills_of_one_bootstrap_port_are_found_before_any_request(stack: Stack) -> None:
    first, decode = stack.servers()
    step = failed_step(gate(stack, servers=[first, {**first, "name": "prefill-1"}, decode]))
    assert step["id"] == "registration"
    assert "prefill-0 and prefill-1" in step["why"]


@pytest.mark.parametrize(("key", "value"), [("page_size", 64), ("attn_tp_size", 4)])
def test_a_registration_that_is_another_servers_is_found(stack: Stack, key: str, value: int) -> None:
    stack.change(stack.bootstrap, ALL_RANKS, **{key: value})
    step = failed_step(gate(stack))
    assert step["id"] == "registration"
    assert key in step["why"] and str(value) in step["why"]


def test_with_dp_attention_the_registered_tp_is_the_attentions_own(stack: Stack) -> None:
    stack.change(stack.prefill, "GET /server_info", tp_size=4, dp_size=4, enable_dp_attention=True)
    stack.change(stack.decode, "GET /server_info", tp_size=4, dp_size=4, enable_dp_attention=True)
    stack.change(stack.bootstrap, ALL_RANKS, dp_size=4)
    rank = stack.bootstrap.routes[RANK_0]
    with replay() as a, replay() as b, replay() as c:
        for index, other in enumerate((a, b, c), start=1):
            answer = (200, {"rank_ip": "127.0.0.1", "rank_port": other.port})
            stack.bootstrap.routes[RANK_0.replace("dp_rank=0", f"dp_rank={index}")] = answer
        assert rank
        servers = [{**server, "tp": 4} for server in stack.servers()]
        result = gate(stack, servers=servers)
    assert result["ok"], result["why"]
    assert "dp3 cp0 tp0 pp0" in result["steps"][2]["seen"]


def test_a_rank_that_cannot_be_reached_is_named_with_its_address(stack: Stack) -> None:
    with replay() as gone:
        port = gone.port
    stack.change(stack.bootstrap, RANK_0, rank_port=port)
    step = failed_step(gate(stack))
    assert step["id"] == "ranks"
    assert "tp0" in step["why"] and f"127.0.0.1:{port}" in step["why"] and "SGLANG_HOST_IP" in step["why"]


def test_a_missing_rank_is_named(stack: Stack) -> None:
    stack.change(stack.bootstrap, ALL_RANKS, pp_size=2)
    stack.bootstrap.routes[RANK_0.replace("pp_rank=0", "pp_rank=1")] = (404, "Bootstrap info not found")
    assert "pp1 has no address" in failed_step(gate(stack))["why"]


def test_a_loopback_rank_is_refused_when_decode_is_on_another_host(stack: Stack) -> None:
    prefill, decode = stack.servers()
    step = failed_step(gate(stack, servers=[prefill, {**decode, "host": "box-2"}]))
    assert step["id"] == "ranks"
    assert "loopback" in step["why"]


def test_a_rank_at_another_address_than_the_plan_pins_is_refused(stack: Stack) -> None:
    prefill, decode = stack.servers()
    prefill = {**prefill, "environment": {"SGLANG_HOST_IP": "10.0.0.7"}}
    assert "10.0.0.7" in failed_step(gate(stack, servers=[prefill, decode]))["why"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("page_size", 64), ("kv_cache_dtype", "fp8_e4m3"), ("version", "0.5.17"), ("served_model_name", "other")],
)
def test_a_setting_that_differs_between_the_roles_is_found(stack: Stack, key: str, value: object) -> None:
    stack.change(stack.decode, "GET /server_info", **{key: value})
    step = failed_step(gate(stack))
    assert step["id"] == "agreement"
    assert key in step["why"] and "prefill-0" in step["why"] and "decode-0" in step["why"]


@pytest.mark.parametrize(
    ("key", "value"), [("model_path", "/srv/models/old"), ("tp_size", 2), ("disaggregation_mode", "null")]
)
def test_a_server_that_is_not_what_the_plan_says_is_found(stack: Stack, key: str, value: object) -> None:
    stack.change(stack.decode, "GET /server_info", **{key: value})
    step = failed_step(gate(stack))
    assert step["id"] == "agreement"
    assert "decode-0" in step["why"] and key in step["why"] and "the plan says" in step["why"]


def test_a_router_that_finds_its_workers_late_is_waited_for(stack: Stack) -> None:
    whole = stack.workers
    empty = {"workers": [], "total": 0, "stats": {}}
    looks = iter([empty, empty, {**whole, "workers": whole["workers"][:1]}])
    stack.router.routes["GET /workers"] = lambda _body: (200, next(looks, whole))
    assert gate(stack, timeout_s=5)["ok"]


def test_a_router_without_a_worker_is_found(stack: Stack) -> None:
    stack.workers["workers"].pop()
    step = failed_step(gate(stack))
    assert step["id"] == "router"
    assert "no worker decode-0" in step["why"]


@pytest.mark.parametrize(
    ("index", "values", "words"),
    [
        (0, {"worker_type": "regular"}, "takes prefill-0 for regular, not prefill"),
        (0, {"bootstrap_port": None}, "sends bootstrap port None for prefill-0"),
        (1, {"is_healthy": False}, "decode-0 for unhealthy"),
    ],
)
def test_a_worker_that_the_router_has_wrong_is_found(
    stack: Stack, index: int, values: dict[str, Any], words: str
) -> None:
    stack.workers["workers"][index].update(values)
    assert words in failed_step(gate(stack))["why"]


def test_a_router_that_is_not_ready_is_not_passed(stack: Stack) -> None:
    stack.router.routes["GET /readiness"] = (503, {"status": "not ready", "reason": "insufficient healthy workers"})
    step = failed_step(gate(stack))
    assert step["id"] == "router"
    assert "insufficient healthy workers" in step["why"]


def test_a_router_that_is_ready_but_refuses_requests_is_found(stack: Stack) -> None:
    stack.generation = (503, {"error": {"message": "No available prefill workers (all circuits open or unhealthy)"}})
    step = failed_step(gate(stack, timeout_s=0.5))
    assert step["id"] == "generation"
    assert "circuits open" in step["why"] and "cb-timeout" in step["why"]
    assert len(stack.router.asked("POST /generate")) > 1


def test_a_circuit_that_closes_in_time_passes(stack: Stack) -> None:
    good = stack.generation
    stack.generation = (503, "No available prefill workers")

    def heal(body: Any) -> tuple[int, Any]:
        answer = stack._generate(body)
        stack.generation = good
        return answer

    stack.router.routes["POST /generate"] = heal
    assert gate(stack, timeout_s=5)["ok"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": ""}, "without any text"),
        ({"text": " \n"}, "without any text"),
        ({"meta_info": {"completion_tokens": 1}}, "1 tokens came"),
    ],
)
def test_a_generation_that_proves_nothing_is_not_passed(stack: Stack, change: dict[str, Any], words: str) -> None:
    stack.generation = (200, {**recorded("generate-input-ids.json"), **change})
    step = failed_step(gate(stack))
    assert step["id"] == "generation"
    assert words in step["why"]


def test_a_generation_that_fails_is_asked_once_and_its_text_shown(stack: Stack) -> None:
    stack.generation = (500, "Decode transfer failed KVTransferError(bootstrap_room=1)")
    assert "KVTransferError" in failed_step(gate(stack, timeout_s=30))["why"]
    assert len(stack.router.asked("POST /generate")) == 1


def test_an_answer_without_kv_movement_is_not_passed(stack: Stack) -> None:
    stack.moves = False
    step = failed_step(gate(stack))
    assert step["id"] == "generation"
    assert "no KV cache moved" in step["why"]


def test_counters_that_move_a_moment_after_the_answer_are_waited_for(stack: Stack) -> None:
    metrics = stack.prefill.routes["GET /metrics"]
    assert callable(metrics)
    stack.moves = False
    looks = iter(range(3))

    def late(body: Any) -> Any:
        if next(looks, 9) == 9:
            stack.transfers = 5
        return metrics(body)

    stack.prefill.routes["GET /metrics"] = late
    assert gate(stack)["ok"]


def test_a_failed_transfer_is_found_even_when_bytes_moved(stack: Stack) -> None:
    normal = stack.router.routes["POST /generate"]
    assert callable(normal)

    def fail(body: Any) -> Any:
        stack.failed += 1
        return normal(body)

    stack.router.routes["POST /generate"] = fail
    assert "1 KV transfers failed" in failed_step(gate(stack))["why"]


def test_workers_without_metrics_are_named_with_the_flag(stack: Stack) -> None:
    del stack.decode.routes["GET /metrics"]
    assert "--enable-metrics" in failed_step(gate(stack))["why"]


def test_the_prompt_is_longer_than_a_page_and_new_each_time(stack: Stack) -> None:
    for server in (stack.prefill, stack.decode):
        stack.change(server, "GET /server_info", page_size=256)
    stack.change(stack.bootstrap, ALL_RANKS, page_size=256)
    assert gate(stack)["ok"]
    assert gate(stack)["ok"]
    one, two = (body["text"] for body in stack.router.asked("POST /generate"))
    assert len(one.split()) > 256
    assert one != two


def test_colocated_servers_without_a_router_skip_what_cannot_be(stack: Stack) -> None:
    stack.change(stack.prefill, "GET /server_info", disaggregation_mode="null")
    stack.prefill.routes["POST /generate"] = stack._generate
    server = {**stack.servers()[0], "name": "colocated-0", "role": "colocated", "bootstrap_port": None}
    result = gate(stack, servers=[server], router=None)
    assert result["ok"], result["why"]
    by_id = {step["id"]: step for step in result["steps"]}
    assert [by_id[step]["ok"] for step in STEPS] == [True, None, None, True, None, True]
    assert all("not applicable" in by_id[step]["seen"] for step in ("registration", "ranks", "router"))


def test_every_server_gets_its_request_when_there_are_several(stack: Stack) -> None:
    prefill, decode = stack.servers()
    with replay() as other:
        other.routes.update(stack.decode.routes)
        second = {**decode, "name": "decode-1", "url": other.url, "port": other.port}
        stack.workers["workers"].append({**stack.workers["workers"][1], "url": other.url})
        assert gate(stack, servers=[prefill, decode, second])["ok"]
    assert len(stack.router.asked("POST /generate")) == 2
