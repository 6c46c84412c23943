# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on memory and limits: how much there is, what may be locked, /dev/shm, swap, huge pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    GIB,
    INFO,
    VETO,
    WARN,
    Rule,
    View,
    has_parts,
    has_servers,
    size,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import UNLIMITED, ServiceDefinition

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

# Anonymous memory of a server's processes beside weights and KV cache: 2.3 GiB measured on the CPU with the canary
# (main 0.7, scheduler 1.0, detokenizer 0.7), 0.5 GiB for the router. The GPU ranks' share is an estimate.
SERVER_BYTES = int(2.5 * GIB)
ROUTER_BYTES = GIB // 2
GPU_RANK_BYTES = 3 * GIB
SMALLEST_SHM_BYTES = 1 * GIB
SMALLEST_MEMLOCK_BYTES = 1 * GIB
SMALLEST_NOFILE = 4096
# What pdlab's units ask of systemd.
UNIT_LIMITS = {"memlock_bytes": ServiceDefinition.limit_memlock, "nofile": ServiceDefinition.limit_nofile}


def _memory_bytes(view: View) -> float:
    ranks = len(view.gpus_declared)
    return (
        SERVER_BYTES * len(view.servers) + GPU_RANK_BYTES * ranks + ROUTER_BYTES * (len(view.parts) - len(view.servers))
    )


def _memory(view: View) -> Seen:
    memory = view.facts["memory"]
    available, own, limit = memory["available_bytes"], memory["own_bytes"], memory["cgroup_limit_bytes"]
    if available is None:
        return None, "/proc/meminfo has no MemAvailable"
    usable = min(available + own, limit) if limit else available + own
    held = f", {size(own)} of it held by pdlab's own services" if own else ""
    bounded = f", cgroup limit {size(limit)}" if limit else ""
    return usable >= _memory_bytes(view), f"{size(usable)} available{held}{bounded}"


def node_bytes(view: View) -> dict[int, int]:
    """What the servers that are bound to a NUMA node need of its memory, by node."""
    wanted: dict[int, int] = {}
    for server in view.servers:
        if server["numa_node"] is not None:
            count = SERVER_BYTES + GPU_RANK_BYTES * len(server["gpus"])
            wanted[server["numa_node"]] = wanted.get(server["numa_node"], 0) + count
    return wanted


def _node_memory(view: View) -> Seen:
    known = {node["node"]: node["memory_total_bytes"] for node in view.facts["numa"] or []}
    seen, small, blind = [], False, False
    for node, wanted in sorted(node_bytes(view).items()):
        total = known.get(node)
        blind = blind or total is None
        small = small or (total is not None and total < wanted)
        seen.append(f"node {node} has {'unknown memory' if total is None else size(total)}")
    return (None if blind and not small else not small), "; ".join(seen)


def _swap(view: View) -> Seen:
    total = view.facts["memory"]["swap_total_bytes"]
    if total is None:
        return None, "/proc/meminfo has no SwapTotal"
    return total == 0, f"{size(total)} of swap" if total else "no swap"


def _shm(view: View) -> Seen:
    shm = view.facts["shm"]
    if shm is None:
        return None, "/dev/shm cannot be asked"
    return shm["total_bytes"] >= SMALLEST_SHM_BYTES, size(shm["total_bytes"])


def _limit(view: View, name: str, smallest: int) -> Seen:
    """A limit as pdlab's services get it: what its unit asks for, where PID 1 may grant it; otherwise this session's."""
    limits = view.facts["limits"]
    of_session = limits["process"][name]["hard"]
    if view.facts["init"] == "systemd" and view.facts["root"]:
        asked = UNIT_LIMITS[name]
        if view.facts["container"] == "none":
            # PID 1 of a machine may raise every limit; systemd.exec(5).
            return asked == UNLIMITED or asked >= smallest, f"{_limit_said(asked)}, as pdlab's systemd units ask for"
        # In a container systemd lowers what it may not give, in silence, to its own hard limit.
        granted = [value for value in ((limits["services"] or {}).get(name), of_session) if value is not None]
        if not granted:
            return None, "what systemd may give in this container cannot be read"
        best = "unlimited" if "unlimited" in granted else max(granted)
        return _enough(best, smallest), f"{best} for a unit in this {view.facts['container'] or 'unknown'} container"
    if of_session is None:
        return None, "this session's limit cannot be read"
    return _enough(of_session, smallest), f"{of_session} for this session, under which supervisor runs the servers"


