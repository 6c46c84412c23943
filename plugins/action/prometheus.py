# SPDX-License-Identifier: GPL-3.0-or-later
"""The prometheus module: its files are made from the plan here, and its result is kept in the run folder."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils.scrape_files import (
    CONFIG,
    RULES,
    TARGETS,
    config_text,
    targets,
    targets_text,
)
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """See the module's documentation."""

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        plan, rules = arguments.pop("plan", None), arguments.pop("rules", None)
        if arguments.get("state", "present") == "present":
            if not plan or not rules:
                raise AnsibleActionFail("prometheus needs `plan` and `rules` to be present: add both to the task")
            try:
                with open(self._find_needle("files", rules), encoding="utf-8") as stream:
                    text = stream.read()
            except OSError as error:
                raise AnsibleActionFail(
                    f"the alert rules cannot be read: {error}; name their file with `rules`"
                ) from error
            arguments["files"] = {
                CONFIG: config_text(plan["monitoring"]["interval_s"]),
                TARGETS: targets_text(targets(plan)),
                RULES: text,
            }
        return super().execute(arguments, task_vars)
