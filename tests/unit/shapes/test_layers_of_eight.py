# SPDX-License-Identifier: Apache-2.0
"""What is ready to be laid over eight-nvlink-gpus and four-gpus, and has not run: plans, flags, ports, memory."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pdlab.preflight import judge_recordings
from scripts import golden_plans

from . import layered
from .layered import CHECKOUT, EVIDENCE, unknown_flags

LAYERS = EVIDENCE / "h200x8" / "layers"
SHAPES = EVIDENCE / "h200x8" / "shapes"
MACHINE = EVIDENCE / "h200x2" / "layers" / "machine.yml"
EIGHT, FOUR = ("eight-nvlink-gpus", "eight"), ("four-gpus", "four")
ARMS = {EIGHT: ("pd", "tp8", "dp2-tp4", "pd-2-6", "pd-6-2"), FOUR: ("pd", "tp4", "dp2-tp2")}
MODELS = ("canary", "seventy-billion", "thirty-billion-moe")
CASES = [(box, arm, model) for box in ARMS for arm in ARMS[box] for model in MODELS]
GIB = 2**30
# Of an H200's 143771 MiB, and what CUDA, NCCL, graphs and activations of one server may take beside weights and cache.
GPU_GIB, OVERHEAD_GIB = 143771 / 1024, 5.0


def plan_of(box: tuple[str, str], *layers: str, arm: str) -> dict[str, Any]:
    inventory, topology = box
    files = [MACHINE, *(LAYERS / f"{name}.yml" for name in (topology, *layers))]
    plan, faults = layered.resolved(inventory, files, pd_arm=arm)
    assert plan is not None, faults
    return plan


@pytest.mark.parametrize(
    ("box", "arm", "model"), CASES, ids=lambda value: value if isinstance(value, str) else value[1]
)
def test_every_arm_plans_and_this_engine_knows_every_flag(box: tuple[str, str], arm: str, model: str) -> None:
    for extra in ((), ("workloads",), ("curves",)):
        plan = plan_of(box, model, *extra, arm=arm)
        assert unknown_flags(plan) == []
    # A guest that shows no NUMA node of its GPUs does not stop them.
    assert not any(server["numa_pending"] for server in plan["servers"])


@pytest.mark.parametrize("box", ARMS, ids=lambda box: box[1])
def test_arms_can_be_up_together_since_no_two_servers_have_a_port_in_common(box: tuple[str, str]) -> None:
    servers = {
        (server["name"], *server["gpus"]): server
        for arm in plan_of(box, "seventy-billion", arm="pd")["arms"]
        for server in arm["servers"]
    }
    names = [name for name, *_gpus in servers]
    assert len(names) == len(set(names))
    ports = [one[key] for one in servers.values() for key in ("port", "nccl_port", "bootstrap_port") if one[key]]
    assert len(ports) == len(set(ports))


def weights_gib(config: dict[str, Any]) -> float:
    """Of a Llama or a Qwen3-MoE in bf16: attention, MLP or experts with their gate, and two embeddings."""
    hidden, layers, head = config["hidden_size"], config["num_hidden_layers"], config["head_dim"]
    attention = hidden * head * 2 * (config["num_attention_heads"] + config["num_key_value_heads"])
    experts = config.get("num_experts")
    mlp = 3 * hidden * (config["moe_intermediate_size"] if experts else config["intermediate_size"]) * (experts or 1)
    gate = hidden * (experts or 0)
    return (layers * (attention + mlp + gate) + 2 * config["vocab_size"] * hidden) * 2 / GIB


def cache_gib(config: dict[str, Any], tokens: int, tp: int) -> float:
    """Of one rank. With more ranks than KV heads, some hold the same head."""
    heads = max(1, config["num_key_value_heads"] // tp)
    return tokens * config["num_hidden_layers"] * 2 * heads * config["head_dim"] * 2 / GIB


@pytest.mark.parametrize(
    ("box", "model", "together"),
    [
        (EIGHT, "seventy-billion", ("pd", "tp8", "dp2-tp4")),
        (EIGHT, "seventy-billion", ("pd-2-6",)),
        (EIGHT, "seventy-billion", ("pd-6-2",)),
        (EIGHT, "thirty-billion-moe", ("pd", "tp8", "dp2-tp4", "pd-2-6")),
        (FOUR, "seventy-billion", ("pd",)),
        (FOUR, "seventy-billion", ("dp2-tp2",)),
        (FOUR, "thirty-billion-moe", ("pd", "tp4", "dp2-tp2")),
    ],
    ids=str,
)
def test_the_gpus_hold_these_arms_together_in_any_order_of_their_starts(
    box: tuple[str, str], model: str, together: tuple[str, ...]
) -> None:
    config = json.loads((SHAPES / model / "config.json").read_text())
    plans = [plan_of(box, model, arm=arm) for arm in together]
    args = [dict(itertools.pairwise(server["argv"])) for plan in plans for server in plan["servers"]]
    (tokens,) = {int(one["--max-total-tokens"]) for one in args}
    (fraction,) = {float(one["--mem-fraction-static"]) for one in args}
    sizes: dict[int, list[float]] = {}
    for server in (server for plan in plans for server in plan["servers"]):
        assert config["num_attention_heads"] % server["tp"] == 0
        for gpu in server["gpus"]:
            mine = weights_gib(config) / server["tp"] + cache_gib(config, tokens, server["tp"])
            sizes.setdefault(gpu, []).append(mine)
    for of_gpu in sizes.values():
        assert sum(of_gpu) + OVERHEAD_GIB * len(of_gpu) < GPU_GIB
        for last in of_gpu:
            # kv_cache_configurator.py, _profile_available_bytes: what is free, less a share of what was free before.
            free = GPU_GIB - (sum(of_gpu) - last) - OVERHEAD_GIB * (len(of_gpu) - 1)
            assert last < free * fraction


def test_the_sums_in_the_layers_are_right() -> None:
    dense, moe = (json.loads((SHAPES / name / "config.json").read_text()) for name in MODELS[1:])
    assert weights_gib(dense) == pytest.approx(131.4, abs=0.05)
    assert [round(cache_gib(dense, 120_000, tp), 1) for tp in (1, 2, 4, 8)] == [36.6, 18.3, 9.2, 4.6]
    assert weights_gib(moe) == pytest.approx(56.7, abs=0.05)
    assert cache_gib(moe, 1, 1) * 2**20 == 96
    for name, sums in (("seventy-billion", "weights 131.4: 65.7"), ("thirty-billion-moe", "56.7 GiB, so 28.3")):
        assert sums in (LAYERS / f"{name}.yml").read_text()


@pytest.mark.parametrize("arm", ARMS[EIGHT])
def test_preflight_on_the_derived_box_forbids_no_arm(arm: str) -> None:
    plan = plan_of(EIGHT, "seventy-billion", "workloads", arm=arm)
    (record,) = judge_recordings(plan, {"gpubox": CHECKOUT / "tests" / "boxes" / "h200-x8"})
    assert vetoes(record) == []


def test_a_guest_with_two_nodes_and_gpus_of_none_is_not_forbidden_either(tmp_path: Path) -> None:
    box = tmp_path / "box"
    shutil.copytree(CHECKOUT / "tests" / "boxes" / "h200-x8", box)
    nodes = box / "root/sys/devices/system/node"
    shutil.copytree(nodes / "node0", nodes / "node1")
    (nodes / "node0/cpulist").write_text("0-63\n")
    (nodes / "node1/cpulist").write_text("64-127\n")
    answers = json.loads((box / "answers.json").read_text())
    answers["names"]["/sys/devices/system/node"].append("node1")
    (box / "answers.json").write_text(json.dumps(answers))
    (record,) = judge_recordings(plan_of(EIGHT, "seventy-billion", arm="pd"), {"gpubox": box})
    assert vetoes(record) == []
    # The inventory by itself leaves the nodes to the box, which does not know them.
    (as_shipped,) = judge_recordings(golden_plans.plan_of("eight-nvlink-gpus"), {"gpubox": box})
    assert vetoes(as_shipped) == ["gpu_without_numa_node"]


def vetoes(record: dict[str, Any]) -> list[str]:
    return [verdict["id"] for verdict in record["verdicts"] if verdict["severity"] == "veto" and not verdict["ok"]]


def test_what_stands_there_says_plainly_that_nothing_has_run() -> None:
    text = (EVIDENCE / "h200x8" / "README.md").read_text()
    assert "**Nothing of this has run.**" in text
    assert sorted(path.name for path in (EVIDENCE / "h200x8").iterdir()) == ["README.md", "layers", "shapes"]
