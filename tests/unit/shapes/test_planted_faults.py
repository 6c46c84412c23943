# SPDX-License-Identifier: Apache-2.0
"""The faults that were planted on one and on two H200s: the plan refuses each, or doubts it and leaves it to the probe."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault

from . import layered
from .layered import EVIDENCE

INVENTORIES = {"h200x1": "gpu-one-shared", "h200x2": "two-gpus"}


@pytest.fixture(params=sorted(INVENTORIES))
def box(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def planted(box: str, fault: str) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The plan with this layer over those of the machine and the canary, which are two GPUs' own."""
    both = [EVIDENCE / "h200x2" / "layers" / f"{name}.yml" for name in ("machine", "canary")]
    return layered.resolved(INVENTORIES[box], [*both, EVIDENCE / box / "layers" / f"fault-{fault}.yml"])


@pytest.mark.parametrize(
    ("fault", "key", "words"),
    [
        ("page-size", "pd_servers[1].args.page-size", "is 64, and prefill-0 has 1"),
        ("bootstrap-port", "pd_servers[1].bootstrap_port", "is taken by"),
        ("visible-devices", "pd_servers[1].env.CUDA_VISIBLE_DEVICES", "renumbers the GPUs"),
    ],
)
def test_a_planted_fault_is_refused_before_any_host_is_touched(box: str, fault: str, key: str, words: str) -> None:
    plan, faults = planted(box, fault)
    assert plan is None
    assert words in next(str(found) for found in faults if found.key == key)


def test_ucx_without_cuda_ipc_is_doubted_by_the_plan_and_left_to_the_probe(box: str) -> None:
    plan, faults = planted(box, "ucx-tls-tcp")
    assert plan is not None, faults
    doubted = {verdict["rule"] for verdict in plan["engine_rules"]["verdicts"] if verdict["effect"] == "warn"}
    assert "ucx_without_cuda_ipc" in doubted
