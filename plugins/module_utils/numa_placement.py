# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NUMA node each server is bound to, from what its box says about its GPUs. Pure: no I/O.

An inventory names GPUs; at which node they lie only the box knows. So the resolver leaves `numa_node` open
(`numa_pending`) where the inventory does not say it, and `place` closes it from box_facts' facts: before anything
is judged or started, and for `pdlab plan --box` from a recording. docs/decisions/0010-numa-from-the-gpus.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import server_argv, server_environment
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults

UNBOUND = "unbound"
PENDING = "of its GPUs, read on the box"
WRITTEN = "as the inventory says"
LEFT_UNBOUND = "not bound, as the inventory says"
WITHOUT_GPUS = "not bound: no GPUs, and the inventory names no node"
Facts = Mapping[str, Any]


def asked_binding(written: int | str | None, gpus: Iterable[int]) -> dict[str, Any]:
    """The plan's NUMA keys of a server before anything is known of its box.

    `written` is the inventory's `numa_node`: a node, "unbound" or None. Returns {"numa_node": int|None,
    "numa_pending": bool, "numa_reason": str}.
    """
    if isinstance(written, int):
        return {"numa_node": written, "numa_pending": False, "numa_reason": WRITTEN}
    if written == UNBOUND:
        return {"numa_node": None, "numa_pending": False, "numa_reason": LEFT_UNBOUND}
    if not list(gpus):
        return {"numa_node": None, "numa_pending": False, "numa_reason": WITHOUT_GPUS}
    return {"numa_node": None, "numa_pending": True, "numa_reason": PENDING}


def pending(plan: Mapping[str, Any], host: str) -> bool:
    """Whether a server of this host waits for its box to say where its GPUs lie."""
    return any(server["numa_pending"] for server in engines_of(plan) if server["host"] == host)


def engines_of(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All SGLang servers of a plan, the reference included."""
    return [*plan["servers"], *([plan["reference"]] if plan["reference"] else [])]


def place(plan: Mapping[str, Any], boxes: Mapping[str, Facts], faults: Faults | None = None) -> dict[str, Any]:
    """The plan with every pending server of the hosts in `boxes` bound; what cannot be is noted in `faults`.

    `boxes`: host -> facts as box_facts returns them. A server whose node is written is held against its GPUs, too:
    SGLang binds each rank to its own GPU's node, and refuses to start when that lies outside.
    """
    noted = Faults() if faults is None else faults
    places = {server["name"]: index for index, server in enumerate(plan["servers"])}

    def placed(server: Mapping[str, Any]) -> dict[str, Any]:
        if server["host"] not in boxes or server["numa_reason"] in (LEFT_UNBOUND, WITHOUT_GPUS):
            return dict(server)
        key = f"pd_servers[{places[server['name']]}]" if server["name"] in places else None
        found = _binding(server, boxes[server["host"]], key, noted)
        if not server["numa_pending"] or found is None:
            return dict(server)
        node, reason = found
        bound = {**server, "numa_node": node, "numa_pending": False, "numa_reason": reason}
        return {**bound, "argv": server_argv(bound), "environment": server_environment(bound)}

    reference = placed(plan["reference"]) if plan["reference"] else None
    return {**plan, "servers": [placed(server) for server in plan["servers"]], "reference": reference}


def _binding(server: Mapping[str, Any], facts: Facts, key: str | None, faults: Faults) -> tuple[int | None, str] | None:
    """(node or None, reason), or None after a fault. The reference (no `key`) has its decode server's faults."""
    mine = faults if key else Faults()
    key = key or "pd_servers"
    known = facts["gpu"]["gpus"]
    if known is None:
        said = facts["gpu"]["error"] or "nvidia-smi does not answer"
        problem = f"of {server['host']}: nobody can say at which NUMA node they lie ({said})"
        mine.add(f"{key}.gpus", problem, "see that nvidia-smi lists the GPUs, or write numa_node")
        return None
    node_of = {gpu["index"]: gpu.get("numa_node") for gpu in known}
    missing = [gpu for gpu in server["gpus"] if gpu not in node_of]
    if missing:
        has = ", ".join(map(str, sorted(node_of))) or "none"
        problem = f"GPU {_list(missing)} is not on {server['host']}, which has {has}"
        mine.add(f"{key}.gpus", problem, "name GPUs that nvidia-smi lists")
        return None
    nodes = [node["node"] for node in facts["numa"] or []]
    if len(nodes) <= 1:
        return None, "not bound: the box has one NUMA node"
    return _one_node(server, node_of, key, mine)


def _one_node(
    server: Mapping[str, Any], node_of: Mapping[int, int | None], key: str, faults: Faults
) -> tuple[int | None, str] | None:
    """The node on which all GPUs of a server lie, on a box with several."""
    gpus, written = server["gpus"], server["numa_node"]
    lost = [gpu for gpu in gpus if node_of[gpu] is None or int(node_of[gpu] or 0) < 0]
    if lost:
        if server["numa_pending"]:
            problem = f"the firmware of {server['host']} does not say at which NUMA node GPU {_list(lost)} {_lie(lost)}"
            cure = "write numa_node (nvidia-smi topo -m may know it), or `numa_node: unbound`"
            faults.add(f"{key}.numa_node", problem, cure)
        return None
    by_node: dict[int, list[int]] = {}
    for gpu in gpus:
        by_node.setdefault(int(node_of[gpu] or 0), []).append(gpu)
    if len(by_node) > 1:
        where = ", ".join(f"{_list(some)} at node {node}" for node, some in sorted(by_node.items()))
        problem = f"the GPUs lie across NUMA nodes: {where}"
        cure = "choose GPUs of one node, or write `numa_node: unbound` to say that it is meant"
        faults.add(f"{key}.gpus", problem, cure)
        return None
    (node,) = by_node
    if written is not None and written != node:
        problem = f"is {written}, and GPU {_list(gpus)} of {server['host']} {_lie(gpus)} at node {node}"
        faults.add(f"{key}.numa_node", problem, f"remove it, or write {node}")
        return None
    return node, f"GPU {_list(gpus)} {_lie(gpus)} there"


def _lie(gpus: Iterable[int]) -> str:
    return "lies" if len(list(gpus)) == 1 else "lie"


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
