#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_sources
short_description: What the engine's environment is made from, read on the controller
version_added: 0.1.0
description:
  - Reads the lock, the overlay and the local distributions as M(pdlab.pdlab.locked_venv) would. No host is touched.
options:
  lock:
    description: Lock file on the controller.
    type: path
    required: true
  distributions:
    description: Directories of local Python distributions on the controller.
    type: list
    elements: path
    default: []
  overlay:
    description: Directory on the controller with an overlay.
    type: path
  existing:
    description: Whether the host has an engine already, so that lock and overlay do not count.
    type: bool
    default: false
attributes:
  action:
    description: Runs on the controller.
    support: full
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
- name: What the engine is made from
  pdlab.pdlab.engine_sources:
    lock: locks/cuda13.txt
    overlay: /srv/inventory/overlay
"""

RETURN = r"""
lock_sha256:
  description: Hash of the lock; empty for an engine that is there already.
  type: str
  returned: always
requirements:
  description: Text of the lock.
  type: str
  returned: always
overlay_sha256:
  description: Hash of the overlay; empty for none.
  type: str
  returned: always
overlay_document:
  description: The overlay with the text of its patches, or null.
  type: dict
  returned: always
distributions_sha256:
  description: Hash of the local distributions; empty for none.
  type: str
  returned: always
"""
