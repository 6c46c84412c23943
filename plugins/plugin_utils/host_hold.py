# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plug-ins that take a host for their run: what the controller knows of the holder in the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import started_at


def holder_of(task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """Who runs this: the `pdlab` process when it says so, otherwise ansible-playbook, the parent of this worker.

    The machine's identity is empty where there is none (macOS), which no target ever equals.
    """
    pid = int(task_vars.get("pdlab_owner_pid") or os.getppid())
    here = host_lock.this_machine()
    return {
        "controller": here["controller"],
        "machine_id": here["machine_id"],
        "pid": pid,
        "pid_started": started_at(pid),
    }


def when_gone(ask: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Ask for the host, and again with {"gone": holder} when who is in the way is known here to have died."""
    answer = ask({})
    other = answer.get("held_by")
    return ask({"gone": other}) if other and is_gone(other) else answer


def is_gone(holder: dict[str, Any]) -> bool:
    """Whether a holder was a process of this machine and is no more."""
    return host_lock.same_machine(holder, host_lock.this_machine()) and not host_lock.runs_here(holder)
