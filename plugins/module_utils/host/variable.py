# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's variable pd_host: the check of its shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import shapes
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults, suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.sysctls import SYSCTLS
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID, Check, kind

_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
# Debian Policy 5.6.7, Package.
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+\Z")


def _packages() -> Check:
    """A mapping of commands to the packages that bring them; empty for none."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            faults.add(key, f"is {kind(value)}, not a mapping", "write `command: package` lines below it, or {}")
            return INVALID
        kept = {}
        for command, package in value.items():
            where = f"{key}.{command}"
            if not isinstance(command, str) or not _PROGRAM.match(command):
                faults.add(where, "is no command's name", "write it as one would type it, without a path")
            elif not isinstance(package, str) or not _PACKAGE.match(package):
                faults.add(where, f"is {kind(package)}, no Debian package", f"write for example `{command}: {command}`")
            else:
                kept[command] = package
        return kept

    return check


def _memlock() -> Check:
    size = shapes.integer(1, unit="a size in GiB,")

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, str) and value != "unlimited":
            faults.add(key, f"{value!r} is no size", "write unlimited, or a whole number of GiB without quotes")
            return INVALID
        return value if value == "unlimited" else size(faults, key, value)

    return check


def _sysctls() -> Check:
    """A mapping of kernel parameters that pdlab knows a reason for, with values that the kernel takes."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            faults.add(key, f"is {kind(value)}, not a mapping", "write `name: value` lines below it")
            return INVALID
        kept = {}
        for name, entry in value.items():
            where = f"{key}.{name}"
            if name == "kernel.numa_balancing":
                faults.add(where, "has a setting of its own", "write `numa_balancing: false` in pd_host")
            elif name not in SYSCTLS:
                faults.add(where, "is none that pdlab sets", suggestion(name, SYSCTLS))
            else:
                try:
                    kept[name] = SYSCTLS[name].canonical(entry)
                except ValueError as error:
                    faults.add(where, f"is {kind(entry)}", f"write {error}")
        return kept

    return check


def _swap(faults: Faults, key: str, value: Any) -> Any:
    given = shapes.boolean()(faults, key, value)
    if given is True:
        faults.add(key, "is true, and pdlab does not switch swap on", "write false, or leave it out")
        return INVALID
    return given


LIMITS = shapes.mapping(
    {"user": shapes.text("alice"), "memlock_gib": _memlock(), "nofile": shapes.integer(1, unit="a number of files,")}
)
HUGEPAGES = shapes.mapping(
    {
        "node": shapes.integer(0, unit="a NUMA node,"),
        "size_mib": shapes.number_choice(2, 1024),
        "count": shapes.integer(0, unit="a number of pages,"),
    },
    required={"node": "0", "count": "1024"},
)
HOST = shapes.mapping(
    {
        "packages": _packages(),
        "limits": LIMITS,
        "shm_gib": shapes.integer(1, unit="a size in GiB,"),
        "cpu_governor": shapes.text("performance"),
        "gpu_persistence": shapes.boolean(),
        "numa_balancing": shapes.boolean(),
        "transparent_hugepages": shapes.choice("always", "madvise", "never"),
        "swap": _swap,
        "hugepages": shapes.list_of(HUGEPAGES, what="huge pages, for example `- {node: 0, count: 1024}`"),
        "sysctl": _sysctls(),
    },
    hints={
        "thp": "did you mean transparent_hugepages?",
        "governor": "did you mean cpu_governor?",
        "persistence": "did you mean gpu_persistence?",
        "shm": "did you mean shm_gib?",
        "iommu": "pdlab does not touch the kernel command line; pdlab preflight prints what to do",
        "acs": "pdlab does not touch ACS; pdlab preflight prints what to do",
    },
)
