# SPDX-License-Identifier: Apache-2.0
"""What was laid over inventory/two-gpus on two H200s is right as it is."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault

from . import layered
from .layered import EVIDENCE, unknown_flags


def resolved(*layers: str, **more: Any) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The plan of two-gpus with these layers."""
    return layered.resolved("two-gpus", [EVIDENCE / "h200x2" / "layers" / f"{name}.yml" for name in layers], **more)


@pytest.mark.parametrize(
    "layers",
    [
        ("canary",),
        ("canary-page-64",),
        ("eight-billion",),
        ("eight-billion", "arms"),
        ("eight-billion", "arms", "arms-with-chat"),
        ("eight-billion", "arms", "rates"),
    ],
    ids=" ".join,
)
def test_a_layer_is_without_a_fault_and_this_engine_knows_every_flag(layers: tuple[str, ...]) -> None:
    arms = ("pd", "tp2", "dp2") if "arms" in layers else ("pd",)
    for arm in arms:
        plan, faults = resolved("machine", *layers, pd_arm=arm)
        assert plan is not None, faults
        assert unknown_flags(plan) == []


@pytest.mark.parametrize("arm", ["tp2", "chunk-2048", "chunk-16384", "mixed", "prefill-graphs"])
def test_a_layer_of_tuning_is_without_a_fault_and_this_engine_knows_every_flag(arm: str) -> None:
    plan, faults = resolved("machine", "eight-billion", "tuning", pd_arm=arm)
    assert plan is not None, faults
    assert unknown_flags(plan) == []


@pytest.mark.parametrize("layers", [("arms",), ("arms", "rates"), ("tuning",)], ids=" ".join)
def test_the_arms_can_be_up_together(layers: tuple[str, ...]) -> None:
    plan, _faults = resolved("machine", "eight-billion", *layers)
    assert plan is not None
    servers = [server for arm in plan["arms"] for server in arm["servers"]]
    ports = [server[key] for server in servers for key in ("port", "nccl_port", "bootstrap_port") if server[key]]
    assert len(ports) == len(set(ports))
