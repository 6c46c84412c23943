# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs and NUMA nodes."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.memory import read_huge_pages
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Command, Said, Source
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_binding import parse_list

NODES = "/sys/devices/system/node"
POLICIES = "/sys/devices/system/cpu/cpufreq"
# `hypervisor` is set for the guest of a virtual machine.
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "hypervisor")


def read_cpu(source: Source) -> dict[str, Any]:
    """{"model", "vendor", "count", "usable", "flags", "governor"}.

    `usable` is the number of CPUs that this process may run on; `governor` counts the CPUs under each name, and is
    None where the kernel does not choose their frequency (in most virtual machines).
    """
    text = source.text("/proc/cpuinfo") or ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    vendor = re.search(r"^vendor_id\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    known = set(flags.group(1).split()) if flags else None
    return {
        "model": model.group(1).strip() if model else None,
        "vendor": vendor.group(1).strip() if vendor else None,
        **source.cpus(),
        "flags": {flag: flag in known for flag in FLAGS} if known is not None else None,
        "governor": read_governors(source),
    }


def read_governors(source: Source) -> dict[str, int] | None:
    """{"performance": 128}: how many CPUs each governor rules; None when the kernel shows none."""
    counts: dict[str, int] = {}
    for name in source.names(POLICIES):
        governor = source.text(f"{POLICIES}/{name}/scaling_governor")
        if governor:
            cpus = (source.text(f"{POLICIES}/{name}/affected_cpus") or "").split()
            counts[governor] = counts.get(governor, 0) + max(1, len(cpus))
    return counts or None


def read_nodes(source: Source) -> list[dict[str, Any]] | None:
    """[{"node", "cpus", "memory_total_bytes", "memory_free_bytes", "distances", "hugepages"}] by node.

    None when the kernel shows no nodes. `distances` are to each node in order (ACPI's SLIT: 10 is the node itself).
    """
    nodes = []
    for name in source.names(NODES):
        if re.fullmatch(r"node\d+", name):
            memory = source.text(f"{NODES}/{name}/meminfo") or ""
            nodes.append(
                {
                    "node": int(name[4:]),
                    "cpus": sorted(parse_list(source.text(f"{NODES}/{name}/cpulist") or "")),
                    "memory_total_bytes": _kib(memory, "MemTotal"),
                    "memory_free_bytes": _kib(memory, "MemFree"),
                    "distances": _distances(source.text(f"{NODES}/{name}/distance")),
                    "hugepages": read_huge_pages(source, f"{NODES}/{name}/hugepages"),
                }
            )
    return sorted(nodes, key=lambda node: int(node["node"])) or None


def _distances(text: str | None) -> list[int] | None:
    return [int(word) for word in text.split() if word.isdigit()] if text else None


def _kib(text: str, name: str) -> int | None:
    found = re.search(rf"\b{name}:\s+(\d+) kB", text)
    return int(found.group(1)) * 1024 if found else None


def start_bindings(source: Source, nodes: list[int]) -> dict[int, Command] | None:
    """Try the binding of each node on `true`; None when numactl is not installed."""
    numactl = source.which("numactl")
    if numactl is None:
        return None
    return {node: source.command([numactl, f"--cpunodebind={node}", f"--membind={node}", "true"]) for node in nodes}


def read_bindings(source: Source, started: dict[int, Command] | None, timeout_s: float) -> dict[str, Any]:
    """{"path", "nodes": {"0": {"ok", "said"}}}: whether numactl is there and lets each node be bound."""
    if started is None:
        return {"path": None, "nodes": {}}
    nodes = {str(node): _binding(command.result(timeout_s)) for node, command in started.items()}
    return {"path": source.which("numactl"), "nodes": nodes}


def _binding(said: Said) -> dict[str, Any]:
    ok = None if said.rc is None else said.rc == 0
    # After its reason numactl prints its whole usage.
    return {"ok": ok, "said": next(iter((said.stderr or said.stdout).strip().splitlines()), "")}
