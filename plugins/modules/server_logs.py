#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: server_logs
short_description: The last lines of the servers' logs
version_added: 0.1.0
description:
  - Reads the end of each server's log on the target and, with O(run_dir), keeps it in the run folder on the controller.
    The work is in the action plug-in of the same name.
options:
  servers:
    description: The servers as the plan has them. Used of each are C(name) and C(log).
    type: list
    elements: dict
    required: true
  lines:
    description: Lines of each log.
    type: int
    default: 200
  run_dir:
    description: Run folder on the controller that keeps them.
    type: path
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: What the servers said last
  pdlab.pdlab.server_logs:
    servers: "{{ plan.servers }}"
    lines: 30
"""

RETURN = r"""
logs:
  description: Name, path and text of each log that is there.
  type: list
  elements: dict
  returned: always
missing:
  description: Logs that could not be read, with the reason.
  type: list
  elements: str
  returned: always
"""
