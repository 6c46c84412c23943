# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs: what the PCI bus shows, and what the driver says through nvidia-smi's CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Command, Source

PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
# PCI base class 03: display controllers (VGA, 3D).
DISPLAY_CLASS = "0x03"
FIELDS = ("index", "name", "uuid", "pci.bus_id", "memory.total", "memory.used", "driver_version")
PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")


def start_gpus(source: Source) -> tuple[Command, Command] | None:
    """Ask nvidia-smi for the GPUs and for their processes; None when it is not installed."""
    smi = source.which("nvidia-smi")
    if smi is None:
        return None
    options = "--format=csv,noheader,nounits"
    return (
        source.command([smi, "--query-gpu=" + ",".join(FIELDS), options]),
        source.command([smi, "--query-compute-apps=" + ",".join(PROCESS_FIELDS), options]),
    )


def read_gpus(
    source: Source, started: tuple[Command, Command] | None, timeout_s: float, is_own: Callable[[int], bool]
) -> dict[str, Any]:
    """{"pci_devices", "driver", "error", "gpus": [...]|None}; `gpus` is None when the driver does not answer.

    A GPU: {"index", "name", "uuid", "pci", "memory_total_mib", "memory_used_mib",
    "processes": [{"pid", "command", "memory_mib", "own"}]|None}; `is_own` tells pdlab's processes by their PID.
    """
    facts: dict[str, Any] = {"pci_devices": pci_gpus(source), "driver": None, "error": None, "gpus": None}
    if started is None:
        return {**facts, "error": "nvidia-smi is not installed"}
    gpus, processes = (command.result(timeout_s) for command in started)
    if gpus.rc != 0:
        return {**facts, "error": " ".join((gpus.stdout + gpus.stderr).split()) or f"nvidia-smi ended with {gpus.rc}"}
    by_uuid = parse_processes(processes.stdout) if processes.rc == 0 else None
    facts["gpus"], facts["driver"] = parse_gpus(gpus.stdout, by_uuid)
    for process in [process for listed in (by_uuid or {}).values() for process in listed]:
        process["own"] = process["pid"] is not None and is_own(process["pid"])
    return facts


def pci_gpus(source: Source) -> list[str]:
    """PCI addresses of NVIDIA's display controllers, seen with or without a driver."""
    return [
        address
        for address in source.names(PCI)
        if source.text(f"{PCI}/{address}/vendor") == NVIDIA
        and (source.text(f"{PCI}/{address}/class") or "").startswith(DISPLAY_CLASS)
    ]


def parse_gpus(text: str, processes: dict[str, list[dict[str, Any]]] | None) -> tuple[list[dict[str, Any]], str | None]:
    """(GPUs in index order, the driver's version) from nvidia-smi's CSV."""
    gpus, driver = [], None
    for row in _rows(text, len(FIELDS)):
        index, name, uuid, pci, total, used, driver = row
        gpus.append(
            {
                "index": _number(index),
                "name": name,
                "uuid": uuid,
                # nvidia-smi writes the domain with eight digits, sysfs with four.
                "pci": pci.lower()[-12:],
                "memory_total_mib": _number(total),
                "memory_used_mib": _number(used),
                "processes": None if processes is None else processes.get(uuid, []),
            }
        )
    return sorted(gpus, key=lambda gpu: (gpu["index"] is None, gpu["index"])), driver


def parse_processes(text: str) -> dict[str, list[dict[str, Any]]]:
    """{GPU's UUID: [{"pid", "command", "memory_mib"}]} from nvidia-smi's CSV."""
    found: dict[str, list[dict[str, Any]]] = {}
    for uuid, pid, name, memory in _rows(text, len(PROCESS_FIELDS)):
        entry = {"pid": _number(pid), "command": name, "memory_mib": _number(memory)}
        found.setdefault(uuid, []).append(entry)
    return found


def _rows(text: str, width: int) -> list[list[str]]:
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [[field.strip() for field in row] for row in rows if len(row) == width]


def _number(text: str) -> int | None:
    """A number, or None for `[N/A]` and its like."""
    return int(text) if text.isdigit() else None
