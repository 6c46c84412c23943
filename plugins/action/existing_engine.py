# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry local distributions to a target that has an engine already, but only when they are not there yet."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.plugin_utils.local_distributions import CarryingAction, tree_sha256


class ActionModule(CarryingAction):
    """Asks the module first by hash; sends wheels and asks again only when they are missing."""

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        sources = [self.find(path, "distributions") for path in arguments.pop("distributions", None) or []]
        arguments["distributions_sha256"] = tree_sha256(sources)
        result = super().execute(arguments, task_vars)
        if not result.get("wants_files"):
            return result
        arguments["wheel_paths"] = [self.send(wheel) for wheel in self.wheels(sources)]
        return super().execute(arguments, task_vars)
