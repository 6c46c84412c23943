# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold a host for one run; a holder on this controller that died is known here, not on the target."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.host_hold import holder_of, when_gone

SAID = ("path", "held", "held_by", "took_over", "systemd")


class ActionModule(ActionBase):
    """Runs the module, for whoever plays this unless a holder is named; once more when the holder in the way was a process of this machine and is gone.

    Not at all when it has said of this root, in this run, who holds the host (`known`).
    """

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        known = arguments.pop("known", None) or {}
        path = host_lock.lock_path(str(arguments.get("root")))
        if known.get("path") == path and "held_by" in known and arguments.get("state", "present") == "present":
            return {**result, **{key: known[key] for key in SAID}, "changed": False}
        arguments["holder"] = arguments.get("holder") or holder_of(task_vars or {})
        return {**result, **when_gone(lambda gone: self._ask({**arguments, **gone}, task_vars))}

    def _ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return dict(
            self._execute_module(module_name="pdlab.pdlab.run_lock", module_args=arguments, task_vars=task_vars or {})
        )
