# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an IOMMU stands between devices, and translates.

Sources: Documentation/ABI/testing/sysfs-kernel-iommu_groups and admin-guide/kernel-parameters of the Linux kernel.
In a virtual machine this is the guest's own; what the host does cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import pci
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

GROUPS = "/sys/kernel/iommu_groups"
_PASSTHROUGH = {"iommu=pt", "iommu.passthrough=1"}
# The types of a group's default domain: `identity` lets addresses through, all others (DMA, DMA-FQ) translate.
_IDENTITY = "identity"


def read_iommu(source: Source, devices: Iterable[str]) -> dict[str, Any]:
    """{"enabled", "mode": "off"|"passthrough"|"translated"|None, "groups": count}.

    The mode is that of the groups of `devices` (PCI addresses), or of all groups when none of them has one.
    """
    names = [name for name in source.names(GROUPS) if name.isdigit()]
    if not names:
        # A container may hide the folder, an old kernel not have it.
        enabled = False if source.exists(GROUPS) else None
        return {"enabled": enabled, "mode": "off" if enabled is False else None, "groups": 0}
    mine = {str(group) for group in (pci.iommu_group(source, device) for device in devices) if group is not None}
    types = {source.text(f"{GROUPS}/{name}/type") for name in sorted(mine & set(names)) or names}
    return {"enabled": True, "mode": _mode(types, source.text("/proc/cmdline") or ""), "groups": len(names)}


def _mode(types: set[str | None], command_line: str) -> str | None:
    known = {name for name in types if name}
    if known - {_IDENTITY}:
        return "translated"
    if known:
        return "passthrough" if None not in types else None
    # Groups have had a readable type since Linux 4.21.
    return "passthrough" if _PASSTHROUGH & set(command_line.split()) else None
