# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the engine's environment is made from. Controller only."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import digest
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.local_distributions import CarryingAction, tree_sha256
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.overlay_folder import read_overlay


class ActionModule(CarryingAction):
    """Options: lock, distributions, overlay, existing."""

    _requires_connection = False

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        _spec, options = self.validate_argument_spec(
            {
                "lock": {"type": "str", "required": True},
                "distributions": {"type": "list", "elements": "str", "default": []},
                "overlay": {"type": "str"},
                "existing": {"type": "bool", "default": False},
            }
        )
        sources = [self.find(path, "distributions") for path in options["distributions"]]
        text = b"" if options["existing"] else self.find(options["lock"], "lock").read_bytes()
        overlay = None if options["existing"] else read_overlay(options["overlay"])
        return {
            "changed": False,
            "lock_sha256": hashlib.sha256(text).hexdigest() if text else "",
            "requirements": text.decode(),
            "overlay_sha256": digest(overlay),
            "overlay_document": overlay,
            "distributions_sha256": tree_sha256(sources),
        }
