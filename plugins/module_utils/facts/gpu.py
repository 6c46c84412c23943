# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs: what the driver says through nvidia-smi, and how they hang on the PCI bus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import nvidia_smi, pci
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Command, Source

NVIDIA = "0x10de"
# PCI base class 03: display controllers (VGA, 3D).
DISPLAY_CLASS = "0x03"
# The control daemon and its server have this name.
MPS = "nvidia-cuda-mps-server"


def start_gpus(source: Source) -> dict[str, Command] | None:
    """Ask nvidia-smi for all that it knows, all at once; None when it is not installed."""
    smi = source.which("nvidia-smi")
    if smi is None:
        return None
    questions = {
        "query": nvidia_smi.QUERY,
        "capability": nvidia_smi.CAPABILITY,
        "topology": nvidia_smi.TOPOLOGY,
        **nvidia_smi.P2P,
    }
    return {name: source.command([smi, *arguments]) for name, arguments in questions.items()}


def read_gpus(
    source: Source,
    devices: list[str],
    started: dict[str, Command] | None,
    remaining_s: Callable[[], float],
    is_own: Callable[[int], bool],
) -> dict[str, Any]:
    """{"pci_devices", "driver", "cuda_version", "error", "mps", "topology", "p2p", "nvlink", "gpus"}.

    `gpus` is None when the driver does not answer, and `error` says why. A GPU is what nvidia_smi.parse_query
    returns, with "compute_capability", "numa_node" (-1 stays -1), "iommu_group", "bridges" (from the root port
    down), and "own" at each process; `is_own` tells pdlab's processes by their PID. `topology` and `p2p`
    ({"read", "write"}) are {"0-1": word} in both directions. `devices` are what pci_gpus found.
    """
    facts: dict[str, Any] = {
        "pci_devices": devices,
        "driver": None,
        "cuda_version": None,
        "error": None,
        "mps": None,
        "topology": None,
        "p2p": None,
        "nvlink": None,
        "gpus": None,
    }
    if started is None:
        return {**facts, "error": "nvidia-smi is not installed"}
    query = started["query"].result(remaining_s())
    if query.rc != 0:
        words = [line for line in (query.stdout + query.stderr).splitlines() if not line.lstrip().startswith("<")]
        return {**facts, "error": " ".join(" ".join(words).split()) or f"nvidia-smi ended with {query.rc}"}
    try:
        facts.update(nvidia_smi.parse_query(query.stdout))
    except ValueError as error:
        return {**facts, "error": str(error)}
    said = {name: _answer(started[name], remaining_s()) for name in started if name != "query"}
    capabilities = nvidia_smi.parse_capabilities(said["capability"] or "")
    for gpu in facts["gpus"]:
        gpu["compute_capability"] = capabilities.get(gpu["pci"])
        _place(source, gpu)
        for process in gpu["processes"] or []:
            process["own"] = process["pid"] is not None and is_own(process["pid"])
    facts["mps"] = read_mps(source, facts["gpus"])
    facts["topology"] = nvidia_smi.parse_matrix(said["topology"] or "")
    p2p = {way: nvidia_smi.parse_matrix(said[way] or "") for way in nvidia_smi.P2P}
    facts["p2p"] = p2p if any(matrix is not None for matrix in p2p.values()) else None
    if facts["topology"] is not None:
        facts["nvlink"] = any(word.startswith("NV") for word in facts["topology"].values())
    return facts


def _answer(command: Command, timeout_s: float) -> str | None:
    said = command.result(timeout_s)
    return said.stdout if said.rc == 0 else None


def pci_gpus(source: Source) -> list[str]:
    """PCI addresses of NVIDIA's display controllers, seen with or without a driver."""
    return [
        address
        for address in source.names(pci.DEVICES)
        if source.text(f"{pci.DEVICES}/{address}/vendor") == NVIDIA
        and (source.text(f"{pci.DEVICES}/{address}/class") or "").startswith(DISPLAY_CLASS)
    ]


def read_mps(source: Source, gpus: Iterable[dict[str, Any]]) -> bool | None:
    """Whether the multi-process service runs; None in a container that does not show it: it may run outside."""
    clients = [process for gpu in gpus for process in gpu["processes"] or [] if "M" in (process["type"] or "")]
    running = True if clients else source.running(MPS)
    # The kernel's own processes (kthreadd is 2) are seen only from the host's PID namespace.
    return running or (False if running is False and source.text("/proc/2/comm") == "kthreadd" else None)


def _place(source: Source, gpu: dict[str, Any]) -> None:
    """Add what sysfs says of a GPU. Its link's maximum is the least of driver's word, device and slot."""
    address = gpu["pci"]
    gpu["numa_node"] = pci.read_number(source, f"{pci.DEVICES}/{address}/numa_node")
    gpu["iommu_group"] = pci.iommu_group(source, address)
    gpu["bridges"] = pci.bridges_of(source, address)
    link = gpu["pcie"]
    device = pci.read_link(source, address)
    slot = pci.read_link(source, gpu["bridges"][-1]) if gpu["bridges"] else {}
    link["device_generation_max"] = _known(link["device_generation_max"], device["generation_max"])
    for key in ("generation", "width"):
        link[key] = _known(link[key], device[key])
        most = f"{key}_max"
        link[most] = min(filter(None, (link[most], device[most], slot.get(most))), default=None)


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def read_bridges(source: Source, devices: Iterable[str]) -> dict[str, dict[str, Any]]:
    """{PCI address: pci.read_bridge} of every bridge above these GPUs."""
    above = {bridge for device in devices for bridge in pci.bridges_of(source, device) or []}
    return {bridge: pci.read_bridge(source, bridge) for bridge in sorted(above)}
