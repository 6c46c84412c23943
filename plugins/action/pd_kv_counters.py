# SPDX-License-Identifier: GPL-3.0-or-later
"""Run pd_kv_counters and keep its result in the run folder (see RecordedAction for run_dir and record)."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """Its record's `failed` is a number of requests; in a task's result that word means another thing."""

    record = "kv_transfer"

    def document(self, result: dict[str, Any]) -> dict[str, Any]:
        document = super().document(result)
        if "failed_requests" in document:
            document["failed"] = document.pop("failed_requests")
        return document
