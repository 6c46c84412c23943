# SPDX-License-Identifier: GPL-3.0-or-later
"""The box_state module, with its result kept in the run folder."""

from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """See the module's documentation."""
