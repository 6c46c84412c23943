# SPDX-License-Identifier: GPL-3.0-or-later
"""The pd_server module, with its result kept in the run folder."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import standing_servers
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """See the module's documentation."""

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        return standing_servers.result_for(arguments, seen, time.time())