def _enough(limit: int | str, smallest: int) -> bool:
    return limit == "unlimited" or int(limit) >= smallest


def _limit_said(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else str(limit)


def _huge_pages(view: View) -> Seen:
    state = view.facts["memory"].get("thp")
    return (None, "the kernel does not say") if state is None else (state != "always", state)


RULES: tuple[Rule, ...] = (
    Rule(
        id="memory_too_small",
        severity=VETO,
        finds="less available memory, or a smaller cgroup limit, than 2.5 GiB a server, 3 GiB a GPU and 0.5 GiB for "
        "the router",
        applies=has_servers,
        check=_memory,
        wanted=lambda view: f"{size(_memory_bytes(view))} available",
        why="The kernel ends a server that runs out of memory, in the middle of a request.",
        cure="end what uses the memory (ps aux --sort=-rss | head), or run fewer servers here",
    ),
    Rule(
        id="numa_node_memory_small",
        severity=WARN,
        finds="a NUMA node with less memory than the servers that are bound to it need",
        applies=lambda view: bool(view.nodes_asked),
        check=_node_memory,
        wanted=lambda view: "; ".join(
            f"{size(count)} at node {node}" for node, count in sorted(node_bytes(view).items())
        ),
        why="numactl --membind allows no other node: the kernel ends the server while other nodes have room.",
        cure="numactl --hardware shows the memory of each node; fill the node's slots, or leave numa_node out",
    ),
    Rule(
        id="shm_too_small",
        severity=WARN,
        finds="less than 1 GiB of /dev/shm",
        applies=has_servers,
        check=_shm,
        wanted=f"{size(SMALLEST_SHM_BYTES)} of /dev/shm",
        why="NCCL and UCX share memory between processes through it; containers often have 64 MiB.",
        cure="mount -o remount,size=8G /dev/shm; to make it last, pd_host: {shm_gib: 8}; "
        "in a container --ipc=host or --shm-size=8g",
        source="ucx #10070, #11546",
    ),
    Rule(
        # Without RDMA devices and GPUs nothing is pinned.
        id="memlock_too_low",
        severity=WARN,
        finds="less than 1 GiB of memory may be locked by the servers, on a box with GPUs or RDMA devices. Under systemd "
        "that is what pdlab's units ask for (all), in a container at most what the container has, elsewhere what this "
        "session has",
        applies=lambda view: bool(view.servers) and (view.cuda or bool(view.facts["infiniband"])),
        check=lambda view: _limit(view, "memlock_bytes", SMALLEST_MEMLOCK_BYTES),
        wanted=f"unlimited, at least {SMALLEST_MEMLOCK_BYTES}",
        why="UCX pins the memory that it registers for RDMA and fails when it may not.",
        cure="ulimit -l unlimited in the session that runs pdlab, or --ulimit memlock=-1 for the container; "
        "to make it last, pd_host: {limits: {memlock_gib: unlimited}}",
        source="mlperf-automations #664",
    ),
    Rule(
        id="nofile_too_low",
        severity=WARN,
        finds="fewer than 4096 open files are allowed to the servers",
        applies=has_parts,
        check=lambda view: _limit(view, "nofile", SMALLEST_NOFILE),
        wanted=f"{SMALLEST_NOFILE} open files",
        why="Every request, ZMQ socket and UCX connection is one.",
        cure="raise the hard limit: ulimit -Hn, or nofile in /etc/security/limits.conf, as pd_host: {limits: {nofile: 1048576}} does",
    ),
    Rule(
        id="swap_on",
        severity=INFO,
        finds="swap is on",
        applies=has_servers,
        check=_swap,
        wanted="no swap",
        why="A server of which parts were swapped out answers late now and then, which no average shows.",
        cure="swapoff -a, for the time of a measurement; to make it last, pd_host: {swap: false}",
    ),
    Rule(
        id="huge_pages_always",
        severity=INFO,
        finds="transparent huge pages are forced on every process, on a GPU box",
        applies=lambda view: view.cuda,
        check=_huge_pages,
        wanted="madvise or never",
        why="The kernel then stops a process now and then to make huge pages, which shows as rare late answers.",
        cure="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; "
        "to make it last, pd_host: {transparent_hugepages: madvise}",
        source="Linux, Documentation/admin-guide/mm/transhuge.rst",
    ),
)
