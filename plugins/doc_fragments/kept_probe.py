# SPDX-License-Identifier: GPL-3.0-or-later
"""What the documentation of both probes has in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of a probe whose good result is kept on the target."""

    DOCUMENTATION = r"""
options:
  python:
    description: The engine's interpreter.
    type: path
    required: true
  fingerprint:
    description: Fingerprint of the engine's environment.
    type: str
  state_dir:
    description: Directory on the target that keeps the last good result.
    type: path
    required: true
  force:
    description: Probe even when a good result of this boot is kept.
    type: bool
    default: false
  seen:
    description: >-
      What M(pdlab.pdlab.box_facts) read in this run as C(kept), of this probe. A good result in it is not asked for
      again.
    type: dict
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
"""
