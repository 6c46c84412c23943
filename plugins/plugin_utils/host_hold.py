# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plug-ins that take a host for their run: what the controller knows of the holder in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock


def when_gone(ask: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Ask for the host, and again with {"gone": holder} when who is in the way is known here to have died."""
    answer = ask({})
    other = answer.get("held_by")
    return ask({"gone": other}) if answer.get("failed") and other and is_gone(other) else answer


def is_gone(holder: dict[str, Any]) -> bool:
    """Whether a holder was a process of this machine and is no more."""
    return host_lock.same_machine(holder, host_lock.this_machine()) and not host_lock.runs_here(holder)
