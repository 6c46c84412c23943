# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what came of a run, and fail when a benchmark point did not count. Controller only."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Options: failed_points (labels), report (lines to show)."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            {
                "failed_points": {"type": "list", "elements": "str", "default": []},
                "report": {"type": "list", "elements": "str", "default": []},
            }
        )
        failed = options["failed_points"]
        result.update(changed=False, failed_points=failed, report=options["report"])
        if options["report"]:
            result["_ansible_verbose_always"] = True
        if failed:
            plural = "points" if len(failed) > 1 else "point"
            result.update(failed=True, msg=f"{len(failed)} benchmark {plural} failed: {', '.join(failed)}")
        return result
