# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines of the servers' logs, shown or kept in the run folder."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import LOGS, write_text


class ActionModule(ActionBase):
    """Options: servers (each with name and log), lines, run_dir. A log that is not there is left out, with its reason."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            {
                "servers": {"type": "list", "elements": "dict", "required": True},
                "lines": {"type": "int", "default": 200},
                "run_dir": {"type": "path"},
            }
        )
        logs, missing = [], []
        for server in options["servers"]:
            done = self._execute_module(
                module_name="ansible.builtin.command",
                module_args={"argv": ["tail", "-n", str(options["lines"]), server["log"]]},
                task_vars=task_vars,
            )
            if done.get("rc") != 0:
                missing.append(f"{server['name']}: {done.get('stderr') or done.get('msg')}")
                continue
            logs.append({"name": server["name"], "path": server["log"], "text": done.get("stdout", "")})
            if options["run_dir"]:
                write_text(
                    os.path.join(options["run_dir"], LOGS, f"{server['name']}.log"), done.get("stdout", "") + "\n"
                )
        result.update(changed=False, logs=logs, missing=missing)
        return result
