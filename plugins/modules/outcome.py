#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: outcome
short_description: Say what came of a run
version_added: 0.1.0
description:
  - Shows the report's lines and fails when a benchmark point did not count. Runs no code on the target; the work is in
    the action plug-in of the same name.
options:
  failed_points:
    description: Labels of the points that did not count.
    type: list
    elements: str
    default: []
  report:
    description: Lines to show.
    type: list
    elements: str
    default: []
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
- name: Every point counts
  pdlab.pdlab.outcome:
    failed_points: "{{ benchmark_failed }}"
"""

RETURN = r"""
failed_points:
  description: Labels of the points that did not count.
  type: list
  returned: always
"""
