# SPDX-License-Identifier: Apache-2.0
"""benchmarks/role_restart.py on pdlab's own service: supervisor brings a killed server back, with the same command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import role_restart

from .conftest import Target


@pytest.mark.parametrize("role", ["decode", "prefill"])
def test_a_killed_server_is_brought_back_by_its_service_and_is_the_one_that_the_plan_names(
    supervisor_target: Target, ports: Iterator[int], role: str
) -> None:
    port = next(ports)
    started = supervisor_target.pd_server(name=f"{role}-0", port=port)
    assert not started.failed, started.data
    server = {"address": "127.0.0.1", "port": port, "tp": 1, "argv": started["argv"]}
    plan = {
        "servers": [{**server, "name": f"{one}-0", "role": one} for one in ("prefill", "decode")],
        "router": {
            "address": "127.0.0.1",
            "port": 1,
            "prometheus_port": 1,
            "argv": ["--health-check-endpoint", "/health"],
        },
    }
    restart = role_restart.Restart(plan, role, role_restart.parser().parse_args(["-i", "x"]))
    assert restart.ready()
    killed = restart.kill()
    assert not restart.ready()
    assert role_restart.wait_until(restart.ready, 60) is not None
    assert restart.group() != killed == started["pid"]
