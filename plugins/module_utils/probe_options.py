# SPDX-License-Identifier: GPL-3.0-or-later
"""What is tried on one host of a plan, beyond looking: the options of kv_probe and of collectives_probe. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.rank_pairs import rank_pairs
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir


def rank_counts(gpus: int) -> list[int]:
    """Among how many of a host's GPUs an all-reduce is tried: 2, 3, 4, every doubling, and all.

    The doublings are the sizes that TP has; 3 because an odd ring takes other ways, and two ranks can hang where four
    pass.
    """
    doubled = [2**power for power in range(1, gpus.bit_length())]
    return sorted(count for count in {*doubled, 3, gpus} if 2 <= count <= gpus)


def probe_options(plan: Mapping[str, Any], host: str) -> dict[str, dict[str, Any] | None]:
    """{"kv": options of kv_probe, "collectives": options of collectives_probe}, each None where it does not apply.

    KV memory is moved between a GPU of the first prefill and one of the first decode, in their own environments, and then
    between the GPUs of all other pairs of ranks that send each other KV cache; collectives run among all GPUs of this host that servers use. An arm that moves no KV cache does not try it: what is
    kept is the result of the arm that does. Fingerprints are left to whoever knows the engine.
    """
    servers = [server for server in plan["servers"] if server["host"] == host]
    if not servers:
        return {"kv": None, "collectives": None}
    common = {"python": servers[0]["python"], "state_dir": state_dir(plan["hosts"][host]["root"])}
    gpus = sorted({gpu for server in servers for gpu in server["gpus"]})
    cuda = plan["device"] == "cuda"
    pair = [next((one for one in servers if one["role"] == role), None) for role in (PREFILL, DECODE)]
    ends = [server for server in pair if server]
    if len(ends) == 2:
        devices = [min(server["gpus"]) for server in ends] if cuda else []
    else:
        devices = [gpus[0], gpus[-1]] if cuda else []
    roles = {role: [server for server in servers if server["role"] == role] for role in (PREFILL, DECODE)}
    ways = [
        list(way)
        for prefill in roles[PREFILL]
        for decode in roles[DECODE]
        for way in (rank_pairs(prefill, decode) if cuda else ())
    ]
    kv = {
        **common,
        "pythonpath": plan["hosts"][host]["engine_pythonpath"],
        "memory": "vram" if cuda else "dram",
        "devices": devices,
        "pairs": [way for number, way in enumerate(ways) if way != devices and way not in ways[:number]],
        "environments": [dict(server["environment"]) for server in ends] if len(ends) == 2 else [],
    }
    collectives = {
        **common,
        "backend": "nccl",
        "devices": gpus,
        "ranks": rank_counts(len(gpus)),
        "environment": dict(servers[0]["environment"]),
    }
    moves = plan.get("arm") is None or bool(ends)
    return {"kv": kv if moves else None, "collectives": collectives if cuda and len(gpus) > 1 else None}
