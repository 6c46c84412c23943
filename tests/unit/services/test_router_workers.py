# SPDX-License-Identifier: Apache-2.0
"""A router is told of servers that are ready and that it has not found, once, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json, router_workers
from ansible_collections.pdlab.pdlab.plugins.module_utils.http_json import Reply

ROUTER = "http://127.0.0.1:8000"
PREFILL = {"name": "prefill-0", "role": "prefill", "url": "http://10.0.0.1:30000", "bootstrap_port": 8998}
DECODE = {"name": "decode-0", "role": "decode", "url": "http://10.0.0.2:30001", "bootstrap_port": None}
COLOCATED = {"name": "both-0", "role": "colocated", "url": "http://10.0.0.3:30002/", "bootstrap_port": None}
NAMELESS = {"name": None, "role": "decode", "url": "http://10.0.0.4:30003", "bootstrap_port": None}
ALL = [PREFILL, DECODE, COLOCATED, NAMELESS]
NAMES = {"prefill-0", "decode-0", "both-0"}


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    made: list[tuple[str, Any]] = []

    def post(url: str, body: Any, _timeout_s: float) -> Reply:
        made.append((url, body))
        return Reply(202, {}, "{}", None, 0.0)

    monkeypatch.setattr(http_json, "post", post)
    return made


def router_says(monkeypatch: pytest.MonkeyPatch, status: int | None, body: Any) -> None:
    monkeypatch.setattr(http_json, "get", lambda *_arguments: Reply(status, body, "", None, 0.0))


def test_each_role_is_told_by_the_routers_own_name_and_a_prefill_with_its_bootstrap_port(
    posted: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    router_says(monkeypatch, 200, {"workers": [], "total": 0})
    assert router_workers.introduce(ROUTER, ALL, NAMES) == ["prefill-0", "decode-0", "both-0"]
    assert posted == [
        (f"{ROUTER}/workers", {"url": PREFILL["url"], "worker_type": "prefill", "bootstrap_port": 8998}),
        (f"{ROUTER}/workers", {"url": DECODE["url"], "worker_type": "decode"}),
        (f"{ROUTER}/workers", {"url": COLOCATED["url"], "worker_type": "regular"}),
    ]


def test_one_that_is_known_or_not_ready_is_not_told(
    posted: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    router_says(monkeypatch, 200, {"workers": [{"url": PREFILL["url"] + "/"}, {"url": "http://10.0.0.3:30002"}]})
    assert router_workers.introduce(ROUTER, ALL, {"prefill-0", "both-0"}) == []
    assert posted == []


@pytest.mark.parametrize(("status", "body"), [(None, None), (401, {"error": "no key"}), (404, None), (200, "odd")])
def test_a_router_that_cannot_be_asked_is_left_alone(
    posted: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch, status: int | None, body: Any
) -> None:
    router_says(monkeypatch, status, body)
    assert router_workers.introduce(ROUTER, ALL, NAMES) == []
    assert posted == []


def test_one_that_the_router_refuses_does_not_count_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    router_says(monkeypatch, 200, [])
    monkeypatch.setattr(http_json, "post", lambda *_arguments: Reply(400, None, "no", None, 0.0))
    assert router_workers.introduce(ROUTER, ALL, NAMES) == []
