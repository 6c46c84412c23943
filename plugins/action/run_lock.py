# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold a host for one run; a holder on this controller that died is known here, not on the target."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock


class ActionModule(ActionBase):
    """Runs the module; once more when the holder in the way was a process of this machine and is gone."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        answer = self._ask(arguments, task_vars)
        other = answer.get("held_by")
        if answer.get("failed") and other and is_gone(other):
            answer = self._ask({**arguments, "gone": other}, task_vars)
        return {**result, **answer}

    def _ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return dict(
            self._execute_module(module_name="pdlab.pdlab.run_lock", module_args=arguments, task_vars=task_vars or {})
        )


def is_gone(holder: dict[str, Any]) -> bool:
    """Whether a holder was a process of this machine and is no more."""
    return host_lock.same_machine(holder, host_lock.this_machine()) and not host_lock.runs_here(holder)
