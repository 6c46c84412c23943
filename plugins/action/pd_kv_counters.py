# SPDX-License-Identifier: GPL-3.0-or-later
"""Run pd_kv_counters and keep its result in the run folder (see RecordedAction for run_dir and record)."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_record
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import BOOKKEEPING, RecordedAction


class ActionModule(RecordedAction):
    """Record: kv_transfer. Its `failed` is a number of requests; in a task's result that word means another thing."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        run_dir = self._task.args.get("run_dir")
        if run_dir and "failed_requests" in result:
            document = {key: value for key, value in result.items() if key not in (*BOOKKEEPING, "failed_requests")}
            document["failed"] = result["failed_requests"]
            write_record(run_dir, self._task.args.get("record") or "kv_transfer", document)
        return result
