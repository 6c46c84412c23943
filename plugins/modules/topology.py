#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: topology
short_description: Resolve the inventory into the plan of what runs where
version_added: 0.1.0
description:
  - Reads the C(pd_*) variables of all hosts of the group C(pdlab) on the controller, derives every default, and
    returns the plan. No host is touched, unless O(look) asks for it.
  - Fails with every fault of the inventory at once, each with its file and line, key, problem and cure.
  - An unknown C(pd_*) variable is a fault, too. Variables that C(register) or C(set_fact) made do not count.
options:
  workloads:
    description:
      - YAML file with the workloads that C(pd_benchmark.workloads) can name. Those of the role benchmark when left out.
    type: path
  look:
    description:
      - Ask the box at which NUMA nodes its GPUs lie, where the inventory leaves C(numa_node) to them and this run has not
        asked before. Only read, and only after the inventory has been found right.
      - Without it such a server has C(numa_pending) true, and its command line no C(numactl) yet.
    type: bool
    default: false
  seed_offset:
    description:
      - Added to the seed of every point of the sweep. Repeats have seeds of their own, and all arms of a repeat the same.
    type: int
    default: 0
  more_points:
    description:
      - Points to have behind the inventory's own, whole, as the plan has them. A search over rates chooses them while
        it goes on.
    type: list
    elements: dict
    default: []
attributes:
  action:
    description: Runs on the controller.
    support: full
  check_mode:
    description: Nothing is changed in any mode.
    support: full
  diff_mode:
    description: Nothing is changed, so there is no difference to show.
    support: none
notes:
  - Line numbers come from a part of ansible-core that is not public; without it, faults are listed without them.
seealso:
  - module: pdlab.pdlab.preflight
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Read and check the topology
  pdlab.pdlab.topology:
  register: pdlab_topology

- name: Show the command lines of this host
  ansible.builtin.debug:
    msg: "{{ pdlab_topology.me.servers | map(attribute='argv') }}"
"""

RETURN = r"""
plan:
  description: The whole plan, the same on every host. Its JSON schema is that of C(pdlab plan --json).
  returned: success
  type: dict
  contains:
    schema_version: {description: Version of this shape., type: int}
    rehearsal: {description: Whether every figure is to be called a rehearsal's., type: bool}
    device: {description: C(cpu) or C(cuda)., type: str}
    model: {description: "Source, path, served name and revision.", type: dict}
    hosts: {description: "Address, root directory and engine Python of each host.", type: dict}
    servers: {description: "Every engine server with its argv, environment, ports, unit and log.", type: list}
    router: {description: "The router, or null.", type: dict}
    reference: {description: "The colocated server that the oracle compares with, or null.", type: dict}
    answers: {description: Prompts with the answers that are expected., type: list}
    oracle: {description: Whether and at which prompt lengths PD is compared with the reference., type: dict}
    benchmark: {description: What is measured, its workloads and points., type: dict}
    arm: {description: "The arm whose plan it is (C(pd_arm)), or null.", type: str}
    arms: {description: "What every arm of C(pd_arms) runs, with what differs on purpose and a fingerprint.", type: list}
me:
  description: What of the plan concerns this host.
  returned: success
  type: dict
  contains:
    servers: {description: The servers of this host., type: list}
    router: {description: "The router when it runs on this host, otherwise null.", type: dict}
    gate: {description: "Whether this host runs the ready gate, verify and the benchmark.", type: bool}
    others: {description: Services of other arms that must not run beside this one's., type: list}
    host: {description: "Address, root directory and engine Python of this host.", type: dict}
box:
  description: What the box said, C(gpu) and C(numa) as M(pdlab.pdlab.box_facts) returns them.
  returned: with O(look), when a NUMA node was left to the GPUs
  type: dict
faults:
  description: All faults of the inventory.
  returned: failure
  type: list
  elements: dict
  contains:
    key: {description: "Path of the key, such as C(pd_servers[1].port).", type: str}
    problem: {description: What is wrong., type: str}
    cure: {description: What to do., type: str}
    origin: {description: "C(file:line), or null when it is not known.", type: str}
    text: {description: All of it on one line., type: str}
"""
