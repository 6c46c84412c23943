# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry a lock, local distributions and an overlay to the target, but only when it has not been built from them."""

from __future__ import annotations

import hashlib
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import venv_state
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import digest
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.local_distributions import CarryingAction, tree_sha256
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.overlay_folder import read_overlay


class ActionModule(CarryingAction):
    """Asks the module first by hash; sends files and asks again only when there is something to build."""

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state", "present") == "absent":
            return super().execute(arguments, task_vars)
        lock = self.find(arguments.pop("lock", None), "lock")
        sources = [self.find(path, "distributions") for path in arguments.pop("distributions", None) or []]
        overlay = read_overlay(arguments.pop("overlay", None))
        arguments["lock_sha256"] = hashlib.sha256(lock.read_bytes()).hexdigest()
        arguments["distributions_sha256"] = tree_sha256(sources)
        arguments["overlay_sha256"] = digest(overlay)
        # The host is asked by hash first, unless preflight has seen all of it; files follow only for a build.
        result = super().execute(arguments, task_vars)
        if not result.get("wants_files") and not result.get("wants_overlay"):
            return result
        if overlay:
            arguments["overlay_document"] = overlay
        if result.get("wants_files"):
            arguments["lock_path"] = self.send(lock)
            arguments["wheel_paths"] = [self.send(wheel) for wheel in self.wheels(sources)]
        return super().execute(arguments, task_vars)

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        state = (seen.get("environments") or {}).get(arguments.get("path"))
        # An interpreter that was named has to be asked for its version, and a wheelhouse has to be there.
        if state is None or arguments.get("python") or arguments.get("wheelhouse") or state["overlay_faults"]:
            return None
        if venv_state.reason_to_build(state, arguments, None) or venv_state.reason_to_patch(state, arguments):
            return None
        path = str(arguments["path"])
        return {
            "changed": False,
            "path": path,
            "python": f"{path}/bin/python",
            **venv_state.described(state["stamp"], state["overlay"]),
        }
