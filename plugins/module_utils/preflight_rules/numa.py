# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on NUMA: the nodes that are asked for, where GPUs lie, and whether binding is possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    INFO,
    VETO,
    WARN,
    Rule,
    View,
    gpu_names,
    grouped,
    has_servers,
    uses_gpus,
)

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

NUMA_UTILS = "sglang 0.5.23, srt/utils/numa_utils.py"
EVERY_GPU_HAS_A_NODE = "a node for every GPU in /sys/bus/pci/devices/*/numa_node"
LOST_NODE_CURE = (
    "numactl --hardware and nvidia-smi topo -m show what is known; switch on NUMA (NPS) and ACPI in the BIOS, or write "
    "numa_node in pd_servers"
)
SYS_NICE = "docker run --cap-add SYS_NICE, where this is a container"


def _present(view: View) -> Seen:
    path = view.facts["numactl"]["path"]
    return path is not None, path or "not installed"


def _allowed(view: View) -> Seen:
    tried = view.facts["numactl"]["nodes"]
    known = {str(node["node"]) for node in view.facts["numa"] or []}
    asked = [str(node) for node in view.nodes_asked if str(node) in known] or sorted(set(tried) & (known or {"0"}))
    answers = {node: tried.get(node) or {"ok": None, "said": "not tried"} for node in asked}
    refused = [
        f"node {node}: {answer['said'] or 'no reason given'}"
        for node, answer in answers.items()
        if answer["ok"] is False
    ]
    if refused:
        return False, "; ".join(refused)
    unknown = [f"node {node}: {answer['said']}" for node, answer in answers.items() if answer["ok"] is None]
    return (None, "; ".join(unknown)) if unknown else (True, f"node {', '.join(answers)} can be bound")


def _node(view: View) -> Seen:
    nodes = view.facts["numa"]
    if nodes is None:
        return None, "the kernel shows no NUMA nodes"
    known = [node["node"] for node in nodes]
    missing = [str(node) for node in view.nodes_asked if node not in known]
    has = f"this box has node {', '.join(map(str, known))}"
    return not missing, f"no node {', '.join(missing)}; {has}" if missing else has


def _has_numactl(view: View) -> bool:
    return view.facts["numactl"]["path"] is not None


def _binds_itself(view: View) -> bool:
    """SGLang binds its GPU processes itself on such a box."""
    return view.cuda and view.node_count > 1 and _has_numactl(view)


def _tmp(view: View) -> Seen:
    noexec = view.path("/tmp").get("noexec")
    if noexec is None:
        return None, "/tmp cannot be asked"
    return not noexec, "noexec" if noexec else "programs may run"


def nodes_of(view: View, server: Mapping[str, Any]) -> dict[int, list[int]]:
    """The GPUs of a server by their NUMA node, of those whose node is known."""
    found: dict[int, list[int]] = {}
    for index in server["gpus"]:
        node = view.gpu(index).get("numa_node")
        if node is not None and node >= 0:
            found.setdefault(node, []).append(index)
    return found


def _gpus_without_node(view: View) -> Seen:
    nodes = [gpu.get("numa_node") for gpu in view.used_gpus]
    if -1 in nodes:
        return False, "; ".join(grouped(view, lambda gpu: "NUMA node -1" if gpu.get("numa_node") == -1 else None))
    if None in nodes:
        return None, "the kernel does not say at which node the GPUs lie"
    return True, "; ".join(grouped(view, lambda gpu: f"node {gpu['numa_node']}"))


def _unplaced(view: View) -> list[Mapping[str, Any]]:
    """Servers that were to be bound to the node of their GPUs, and could not be (numa_placement.py)."""
    return [server for server in view.servers if server.get("numa_pending")] if view.node_count > 1 else []


def _unplaced_across(view: View) -> list[Mapping[str, Any]]:
    return [server for server in _unplaced(view) if len(nodes_of(view, server)) > 1]


def _unplaced_without_node(view: View) -> list[Mapping[str, Any]]:
    return [
        server for server in _unplaced(view) if any(view.gpu(index).get("numa_node") == -1 for index in server["gpus"])
    ]


