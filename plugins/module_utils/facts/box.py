# SPDX-License-Identifier: GPL-3.0-or-later
"""All facts of a box, from one source: this machine, or a recording of another."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import (
    cpu,
    disk,
    engine,
    gpu,
    iommu,
    limits,
    memory,
    network,
    ports,
    system,
    tools,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source, remaining

# What can be asked, and what is asked when nobody says more: the options of the module box_facts.
OPTIONS: dict[str, Any] = {
    "ports": [],
    "paths": [],
    "root": None,
    "numa_nodes": [0],
    "pythons": [],
    "engine": None,
    "engine_pythonpath": [],
    "checkpoint": None,
    # Without persistence mode each question wakes every GPU: for eight of them that takes many seconds.
    "timeout_s": 30.0,
}


def read_facts(source: Source, options: dict[str, Any]) -> dict[str, Any]:
    """All facts, for OPTIONS and what `options` changes of them. What cannot be read is None.

    Commands run while files are read, and share one time limit.
    """
    asked = {**OPTIONS, **options}
    deadline = time.monotonic() + asked["timeout_s"]
    gpus = gpu.start_gpus(source)
    pythons = tools.start_pythons(source, asked["pythons"])
    service_limits = limits.start_service_limits(source)
    bindings = cpu.start_bindings(source, asked["numa_nodes"])
    root = asked["root"]
    devices = gpu.pci_gpus(source)
    facts = {
        **system.read_system(source),
        "cpu": cpu.read_cpu(source),
        "numa": cpu.read_nodes(source),
        "memory": memory.read_memory(source),
        "shm": memory.read_shared_memory(source),
        "paths": {path: disk.read_path(source, path) for path in ("/tmp", *asked["paths"])},
        "nics": network.read_nics(source),
        "infiniband": source.names("/sys/class/infiniband"),
        "ephemeral_ports": network.read_ephemeral_ports(source),
        "reserved_ports": network.read_reserved_ports(source),
        "tools": tools.read_tools(source),
        "ports": ports.read_ports(source, asked["ports"], root),
        "engine": engine.read_engine(source, asked["engine"], asked["engine_pythonpath"]),
        "checkpoint": source.checkpoint(asked["checkpoint"]) if asked["checkpoint"] else None,
    }
    facts["memory"]["own_bytes"] = ports.own_memory_bytes(source, root) if root else 0
    facts["numactl"] = cpu.read_bindings(source, bindings, remaining(deadline))
    facts["limits"] = {
        "process": source.limits(),
        "services": limits.read_service_limits(service_limits, remaining(deadline)),
    }
    facts["pythons"] = tools.read_pythons(pythons, remaining(deadline), asked["pythons"])
    facts["gpu"] = gpu.read_gpus(
        source, devices, gpus, lambda: remaining(deadline), lambda pid: bool(root) and ports.is_own(source, pid, root)
    )
    # Either of the two may be hidden: the bus in a container, the driver where it is not installed.
    devices = sorted({*devices, *(each["pci"] for each in facts["gpu"]["gpus"] or [])})
    facts["iommu"] = iommu.read_iommu(source, devices)
    facts["pci_bridges"] = gpu.read_bridges(source, devices)
    return facts
