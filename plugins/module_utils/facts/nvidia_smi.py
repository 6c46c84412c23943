# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi prints, as facts. Tags and words are those of drivers 535 to 580."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

QUERY = ("-q", "-x")
# The XML does not say it.
CAPABILITY = ("--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
TOPOLOGY = ("topo", "-m")
P2P = {"read": ("topo", "-p2p", "r"), "write": ("topo", "-p2p", "w")}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN, _END = "<nvidia_smi_log>", "</nvidia_smi_log>"


def address_of(bus_id: str) -> str:
    """A PCI address as sysfs writes it: nvidia-smi writes the domain with eight digits and in capitals."""
    return bus_id.strip().lower()[-12:]


def parse_query(text: str) -> dict[str, Any]:
    """{"driver", "cuda_version", "gpus"} of `nvidia-smi -q -x`; GPUs in the order of their index.

    Raises ValueError when there is no XML in it.
    """
    # Only where there is a GPU: the import takes as long as reading all other facts.
    from xml.etree import ElementTree

    # Warnings (a corrupted infoROM, say) stand before or behind it.
    start, end = text.find(_BEGIN), text.rfind(_END)
    try:
        if start < 0 or end < 0:
            raise ValueError
        log = ElementTree.fromstring(text[start : end + len(_END)])
    except (ValueError, ElementTree.ParseError):
        raise ValueError("nvidia-smi -q -x gave no XML") from None
    return {
        "driver": _said(log, "driver_version"),
        "cuda_version": _said(log, "cuda_version"),
        "gpus": [_gpu(index, element) for index, element in enumerate(log.findall("gpu"))],
    }


def _gpu(index: int, gpu: Element) -> dict[str, Any]:
    power = ("gpu_power_readings", "power_readings")
    return {
        "index": index,
        "name": _said(gpu, "product_name"),
        "uuid": _said(gpu, "uuid"),
        "pci": address_of(gpu.get("id") or _said(gpu, "pci/pci_bus_id") or ""),
        "memory_total_mib": _whole(gpu, "fb_memory_usage/total"),
        "memory_used_mib": _whole(gpu, "fb_memory_usage/used"),
        "processes": _processes(gpu),
        "persistence": _enabled(gpu, "persistence_mode"),
        "performance_state": _said(gpu, "performance_state"),
        "power_limit_w": _first(_number(gpu, f"{at}/{name}") for at in power for name in _POWER_LIMIT),
        "power_default_w": _first(_number(gpu, f"{at}/default_power_limit") for at in power),
        "power_max_w": _first(_number(gpu, f"{at}/max_power_limit") for at in power),
        "ecc": _enabled(gpu, "ecc_mode/current_ecc"),
        "mig": _enabled(gpu, "mig_mode/current_mig"),
        "compute_mode": _said(gpu, "compute_mode"),
        "clocks_mhz": {
            "sm": _whole(gpu, "clocks/sm_clock"),
            "sm_max": _whole(gpu, "max_clocks/sm_clock"),
            "memory": _whole(gpu, "clocks/mem_clock"),
            "memory_max": _whole(gpu, "max_clocks/mem_clock"),
        },
        "throttle_reasons": _throttle_reasons(gpu),
        "temperature_c": _whole(gpu, "temperature/gpu_temp"),
        "bar1_total_mib": _whole(gpu, "bar1_memory_usage/total"),
        "pcie": {
            "generation": _whole(gpu, f"{_GENERATION}/current_link_gen"),
            "generation_max": _whole(gpu, f"{_GENERATION}/max_link_gen"),
            "device_generation_max": _whole(gpu, f"{_GENERATION}/max_device_link_gen"),
            "width": _whole(gpu, f"{_WIDTHS}/current_link_width"),
            "width_max": _whole(gpu, f"{_WIDTHS}/max_link_width"),
        },
    }


# Its name from driver 530 on, and the older ones.
_POWER_LIMIT = ("current_power_limit", "enforced_power_limit", "power_limit")
_GENERATION = "pci/pci_gpu_link_info/pcie_gen"
_WIDTHS = "pci/pci_gpu_link_info/link_widths"


def _processes(gpu: Element) -> list[dict[str, Any]] | None:
    """[{"pid", "command", "memory_mib", "type"}] of the processes that compute; None when they are not listed.

    `type` is C, C+G, or M+C for a client of MPS.
    """
    listed = gpu.find("processes")
    if listed is None or (listed.text or "").strip() == "N/A":
        return None
    return [
        {
            "pid": _whole(process, "pid"),
            "command": _said(process, "process_name") or "",
            "memory_mib": _whole(process, "used_memory"),
            "type": _said(process, "type"),
        }
        for process in listed.findall("process_info")
        if "C" in (_said(process, "type") or "C")
    ]


def _throttle_reasons(gpu: Element) -> list[str] | None:
    """The names of the active ones, `gpu_idle` among them: clocks_event_reasons, or what that was called before."""
    for name in ("clocks_event_reason", "clocks_throttle_reason"):
        reasons = gpu.find(f"{name}s")
        if reasons is not None:
            said = {reason.tag[len(name) + 1 :]: (reason.text or "").strip() for reason in reasons}
            return [key for key, value in said.items() if value == "Active"]
    return None


def _said(element: Element, path: str) -> str | None:
    """An element's text; None for `N/A`, `[Unknown Error]` and their like."""
    text = (element.findtext(path) or "").strip()
    return None if text.strip("[]") in ("", "N/A", "Unknown Error", "Not Supported", "GPU is lost") else text


def _number(element: Element, path: str) -> float | None:
    """The number with which `97887 MiB`, `600.00 W` or `16x` begins."""
    found = re.match(r"-?\d+(?:\.\d+)?", _said(element, path) or "")
    return float(found.group()) if found else None


def _whole(element: Element, path: str) -> int | None:
    number = _number(element, path)
    return None if number is None else int(number)


def _enabled(element: Element, path: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(_said(element, path) or "")


def _first(values: Any) -> float | None:
    return next((value for value in values if value is not None), None)


def parse_capabilities(text: str) -> dict[str, str]:
    """{PCI address: compute capability such as "12.0"}."""
    rows = [line.split(",") for line in text.splitlines()]
    return {
        address_of(row[0]): row[1].strip()
        for row in rows
        if len(row) == 2 and re.fullmatch(r"\d+\.\d+", row[1].strip())
    }


def parse_matrix(text: str) -> dict[str, str] | None:
    """{"0-1": what stands in GPU0's row and GPU1's column} of `topo -m` and `topo -p2p`; None when it is no matrix."""
    lines = [_ESCAPE.sub("", line).split() for line in text.splitlines()]
    heads = [line for line in lines if line and re.fullmatch(r"GPU\d+", line[0])]
    if not heads:
        return None
    # The header names GPUs first, then NICs, then words such as `CPU Affinity`.
    columns = [word for word in heads[0] if re.fullmatch(r"(GPU|NIC)\d+", word)]
    return {
        f"{row[0][3:]}-{column[3:]}": value
        for row in heads[1:]
        for column, value in zip(columns, row[1:])  # noqa: B905 (strict= needs 3.10)
        if column.startswith("GPU") and column != row[0]
    }