def _spread(view: View) -> Seen:
    seen, spread = [], False
    for server in view.servers:
        by_node = nodes_of(view, server)
        spread = spread or len(by_node) > 1
        each = ", ".join(f"{gpu_names(gpus)} at node {node}" for node, gpus in sorted(by_node.items()))
        seen.append(f"{server['name']}: {each or 'node unknown'}")
    return not spread, "; ".join(seen)


def _misplaced(view: View) -> Seen:
    wrong: list[str] = []
    right: list[str] = []
    bound = [server for server in view.servers if server["numa_node"] is not None]
    for server in bound:
        for node, gpus in sorted(nodes_of(view, server).items()):
            said = f"{server['name']} is bound to node {server['numa_node']}, {gpu_names(gpus)} at node {node}"
            (right if node == server["numa_node"] else wrong).append(said)
    if wrong:
        return False, "; ".join(wrong)
    if any(view.gpu(index).get("numa_node") in (None, -1) for server in bound for index in server["gpus"]):
        return None, "at which node a GPU lies is not known"
    return True, "; ".join(right)


def _balancing(view: View) -> Seen:
    state = view.facts["memory"].get("numa_balancing")
    return (None, "the kernel does not say") if state is None else (not state, "on" if state else "off")


RULES: tuple[Rule, ...] = (
    Rule(
        id="numa_node_absent",
        severity=VETO,
        finds="`numa_node` of a server is a node that this box does not have",
        applies=lambda view: bool(view.nodes_asked),
        check=_node,
        wanted=lambda view: f"NUMA nodes {', '.join(map(str, view.nodes_asked))}",
        why="pd_servers binds servers to them.",
        cure="correct numa_node in pd_servers (numactl --hardware lists the nodes), or leave it out",
    ),
    Rule(
        id="gpu_at_another_node",
        severity=VETO,
        finds="a server that is bound to one NUMA node with a GPU at another",
        applies=lambda view: uses_gpus(view) and bool(view.nodes_asked),
        check=_misplaced,
        wanted="every GPU of a server at the server's own node",
        why="SGLang binds each GPU process to its GPU's node; inside another binding no CPU is left, and the server ends.",
        cure="correct numa_node or gpus in pd_servers (nvidia-smi topo -m shows the nodes), or leave numa_node out",
        source=NUMA_UTILS,
    ),
    Rule(
        id="gpus_across_numa_nodes",
        severity=VETO,
        finds="the GPUs of one server lie at several NUMA nodes, and the inventory does not say that this is meant",
        applies=lambda view: uses_gpus(view) and bool(_unplaced_across(view)),
        check=_spread,
        wanted="the GPUs of each server at one node",
        why="Every all-reduce then crosses the link between the sockets, and no binding is right for the whole server.",
        cure="choose gpus at one node in pd_servers (nvidia-smi topo -m shows them), or write numa_node: unbound",
    ),
    Rule(
        id="gpus_across_numa_nodes",
        severity=WARN,
        finds="the same where it is meant",
        applies=lambda view: uses_gpus(view) and view.node_count > 1 and not _unplaced_across(view),
        check=_spread,
        wanted="the GPUs of each server at one node",
        why="Every all-reduce then crosses the link between the sockets.",
        cure="choose gpus at one node in pd_servers (nvidia-smi topo -m shows them), or take it for a model that needs more",
    ),
    Rule(
        id="gpu_without_numa_node",
        severity=VETO,
        finds="a GPU with NUMA node -1 on a box with several nodes, and the inventory names no node for its server",
        applies=lambda view: uses_gpus(view) and bool(_unplaced_without_node(view)),
        check=_gpus_without_node,
        wanted=EVERY_GPU_HAS_A_NODE,
        why="Neither pdlab nor SGLang can tell which CPUs and memory are near such a GPU.",
        cure=LOST_NODE_CURE,
    ),
    Rule(
        id="gpu_without_numa_node",
        severity=WARN,
        finds="the same where the inventory names a node, or says unbound",
        applies=lambda view: uses_gpus(view) and view.node_count > 1 and not _unplaced_without_node(view),
        check=_gpus_without_node,
        wanted=EVERY_GPU_HAS_A_NODE,
        why="SGLang cannot bind the processes of such a GPU, and nothing holds the inventory's word against the box.",
        cure=LOST_NODE_CURE,
    ),
    Rule(
        id="gpu_without_numa_node",
        severity=INFO,
        finds="the same on a box with one node, as virtual machines have it",
        applies=lambda view: uses_gpus(view) and view.node_count == 1,
        check=_gpus_without_node,
        wanted="a node for every GPU, where there is more than one node",
        why="With one node there is nothing to choose; in a virtual machine the real nodes may be hidden.",
        cure="a real machine needs nothing done; for a virtual one ask the machine that it runs on: numactl --hardware",
    ),
    Rule(
        # As root, the role host installs it before the servers need it.
        id="numactl_absent",
        severity=VETO,
        finds="numactl is missing, a `numa_node` is asked for, and pdlab is not root",
        applies=lambda view: bool(view.nodes_asked) and not view.facts["root"],
        check=_present,
        wanted="numactl",
        why="A numa_node is asked for, and without root pdlab cannot install what binds to it.",
        cure="apt-get install numactl (as root), or leave numa_node out",
    ),
    Rule(
        id="numactl_absent",
        severity=WARN,
        finds="numactl is missing otherwise",
        applies=lambda view: has_servers(view) and not (view.nodes_asked and not view.facts["root"]),
        check=_present,
        wanted="numactl",
        why="SGLang binds its GPU processes to NUMA nodes with it, and without it leaves them unbound in silence.",
        cure="apt-get install numactl (as root, the role host does it)",
        source=NUMA_UTILS,
    ),
    Rule(
        id="numactl_refused",
        severity=VETO,
        finds="numactl is there and may not bind to a node that is asked for",
        applies=lambda view: bool(view.nodes_asked) and _has_numactl(view),
        check=_allowed,
        wanted=lambda view: (
            f"numactl --cpunodebind=N --membind=N true to work for N = {', '.join(map(str, view.nodes_asked))}"
        ),
        why="Every server of this host starts under that command.",
        cure=f"{SYS_NICE}; or leave numa_node out",
        source="sglang #27368, #28401",
    ),
    Rule(
        id="numactl_refused",
        severity=WARN,
        finds="the same on a GPU box with several nodes, where no `numa_node` is asked for",
        applies=lambda view: _binds_itself(view) and not view.nodes_asked,
        check=_allowed,
        wanted="numactl --cpunodebind=0 --membind=0 true to work",
        why="SGLang binds its GPU processes with it, and falls back to no binding.",
        cure=SYS_NICE,
        source="sglang #27368, #28401",
    ),
    Rule(
        id="tmp_noexec",
        severity=VETO,
        finds="no program may be run from /tmp, on a GPU box with several nodes and numactl",
        applies=_binds_itself,
        check=_tmp,
        wanted="/tmp from which programs may be run",
        why="SGLang writes its NUMA wrappers there and executes them.",
        cure="mount -o remount,exec /tmp",
        source=NUMA_UTILS,
    ),
    Rule(
        id="tmp_noexec",
        severity=WARN,
        finds="the same elsewhere",
        applies=lambda view: not _binds_itself(view),
        check=_tmp,
        wanted="/tmp from which programs may be run",
        why="Compilers of kernels write programs there and load them.",
        cure="mount -o remount,exec /tmp",
    ),
    Rule(
        id="numa_balancing_on",
        severity=WARN,
        finds="the kernel moves memory between NUMA nodes by itself, on a GPU box with several nodes",
        applies=lambda view: uses_gpus(view) and view.node_count > 1,
        check=_balancing,
        wanted="kernel.numa_balancing = 0",
        why="It unmaps pages to see who uses them, which costs page faults and gains nothing for servers that are bound.",
        cure="sysctl -w kernel.numa_balancing=0; to make it last, pd_host: {numa_balancing: false}",
        source="Linux, Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
    ),
)
