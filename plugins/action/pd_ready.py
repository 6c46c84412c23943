# SPDX-License-Identifier: GPL-3.0-or-later
"""Run pd_ready and keep its result in the run folder (see RecordedAction for run_dir and record)."""

from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """Record: ready."""

    record = "ready"
