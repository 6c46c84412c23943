#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Judge a box before anything is deployed to it
version_added: 0.1.0
description:
  - Reads the box's facts with M(pdlab.pdlab.box_facts) and holds them against one table of rules. Changes
    nothing but the hold on the host.
  - Fails when a rule forbids the deployment, with every veto at once, each with what was seen, what is wanted and the
    cure. Warnings are shown and do not fail.
  - A fact that cannot be read is a warning, never fine.
options:
  plan:
    description: The plan that M(pdlab.pdlab.topology) returns.
    type: dict
    required: true
  holder:
    description:
      - Who runs this, as M(pdlab.pdlab.stage) returns it. The host is held for this run in the same look, as by
        M(pdlab.pdlab.run_lock). Fails when another run holds it. Without, nobody holds it.
    type: dict
  ahead:
    description:
      - Names of modules that later tasks of this run will need on the host. Ansible packs each when its first task comes;
        these are packed while the box is looked at.
    type: list
    elements: str
    default: []
  timeout_s:
    description: How long all commands on the box together may take, in seconds.
    type: float
    default: 30
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result. C(preflight-HOST) when left out.
    type: str
attributes:
  action:
    description: Runs on the controller, and M(pdlab.pdlab.box_facts) on the target.
    support: full
  check_mode:
    description: Nothing is changed in any mode.
    support: full
  diff_mode:
    description: Nothing is changed, so there is no difference to show.
    support: none
seealso:
  - module: pdlab.pdlab.box_facts
  - module: pdlab.pdlab.topology
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Read and check the topology
  pdlab.pdlab.topology:
  register: pdlab_topology

- name: Judge the box
  pdlab.pdlab.preflight:
    plan: "{{ pdlab_topology.plan }}"
"""

RETURN = r"""
host:
  description: The host's name in the inventory.
  returned: always
  type: str
facts:
  description: What M(pdlab.pdlab.box_facts) returned.
  returned: always
  type: dict
verdicts:
  description: One verdict for each rule that concerns this host.
  returned: always
  type: list
  elements: dict
  contains:
    id: {description: The rule's name., type: str}
    severity: {description: "C(veto), C(warn) or C(info).", type: str}
    ok: {description: Whether all is well., type: bool}
    seen: {description: What was seen., type: str}
    wanted: {description: What is wanted., type: str}
    why: {description: "Why, in one sentence.", type: str}
    cure: {description: "A command or an edit, null when all is well.", type: str}
veto:
  description: Whether a verdict forbids the deployment.
  returned: always
  type: bool
lock:
  description: What M(pdlab.pdlab.run_lock) returns, null without O(holder).
  returned: always
  type: dict
standing:
  description: The servers of this host that run as the plan has them, for M(pdlab.pdlab.pd_servers), and when that was.
  returned: always
  type: dict
held_by:
  description: The run that holds the host.
  returned: when that is another one
  type: dict
"""
