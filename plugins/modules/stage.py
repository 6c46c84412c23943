#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: stage
short_description: Open or close a stage of a run
version_added: 0.1.0
description:
  - Notes in the run folder on the controller that a stage started or ended, and makes the run folder when there is none
    yet. Runs no code on the target; the work is in the action plug-in of the same name.
options:
  name:
    description: Name of the stage.
    type: str
    required: true
  state:
    description: Whether it starts or ends.
    type: str
    choices: [started, finished]
    default: started
  ok:
    description: With O(state=finished), whether it went well.
    type: bool
    default: true
  why:
    description: With O(state=finished), why it did not.
    type: str
  run_dir:
    description: The run folder. When left out, a new one is made below O(runs_dir).
    type: path
  runs_dir:
    description: Directory of the run folders.
    type: path
    default: runs
  plan:
    description: The resolved topology, kept with the run.
    type: dict
attributes:
  check_mode:
    description: Nothing is written.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Open the stage
  pdlab.pdlab.stage:
    name: deploy
  register: pdlab_run

- name: Close it
  pdlab.pdlab.stage:
    name: deploy
    state: finished
    run_dir: "{{ pdlab_run.run_dir }}"
"""

RETURN = r"""
run_dir:
  description: The run folder.
  type: str
  returned: when not in check mode
holder:
  description: Who runs this, for M(pdlab.pdlab.run_lock).
  type: dict
  returned: always
"""
