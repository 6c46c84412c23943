# SPDX-License-Identifier: GPL-3.0-or-later
"""The pd_servers module, with the result of each server kept in the run folder."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import standing_servers
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import OF_THEM_ALL, options_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import ROUTER
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """See the module's documentation."""

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if isinstance(arguments.get("servers"), list):
            arguments["servers"] = [_own(part) for part in arguments["servers"]]
        return super().execute(arguments, task_vars)

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        parts = arguments.get("servers")
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            return None  # the module says what is wrong with them
        common = {key: arguments[key] for key in OF_THEM_ALL if arguments.get(key) is not None}
        now = time.time()
        found = [standing_servers.result_for({**part, **common, **_wait_of(part)}, seen, now) for part in parts]
        known = [result for result in found if result is not None]
        if len(known) < len(found):
            return None
        return {"changed": False, "servers": known, "diff": []}

    def records(self, name: str | None, result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        why = {"failed": True, "msg": result.get("msg")} if result.get("failed") else {}
        found = [
            (f"server-{server['name']}", {**server, **(why if server["name"] == result.get("name") else {})})
            for server in result.get("servers") or []
        ]
        # What is said of all of them together has no record of a server to stand in.
        return found + ([(name, result)] if name and why and not result.get("name") else [])


def _wait_of(part: dict[str, Any]) -> dict[str, Any]:
    """As in the module: a router is not waited for."""
    return {"wait": False} if part.get("role") == ROUTER else {}


def _own(part: Any) -> Any:
    """What a server takes, of a description in the plan: that one says where it ends up, too."""
    return options_of(part) if isinstance(part, dict) and "argv" in part else part
