# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory, swap and shared memory."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

HUGE_PAGES = "/sys/kernel/mm/hugepages"
TRANSPARENT_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_FIELDS = {
    "total_bytes": "MemTotal",
    "available_bytes": "MemAvailable",
    "swap_total_bytes": "SwapTotal",
    "swap_free_bytes": "SwapFree",
}


def read_memory(source: Source) -> dict[str, Any]:
    """{"total_bytes", "available_bytes", "swap_total_bytes", "swap_free_bytes", "cgroup_limit_bytes", "hugepages",
    "thp", "numa_balancing", "swappiness"}; `thp` is when transparent huge pages are used."""
    text = source.text("/proc/meminfo") or ""
    sizes: dict[str, Any] = dict.fromkeys(_FIELDS)
    for key, name in _FIELDS.items():
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        sizes[key] = int(found.group(1)) * 1024 if found else None
    balancing = source.text("/proc/sys/kernel/numa_balancing")
    swappiness = source.text("/proc/sys/vm/swappiness")
    return {
        **sizes,
        "cgroup_limit_bytes": cgroup_limit(source),
        "hugepages": read_huge_pages(source, HUGE_PAGES),
        "thp": _chosen(source.text(TRANSPARENT_HUGE_PAGES)),
        # 2 moves pages between kinds of memory instead of between nodes (admin-guide/sysctl/kernel).
        "numa_balancing": balancing != "0" if balancing else None,
        "swappiness": int(swappiness) if swappiness and swappiness.isdigit() else None,
    }


def read_huge_pages(source: Source, folder: str) -> dict[str, dict[str, int | None]] | None:
    """{"2048kB": {"total", "free"}}: pages of each size below `folder`; None when the kernel shows none."""
    found = {}
    for name in source.names(folder):
        counts = {key: source.text(f"{folder}/{name}/{key}_hugepages") for key in ("nr", "free")}
        total, free = (int(text) if text and text.isdigit() else None for text in counts.values())
        found[name[len("hugepages-") :]] = {"total": total, "free": free}
    return found or None


def _chosen(text: str | None) -> str | None:
    """The word in brackets: `always [madvise] never`."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found.group(1) if found else None


def cgroup_limit(source: Source) -> int | None:
    """The memory limit of this process's cgroup (v2, then v1); None when there is none."""
    lines = (source.text("/proc/self/cgroup") or "").splitlines()
    for line in lines:
        _number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            value = source.text(f"/sys/fs/cgroup{path.rstrip('/')}/memory.max")
        elif "memory" in controllers.split(","):
            value = source.text(f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.limit_in_bytes")
        else:
            continue
        # cgroup v1 writes "no limit" as the largest page-aligned number.
        if value is not None and value.isdigit() and int(value) < 1 << 60:
            return int(value)
    return None


def read_shared_memory(source: Source) -> dict[str, Any] | None:
    """{"total_bytes", "free_bytes"} of /dev/shm."""
    found = source.file_system("/dev/shm")
    return {key: found[key] for key in ("total_bytes", "free_bytes")} if found else None
