# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import (
    Port,
    definition_of,
    ports_of,
    ready_paths,
    url_of,
)

ENGINE: dict[str, Any] = {
    "name": "prefill-0",
    "role": "prefill",
    "python": "/srv/pdlab/engine/bin/python",
    "home": "/root",
    "model_path": "/srv/model",
    "served_name": "m",
    "device": "cuda",
    "address": "10.0.0.1",
    "port": 30000,
    "bootstrap_port": 8998,
    "nccl_port": 21000,
}
ROUTER: dict[str, Any] = {
    "name": "router",
    "role": "router",
    "python": "/p",
    "home": "/root",
    "address": "0.0.0.0",
    "port": 8000,
    "prometheus_host": "127.0.0.1",
    "prometheus_port": 29001,
    "policy": "round_robin",
    "workers": [],
}


def test_a_prefill_waits_longer_before_it_comes_back_than_decode_needs_to_miss_it() -> None:
    delays = {role: definition_of({**ENGINE, "role": role}, "/srv/pdlab", "", None, 60).restart_delay_s
              for role in ("prefill", "decode")}  # fmt: skip
    assert delays["prefill"] > 10 > delays["decode"]


def test_a_service_knows_its_log_its_folder_and_its_engine() -> None:
    definition = definition_of(ENGINE, "/srv/pdlab", "abc", "llm", 90)
    assert definition.name == "pdlab-prefill-0"
    assert definition.log_path == "/srv/pdlab/logs/prefill-0.log"
    assert definition.working_directory == "/srv/pdlab/run"
    assert (definition.fingerprint, definition.user, definition.stop_timeout_s) == ("abc", "llm", 90)


def test_every_port_that_a_server_binds_is_known() -> None:
    assert ports_of(ENGINE) == [
        Port("port", 30000, "10.0.0.1"),
        Port("bootstrap_port", 8998, "10.0.0.1"),
        Port("nccl_port", 21000, "0.0.0.0"),
    ]
    assert ports_of(ROUTER) == [Port("port", 8000, "0.0.0.0"), Port("prometheus_port", 29001, "127.0.0.1")]


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("10.0.0.1", "http://10.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("box", "http://box:8000"),
    ],
)
def test_a_server_is_asked_where_its_own_host_reaches_it(address: str, url: str) -> None:
    assert url_of({**ROUTER, "address": address}) == url


def test_an_engine_and_a_router_are_asked_different_questions() -> None:
    assert ready_paths("decode") == ("/ready", "/health")
    assert ready_paths("router") == ("/liveness", "/health")
