#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: box_facts
short_description: What a box is and has, as far as a deployment cares
version_added: 0.1.0
description:
  - Reads kernel, CPUs, NUMA nodes, memory, limits, disks, programs, GPUs and port owners from C(/proc), C(/sys) and a
    few commands. Changes nothing and needs no root.
  - What cannot be read is null, which means unknown and never fine.
options:
  ports:
    description: TCP ports whose listeners are wanted.
    type: list
    elements: int
    default: []
  paths:
    description: Paths whose existence, room and writability are wanted.
    type: list
    elements: str
    default: []
  root:
    description: pdlab's root directory. Processes that run from below it are called its own.
    type: str
  numa_nodes:
    description: NUMA nodes whose binding is tried on C(true).
    type: list
    elements: int
    default: [0]
  pythons:
    description: Further interpreters to look at.
    type: list
    elements: str
    default: []
  checkpoint:
    description: Directory of a checkpoint that is to be complete.
    type: str
  timeout_s:
    description: How long all commands together may take, in seconds.
    type: float
    default: 10
attributes:
  check_mode:
    description: Nothing is changed in any mode.
    support: full
  diff_mode:
    description: Nothing is changed, so there is no difference to show.
    support: none
seealso:
  - module: pdlab.pdlab.preflight
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Look at the box
  pdlab.pdlab.box_facts:
    ports: [30000, 30001, 8998, 8000, 29001]
    paths: [/opt/pdlab]
    root: /opt/pdlab
"""

RETURN = r"""
facts:
  description: The facts. Sizes are in bytes, GPU memory in MiB, as nvidia-smi gives it.
  returned: always
  type: dict
  contains:
    kernel: {description: Release and machine., type: dict}
    distribution: {description: "Id, version and name.", type: dict}
    hostname: {description: The host name and what it resolves to., type: dict}
    init: {description: "C(systemd), or the name of the process with PID 1.", type: str}
    container: {description: "The kind of container, or C(none).", type: str}
    root: {description: Whether the module ran as root., type: bool}
    clock_synchronised: {description: Whether the clock follows a time source., type: bool}
    cpu: {description: "Model, count, usable count and instruction sets.", type: dict}
    numa: {description: "NUMA nodes with their CPUs and memory.", type: list}
    numactl: {description: "Its path, and whether it lets each node be bound.", type: dict}
    memory: {description: "Total, available, swap, cgroup limit, and what pdlab's own services hold.", type: dict}
    shm: {description: Size of C(/dev/shm)., type: dict}
    paths: {description: "Each path asked for, and C(/tmp).", type: dict}
    limits: {description: "Limits of this process, and of systemd's services.", type: dict}
    pythons: {description: Interpreters with version and whether their C headers are there., type: list}
    tools: {description: Paths of programs., type: dict}
    gpu: {description: "GPUs on the bus, the driver's version, and each GPU with its processes.", type: dict}
    infiniband: {description: RDMA devices., type: list}
    ports: {description: Listeners on the ports asked for., type: list}
    checkpoint: {description: "What is wrong with the checkpoint asked for.", type: dict}
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.checkpoint import checkpoint_faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import (
    cpu,
    disk,
    gpu,
    limits,
    memory,
    ports,
    system,
    tools,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source, remaining


def read_facts(source: Source, options: dict[str, Any]) -> dict[str, Any]:
    """All facts. Commands run while files are read, and share one time limit."""
    deadline = time.monotonic() + options["timeout_s"]
    gpus = gpu.start_gpus(source)
    pythons = tools.start_pythons(source, options["pythons"])
    service_limits = limits.start_service_limits(source)
    bindings = cpu.start_bindings(source, options["numa_nodes"])
    root = options["root"]
    facts = {
        **system.read_system(source),
        "cpu": cpu.read_cpu(source),
        "numa": cpu.read_nodes(source),
        "memory": memory.read_memory(source),
        "shm": memory.read_shared_memory(source),
        "paths": {path: disk.read_path(source, path) for path in ("/tmp", *options["paths"])},
        "infiniband": source.names("/sys/class/infiniband"),
        "tools": tools.read_tools(source),
        "ports": ports.read_ports(source, options["ports"], root),
        "checkpoint": None,
    }
    facts["memory"]["own_bytes"] = ports.own_memory_bytes(source, root) if root else 0
    if options["checkpoint"]:
        faults = checkpoint_faults(options["checkpoint"])
        facts["checkpoint"] = {"path": options["checkpoint"], "faults": faults}
    facts["numactl"] = cpu.read_bindings(source, bindings, remaining(deadline))
    facts["limits"] = {
        "process": limits.read_limits(),
        "services": limits.read_service_limits(service_limits, remaining(deadline)),
    }
    facts["pythons"] = tools.read_pythons(pythons, remaining(deadline), options["pythons"])
    facts["gpu"] = gpu.read_gpus(
        source, gpus, remaining(deadline), lambda pid: bool(root) and ports.is_own(source, pid, root)
    )
    return facts


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "default": []},
            "paths": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "str"},
            "numa_nodes": {"type": "list", "elements": "int", "default": [0]},
            "pythons": {"type": "list", "elements": "str", "default": []},
            "checkpoint": {"type": "str"},
            "timeout_s": {"type": "float", "default": 10.0},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, facts=read_facts(Source(), module.params))


if __name__ == "__main__":
    main()
