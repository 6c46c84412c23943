# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the processes of a server really have the environment that was asked for: read from /proc/PID/environ.

The main process has what the service manager gave it. Its children have what the engine made of that, and an engine
does overwrite some variables. Only processes of the engine's own interpreter count: a compiler that a rank calls for
a moment may have any environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.live_process import TITLE_PREFIX

# What each process needs to run at all; a library may well put something in front of PATH.
BASICS = ("PATH", "HOME", "LANG", "PYTHONUNBUFFERED")
# A process that sets its title wipes its environment in /proc, unless this is set (setproctitle's README).
KEEPS_ENVIRONMENT = "SPT_NOENV"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


def check(pids: Iterable[int], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Compare the environment of processes with `wanted`; the first PID is the main process.

    Returns {"ok", "checked", "differences", "unknown"}: how many processes were compared, what differs as
    {"pid", "process", "name", "wanted", "seen"} with `seen` None for a variable that is not there, and a sentence for
    each process whose environment cannot be read. Not ok when anything differs, or when no process could be read.
    """
    names = [name for name in wanted if name not in BASICS]
    tree = list(pids)
    interpreter = _executable(tree[0]) if tree else None
    checked, differences, unknown = 0, [], []
    for pid in tree:
        if interpreter is not None and _executable(pid) != interpreter:
            continue
        process = processes.describe(pid, 60)
        environment = processes.environment(pid)
        if not processes.is_alive(pid):
            continue
        if not environment or (process.startswith(TITLE_PREFIX) and KEEPS_ENVIRONMENT not in environment):
            unknown.append(f"PID {pid} ({process}): its environment cannot be read")
            continue
        checked += 1
        differences += [
            {"pid": pid, "process": process, "name": name, "wanted": wanted[name], "seen": environment.get(name)}
            for name in names
            if environment.get(name) != wanted[name]
        ]
    return {
        "ok": bool(checked) and not differences,
        "checked": checked,
        "differences": differences,
        "unknown": unknown,
    }


def sentences(result: Mapping[str, Any]) -> list[str]:
    """What `check` found, a line for each variable: its name, what was wanted, what is seen, and in which processes."""
    grouped: dict[tuple[str, str, str | None], list[str]] = {}
    for item in result["differences"]:
        where = f"PID {item['pid']} ({item['process']})"
        grouped.setdefault((item["name"], item["wanted"], item["seen"]), []).append(where)
    lines = []
    for (name, wanted, seen), places in grouped.items():
        if _SECRET.search(name):
            wanted, seen = "the value that was asked for", None if seen is None else "another one"
        lines.append(f"{name}: wanted {wanted}, seen {'nothing' if seen is None else seen} in {', '.join(places)}")
    return lines or ([] if result["ok"] else list(result["unknown"]) or ["no process is left to look at"])


def _executable(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return None
