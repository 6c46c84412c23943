# SPDX-License-Identifier: GPL-3.0-or-later
"""Open or close a stage of a run, and make the run folder when the run has none yet."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ansible import __version__ as ansible_version
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.host_hold import holder_of


class ActionModule(ActionBase):
    """Controller only. Options: name, state (started|finished), ok, why, run_dir, runs_dir, plan."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            {
                "name": {"type": "str", "required": True},
                "state": {"type": "str", "choices": ["started", "finished"], "default": "started"},
                "ok": {"type": "bool", "default": True},
                "why": {"type": "str"},
                "run_dir": {"type": "str"},
                "runs_dir": {"type": "str", "default": "runs"},
                "plan": {"type": "dict"},
            }
        )
        result.update(changed=False, stage=options["name"], state=options["state"], stage_ok=options["ok"])
        result["holder"] = holder_of(task_vars or {})
        if self._task.check_mode:
            return result
        try:
            run_dir = options["run_dir"] or self._new_run(options)
            if options["plan"]:
                # Again at each stage: preflight's look at the box completes it.
                run_folder.write_json(os.path.join(run_dir, run_folder.PLAN), json.loads(json.dumps(options["plan"])))
            event = "start" if options["state"] == "started" else "end"
            run_folder.append_stage(run_dir, options["name"], event, options["ok"], options["why"])
        except OSError as error:
            raise AnsibleActionFail(
                f"the run folder cannot be written: {error}. "
                "Free space, or name another directory with pdlab_runs_dir (pdlab: --runs-dir)."
            ) from error
        result["run_dir"] = run_dir
        return result

    def _new_run(self, options: dict[str, Any]) -> str:
        plan = options["plan"] or {}
        return run_folder.create_run(
            options["runs_dir"],
            {
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "ended": None,
                "command": ["ansible-playbook"],
                "rehearsal": plan.get("rehearsal"),
                "controller": {
                    "host": os.uname().nodename,
                    "pid": os.getppid(),
                    "python": sys.version.split()[0],
                    "ansible_core": ansible_version,
                },
                "status": "running",
                "exit_code": None,
                "why": None,
            },
        )
