# SPDX-License-Identifier: Apache-2.0
"""What is laid over inventory/gpu-one-shared on one H200 is right as it is."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault

from . import layered
from .layered import EVIDENCE, unknown_flags

TWO = EVIDENCE / "h200x2" / "layers"
ONE = EVIDENCE / "h200x1" / "layers"
# 128 KiB of KV cache a token; weights, and about 4 GiB for CUDA, graphs and what a chunk of prefill needs.
GPU_GIB, TOKEN_GIB, WEIGHTS_GIB, BESIDE_GIB = 139, 1 / 8192, 15.0, 4.0
ARMS = ("pd", "colocated", "chunk-2048", "chunk-16384", "mixed")


def resolved(*layers: str, **more: Any) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The plan of gpu-one-shared with these layers; those of the machine and the canary are two GPUs' own."""
    files = [(TWO if name in ("machine", "canary", "canary-page-64") else ONE) / f"{name}.yml" for name in layers]
    return layered.resolved("gpu-one-shared", files, **more)


@pytest.mark.parametrize(
    "layers",
    [
        ("canary",),
        ("canary-page-64",),
        ("eight-billion",),
        ("eight-billion", "arms"),
        ("eight-billion", "arms", "rag-repeats"),
        ("eight-billion", "arms", "chunks"),
    ],
    ids=" ".join,
)
def test_a_layer_is_without_a_fault_and_this_engine_knows_every_flag(layers: tuple[str, ...]) -> None:
    for arm in ARMS if "arms" in layers else (None,):
        plan, faults = resolved("machine", *layers, pd_arm=arm)
        assert plan is not None, faults
        assert unknown_flags(plan) == []


def test_the_arms_can_be_up_together_and_three_servers_fit_into_the_gpu() -> None:
    plan, _faults = resolved("machine", "eight-billion", "arms", pd_arm="pd")
    assert plan is not None
    for one, other in combinations(plan["arms"], 2):
        mine, theirs = (
            {server[key] for server in arm["servers"] for key in ("port", "nccl_port", "bootstrap_port")}
            for arm in (one, other)
        )
        assert mine & theirs <= {None}
    tokens = plan["servers"][0]["args"]["max-total-tokens"]
    assert 3 * (WEIGHTS_GIB + tokens * TOKEN_GIB + BESIDE_GIB) <= GPU_GIB
