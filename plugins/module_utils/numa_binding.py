# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server really runs on the NUMA node that was asked for: read from its live processes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH, numactl_prefix

NODES = Path("/sys/devices/system/node")
TRIAL_TIMEOUT_S = 10.0
# The kernel walks the page tables of each mapping that is read, which takes seconds for a large server: the first
# mappings show the policy that the process was started with.
_MAPS_BYTES = 8192
_POLICY = re.compile(rb"^[0-9a-f]+ (\S+) ", re.MULTILINE)


def parse_list(text: str) -> set[int]:
    """Turn the kernel's list format (`0-3,8,10-11`) into numbers. Raises ValueError."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def node_cpus(node: int) -> set[int] | None:
    """Return the CPUs of a NUMA node, or None when the kernel shows no such node."""
    try:
        return parse_list((NODES / f"node{node}" / "cpulist").read_text(encoding="ascii"))
    except OSError:
        return None


def allowed_cpus(pid: int) -> set[int] | None:
    """Return the CPUs that a process may run on (Cpus_allowed_list), or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", text, re.MULTILINE)
    return parse_list(match.group(1)) if match else None


def memory_policies(pid: int) -> set[str] | None:
    """Return the memory policies of a process's mappings (`bind:1`, `default`, …), or None when unreadable."""
    try:
        with open(f"/proc/{pid}/numa_maps", "rb", buffering=0) as stream:
            data = stream.read(_MAPS_BYTES)
    except OSError:
        return None
    return {match.decode("ascii", "replace") for match in _POLICY.findall(data)} or None


def check(pids: Iterable[int], node: int) -> dict[str, Any]:
    """Return {"wanted", "ok", "seen"}: whether each process is bound to `node`, CPUs and memory.

    `seen` names what is, for each process that differs, or once for all when none does.
    """
    wanted_cpus = node_cpus(node)
    seen: list[str] = []
    ok = wanted_cpus is not None
    if wanted_cpus is None:
        seen.append(f"the kernel shows no NUMA node {node}")
    bound = 0
    for pid in pids:
        cpus, policies = allowed_cpus(pid), memory_policies(pid)
        if cpus is None or not processes.is_alive(pid):
            continue
        bound += 1
        faults = []
        if wanted_cpus is not None and not cpus <= wanted_cpus:
            faults.append(f"may run on CPUs {format_list(cpus)}")
        if policies is None:
            faults.append("its memory policy cannot be read")
        elif not policies <= {f"bind:{node}"}:
            faults.append("memory policy " + ", ".join(sorted(policies - {f"bind:{node}"})))
        if faults:
            ok = False
            seen.append(f"PID {pid} ({processes.describe(pid, 60)}): {'; '.join(faults)}")
    if bound == 0:
        ok = False
        seen.append("no process is left to look at")
    elif ok:
        seen.append(f"{bound} processes on CPUs {format_list(wanted_cpus or set())}, memory bind:{node}")
    cpus_text = format_list(wanted_cpus) if wanted_cpus else "?"
    return {"wanted": f"node {node}: CPUs {cpus_text}, memory bind:{node}", "ok": ok, "seen": seen}


def format_list(numbers: set[int]) -> str:
    """Write numbers in the kernel's list format."""
    parts: list[str] = []
    ordered = sorted(numbers)
    while ordered:
        last = 0
        while last + 1 < len(ordered) and ordered[last + 1] == ordered[last] + 1:
            last += 1
        parts.append(str(ordered[0]) if last == 0 else f"{ordered[0]}-{ordered[last]}")
        ordered = ordered[last + 1 :]
    return ",".join(parts)


def trial(node: int) -> str | None:
    """Try the binding on `true`; return why it is refused and what to do, or None when it works.

    Raises processes.ControllerGone.
    """
    try:
        outcome = processes.run_watched(
            [*numactl_prefix(node), "true"], TRIAL_TIMEOUT_S, env={"PATH": SYSTEM_PATH, "LC_ALL": "C"}
        )
    except OSError:
        return "numactl is not installed; install the package numactl, or leave numa_node out"
    if outcome.rc == 0:
        return None
    # numactl prints its whole usage after the reason.
    said = " ".join((outcome.stderr or outcome.stdout).partition("usage:")[0].split())
    known = ", ".join(sorted(entry.name[4:] for entry in NODES.glob("node[0-9]*"))) or "none"
    return explain(said, node, known)


def explain(said: str, node: int, known: str) -> str:
    """Turn numactl's refusal into what to do."""
    lowered = said.lower()
    if "out of range" in lowered or "invalid" in lowered:
        cure = f"this host can bind to nodes {known}, and to those of its cpuset only; correct numa_node"
    elif "not permitted" in lowered or "denied" in lowered:
        cure = "the sandbox forbids set_mempolicy; a container needs the capability SYS_NICE"
    elif "no numa" in lowered or "not support" in lowered or "not available" in lowered:
        cure = "this kernel has no NUMA support; leave numa_node out"
    else:
        cure = "try the same by hand on this host, or leave numa_node out"
    return f"numactl refuses node {node}: {said or 'no reason given'}; {cure}"
