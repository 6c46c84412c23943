# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: one table of rules over a box's facts. A new check is a new row in the RULES of one of these files.

A rule is named after the fault that it finds. `check` returns (ok, what was seen); ok is None when the fact is
unknown, which is never fine: an unknown veto becomes a warning.
"""

from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.questions import (
    facts_options,
    wanted_paths,
    wanted_ports,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import INFO, VETO, WARN, Rule, View
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.verdicts import (
    GROUPS,
    RULES,
    judge,
    judged,
    line,
    vetoes,
    warnings,
)

__all__ = [
    "GROUPS",
    "INFO",
    "RULES",
    "VETO",
    "WARN",
    "Rule",
    "View",
    "facts_options",
    "judge",
    "judged",
    "line",
    "vetoes",
    "wanted_paths",
    "wanted_ports",
    "warnings",
]
