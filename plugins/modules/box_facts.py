#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: box_facts
short_description: What a box is and has, as far as a deployment cares
version_added: 0.1.0
description:
  - Reads kernel, CPUs, NUMA nodes, memory, limits, disks, programs, network cards, GPUs with their place on the PCI
    bus, and port owners from C(/proc), C(/sys), C(nvidia-smi) and a few commands. Changes nothing and needs no root;
    only the ACS bits of PCI bridges are shown to root alone.
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
  engine:
    description: Interpreter of the engine's environment, which is looked at when it is there. Nothing of it is run.
    type: str
  engine_pythonpath:
    description: Folders that stand in front of that interpreter's own.
    type: list
    elements: str
    default: []
  checkpoint:
    description: Directory of a checkpoint that is to be complete.
    type: str
  model:
    description: Directory of the model. What O(root) remembers of it is in C(facts.kept) when no file was touched since.
    type: str
  servers:
    description:
      - Options of M(pdlab.pdlab.pd_server), without the engine's fingerprint. Each server is held against its
        description.
    type: list
    elements: dict
    default: []
  hold:
    description:
      - Take the host for this run before anything is looked at, as M(pdlab.pdlab.run_lock) does. Fail when another run
        holds it.
    type: dict
    suboptions:
      holder:
        description: Who holds the host, as M(pdlab.pdlab.stage) returns it.
        type: dict
        required: true
        suboptions:
          controller:
            description: Host name of the controller.
            type: str
            required: true
          machine_id:
            description: The controller's C(/etc/machine-id), empty where there is none.
            type: str
            default: ""
          pid:
            description: PID of the run on the controller.
            type: int
            required: true
          pid_started:
            description: When that process started, in seconds since the epoch.
            type: float
          run:
            description: Name of the run.
            type: str
      lease_s:
        description: How long a holder on another machine is believed to be alive after it was last seen, in seconds.
        type: int
        default: 7200
      gone:
        description: A holder of which the controller knows that it is gone.
        type: dict
  timeout_s:
    description: How long all commands together may take, in seconds.
    type: float
    default: 30
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
    kernel: {description: "Release, machine and C(command_line).", type: dict}
    distribution: {description: "Id, version and name.", type: dict}
    hostname: {description: The host name and what it resolves to., type: dict}
    init: {description: "C(systemd), or the name of the process with PID 1.", type: str}
    container: {description: "The kind of container, or C(none).", type: str}
    root: {description: Whether the module ran as root., type: bool}
    clock_synchronised: {description: Whether the clock follows a time source., type: bool}
    cpu:
      description: >-
        C(model), C(vendor), C(count), C(usable), instruction sets (C(flags)) and C(governor), which counts the CPUs
        under each name, as in C({"performance": 128}).
      type: dict
    numa:
      description: >-
        NUMA nodes with their C(cpus), C(memory_total_bytes), C(memory_free_bytes), C(distances) to each node and
        C(hugepages).
      type: list
    numactl: {description: "Its path, and whether it lets each node be bound.", type: dict}
    memory:
      description: >-
        Total, available, swap, cgroup limit, what pdlab's own services hold, C(hugepages) as in
        C({"2048kB": {"total": 0, "free": 0}}), C(thp) (C(always), C(madvise) or C(never)), C(numa_balancing) and
        C(swappiness).
      type: dict
    shm: {description: Size of C(/dev/shm)., type: dict}
    paths: {description: "Each path asked for, and C(/tmp).", type: dict}
    limits: {description: "Limits of this process, and of systemd's services.", type: dict}
    pythons: {description: Interpreters with version and whether their C headers are there., type: list}
    tools: {description: Paths of programs., type: dict}
    engine:
      description: >-
        Versions of C(python), C(sglang), C(torch) and C(nixl) in the environment that I(engine) names; C(cuda_build)
        is torch's, as in C(cu130); C(ucx_cuda) tells whether NIXL's UCX has its CUDA transports. Null when it was
        not asked for or is not there.
      type: dict
    gpu:
      description: GPUs on the bus, and what the driver says.
      type: dict
      contains:
        pci_devices: {description: PCI addresses of NVIDIA's GPUs., type: list}
        driver: {description: The driver's version., type: str}
        cuda_version: {description: "The newest CUDA that the driver runs, as in C(13.0).", type: str}
        error: {description: Why the driver does not answer., type: str}
        mps: {description: Whether the multi-process service runs. Null in a container that does not show it., type: bool}
        topology:
          description: >-
            What C(nvidia-smi topo -m) says of each pair, as in C({"0-1": "PIX"}), both directions.
          type: dict
        p2p: {description: "C(read) and C(write), each as I(topology); C(OK) where a GPU may reach the other.", type: dict}
        nvlink: {description: Whether any two GPUs have NVLink., type: bool}
        gpus:
          description: >-
            Each GPU in the order of its C(index), with C(name), C(uuid), C(pci), C(memory_total_mib),
            C(memory_used_mib), C(processes), C(compute_capability), C(numa_node) (-1 when the firmware does not say),
            C(persistence), C(performance_state), C(power_limit_w), C(power_default_w), C(power_max_w), C(ecc), C(mig),
            C(compute_mode), C(clocks_mhz), C(throttle_reasons), C(temperature_c), C(bar1_total_mib), C(pcie),
            C(iommu_group) and C(bridges) (from the root port down). In C(pcie), C(generation_max) and C(width_max) are
            the least of device and slot, and C(device_generation_max) is the device's own. An idle GPU lowers
            C(generation) by itself.
          type: list
    pci_bridges:
      description: >-
        Each PCI bridge above a GPU, with C(acs), which is null without that capability or when it cannot be read, and
        C(acs_readable).
      type: dict
    iommu:
      description: >-
        C(enabled), C(mode) (C(off), C(passthrough) or C(translated)) of the GPUs' groups, and the number of C(groups).
      type: dict
    nics:
      description: >-
        Network interfaces of PCI devices, with C(name), C(pci), C(numa_node), C(driver), C(speed_mbps), C(mtu), C(up)
        and C(rdma).
      type: list
    infiniband: {description: RDMA devices., type: list}
    ephemeral_ports: {description: First and last port that the kernel hands out by itself., type: list}
    reserved_ports: {description: Ports that the kernel never hands out by itself., type: list}
    ports: {description: Listeners on the ports asked for., type: list}
    kept:
      description: "What earlier runs left below O(root): environments, probes, references, what is known of O(model)."
      type: dict
    checkpoint: {description: "What is wrong with the checkpoint asked for.", type: dict}
servers:
  description: The servers of O(servers) that run as described, each with C(asked) and the C(result) of pd_server.
  returned: always
  type: dict
lock:
  description: What M(pdlab.pdlab.run_lock) returns.
  returned: when O(hold) is given
  type: dict
held_by:
  description: The run that holds the host.
  returned: when that is another one
  type: dict
"""

import sys
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock, processes, standing_servers, target_layout
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import OPTIONS, read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.kept import read_kept
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "default": OPTIONS["ports"]},
            "paths": {"type": "list", "elements": "str", "default": OPTIONS["paths"]},
            "root": {"type": "str"},
            "numa_nodes": {"type": "list", "elements": "int", "default": OPTIONS["numa_nodes"]},
            "pythons": {"type": "list", "elements": "str", "default": OPTIONS["pythons"]},
            "engine": {"type": "str"},
            "engine_pythonpath": {"type": "list", "elements": "str", "default": []},
            "checkpoint": {"type": "str"},
            "model": {"type": "str"},
            "servers": {"type": "list", "elements": "dict", "default": []},
            "hold": {
                "type": "dict",
                "options": {
                    "holder": {**host_lock.HOLDER_OPTION, "required": True},
                    "lease_s": {"type": "int", "default": host_lock.LEASE_S},
                    "gone": {"type": "dict"},
                },
            },
            "timeout_s": {"type": "float", "default": OPTIONS["timeout_s"]},
        },
        required_by={"hold": ["root"]},
        supports_check_mode=True,
    )
    options, root = module.params, module.params["root"]
    held: dict[str, Any] = {}
    try:
        if options["hold"]:
            held["lock"] = host_lock.hold({**options["hold"], "root": root}, module.check_mode)
        facts = read_facts(Source(), options)
        facts["kept"] = read_kept(root, options["model"]) if root else None
        servers = standing_servers.look(options["servers"], engine_fingerprint(facts, root))
    except host_lock.HeldError as error:
        module.fail_json(msg=str(error), held_by=error.result["held_by"], lock=error.result)
    except host_lock.LockFileError as error:
        module.fail_json(msg=str(error))
    except processes.ControllerGone:
        sys.exit("the controller is gone")
    module.exit_json(changed=False, facts=facts, servers=servers, **held)


def engine_fingerprint(facts: Mapping[str, Any], root: str | None) -> str | None:
    """The fingerprint of the engine that pdlab built, as it was left; None when there is none."""
    if not root:
        return None
    engine = facts["kept"]["environments"][target_layout.engine_dir(root)]
    fingerprint = engine["stamp"].get("fingerprint")
    return None if fingerprint is None else str(fingerprint)


if __name__ == "__main__":
    main()
