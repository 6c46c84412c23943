# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices as sysfs shows them: where they hang, how fast their link is, and what their bridges redirect.

Sources: Documentation/ABI/testing/sysfs-bus-pci of the Linux kernel; for the configuration space PCI Express Base
Specification 5.0, 7.6.3 (extended capabilities) and 7.7.8 (access control services).
"""

from __future__ import annotations

import re
import struct
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

DEVICES = "/sys/bus/pci/devices"
ADDRESS = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")
# GT/s a lane of each generation.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
# A lane count above this is what a link without a register says (255).
_MOST_LANES = 32
_FIRST_EXTENDED_CAPABILITY = 0x100
_ACS = 0x000D
_ACS_CONTROL = 6
# The bits of the control register, from the lowest.
ACS_BITS = (
    "source_validation",
    "translation_blocking",
    "request_redirect",
    "completion_redirect",
    "upstream_forwarding",
    "egress_control",
    "direct_translated",
)


def read_number(source: Source, path: str) -> int | None:
    """The decimal number that a file holds."""
    text = source.text(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def addresses_above(source: Source, link: str) -> list[str] | None:
    """Every PCI address in what a link of sysfs points to, the root port's first; None when there is no link."""
    target = source.link(link)
    return ADDRESS.findall(target) if target is not None else None


def bridges_of(source: Source, address: str) -> list[str] | None:
    """The bridges from the root port down to a device, without it; empty where it hangs on the root bus itself."""
    addresses = addresses_above(source, f"{DEVICES}/{address}")
    return addresses[:-1] if addresses else None


def iommu_group(source: Source, address: str) -> int | None:
    """The number of the device's IOMMU group."""
    name = (source.link(f"{DEVICES}/{address}/iommu_group") or "").rpartition("/")[2]
    return int(name) if name.isdigit() else None


def read_link(source: Source, address: str) -> dict[str, int | None]:
    """{"generation", "generation_max", "width", "width_max"} of a device's link."""
    base = f"{DEVICES}/{address}"
    return {
        "generation": generation(source.text(f"{base}/current_link_speed")),
        "generation_max": generation(source.text(f"{base}/max_link_speed")),
        "width": _lanes(read_number(source, f"{base}/current_link_width")),
        "width_max": _lanes(read_number(source, f"{base}/max_link_width")),
    }


def generation(speed: str | None) -> int | None:
    """The PCI Express generation of a link speed such as `32.0 GT/s PCIe`."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", speed or "")
    return _GENERATIONS.get(float(found.group(1))) if found else None


def _lanes(count: int | None) -> int | None:
    return count if count is not None and 0 < count <= _MOST_LANES else None


def read_bridge(source: Source, address: str) -> dict[str, Any]:
    """{"acs": {bit: bool}|None, "acs_readable": bool} of a bridge.

    `acs` is None when the bridge has no such capability, and when that cannot be read: for an ordinary user the
    kernel shows 64 bytes of the configuration space, and without ECAM there are 256.
    """
    data = source.data(f"{DEVICES}/{address}/config")
    readable = data is not None and len(data) > _FIRST_EXTENDED_CAPABILITY
    return {"acs": read_acs(data) if data is not None else None, "acs_readable": readable}


def read_acs(data: bytes) -> dict[str, bool] | None:
    """The bits of the ACS control register in a device's configuration space; None without that capability."""
    offset = extended_capabilities(data).get(_ACS)
    if offset is None or offset + _ACS_CONTROL + 2 > len(data):
        return None
    (control,) = struct.unpack_from("<H", data, offset + _ACS_CONTROL)
    return {name: bool(control >> bit & 1) for bit, name in enumerate(ACS_BITS)}


def extended_capabilities(data: bytes) -> dict[int, int]:
    """{capability ID: offset} of a configuration space; the first of each ID."""
    found: dict[int, int] = {}
    offset, seen = _FIRST_EXTENDED_CAPABILITY, set()
    while _FIRST_EXTENDED_CAPABILITY <= offset <= len(data) - 4 and offset not in seen:
        seen.add(offset)
        (header,) = struct.unpack_from("<I", data, offset)
        if header in (0, 0xFFFFFFFF):
            break
        found.setdefault(header & 0xFFFF, offset)
        offset = header >> 20 & ~3
    return found
