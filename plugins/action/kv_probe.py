# SPDX-License-Identifier: GPL-3.0-or-later
"""The kv_probe module, with its result kept in the run folder."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import KV
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """See the module's documentation."""

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        result = KV.result(seen, arguments)
        return None if result is None else {"changed": False, "kept": True, **result}
