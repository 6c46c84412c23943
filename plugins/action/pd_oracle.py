# SPDX-License-Identifier: GPL-3.0-or-later
"""Run pd_oracle and keep its result in the run folder (see RecordedAction for run_dir, record and seen)."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import oracle_run
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """Record: oracle."""

    record = "oracle"

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        if arguments.get("state") != "present" or arguments.get("url") or not arguments.get("settings"):
            return None
        path = (seen.get("references") or {}).get(oracle_run.settings_path({**oracle_run.CASES, **arguments}))
        if path is None:
            return None
        return {"changed": False, "ok": True, "present": True, "reference_file": path, "why": None}
