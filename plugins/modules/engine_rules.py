#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_rules
short_description: Judge a host's servers by what its engine does with this model and chip
version_added: 0.1.0
description:
  - Holds every server of the plan that runs on this host against the table of engine rules, with the engine's version,
    the GPUs' compute capability and the checkpoint's kind as they are on the host.
  - Fails with everything that the engine would refuse or do wrongly, before any server is started. Doubts are warnings.
  - Also repeats, for the run's record, each variable of a server's environment with its reason and source.
options:
  plan:
    description: The plan that M(pdlab.pdlab.topology) returns.
    type: dict
    required: true
  gpus:
    description: The host's GPUs as M(pdlab.pdlab.box_facts) lists them. Used are C(index) and C(compute_capability).
    type: list
    elements: dict
    default: []
  sglang:
    description: Version of the sglang that is installed on the host. The version of the lock when left out.
    type: str
    default: ''
  quantization:
    description: Quantization of the checkpoint on the host. What the inventory declares when left out.
    type: str
    default: ''
  architecture:
    description: Architecture of the checkpoint on the host. What the inventory declares when left out.
    type: str
    default: ''
  run_dir:
    description: Folder of the run. With it, the result is kept there.
    type: path
  record:
    description: Name of the record.
    type: str
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
seealso:
  - module: pdlab.pdlab.topology
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Engine rules
  pdlab.pdlab.engine_rules:
    plan: "{{ pdlab_topology.plan }}"
    gpus: "{{ pdlab_box.facts.gpu.gpus }}"
    sglang: "{{ engine_result.packages.sglang }}"
"""

RETURN = r"""
host: {description: Name of the host., type: str, returned: always}
sglang: {description: "Version that the rules were taken for, or null.", type: str, returned: always}
compute_capability: {description: "Of each server's GPUs, null where it is unknown.", type: dict, returned: always}
quantization: {description: "Of the checkpoint, or null.", type: str, returned: always}
architecture: {description: "Of the checkpoint, or null.", type: str, returned: always}
profile: {description: Profile of the environment., type: str, returned: always}
environment:
  description: For each server the variables that it gets, as C(name), C(value), C(from), C(why) and C(source).
  type: dict
  returned: always
verdicts:
  description: What each rule says that concerns a server of this host, as in the plan.
  type: list
  elements: dict
  returned: always
faults: {description: What must be corrected first., type: list, elements: str, returned: failure}
"""
