# SPDX-License-Identifier: GPL-3.0-or-later
"""Who listens on the ports that a plan wants, and which processes are pdlab's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

_UNIT = re.compile(r"/pdlab-[^/\n]+\.service(/|$)", re.MULTILINE)


def read_ports(source: Source, ports: Sequence[int], root: str | None) -> list[dict[str, Any]]:
    """[{"port", "address", "pid", "command", "own"}] of every listener on `ports`.

    `pid` is None when its owner belongs to another user; `own` tells whether it runs from below `root`.
    """
    return [
        {
            "port": listener.port,
            "address": listener.address,
            "pid": listener.pid,
            "command": listener.command,
            "own": bool(root and listener.pid and is_own(source, listener.pid, root)),
        }
        for listener in sorted(source.listeners(ports), key=lambda found: (found.port, found.address))
    ]


def is_own(source: Source, pid: int, root: str) -> bool:
    """Whether a process or one above it runs a program from below pdlab's root.

    An engine's children and the router overwrite their command line with a title: then their ancestors tell, or
    the systemd unit that they run in.
    """
    if _UNIT.search(source.text(f"/proc/{pid}/cgroup") or ""):
        return True
    while pid > 1:
        if _program(source, pid).startswith(root.rstrip("/") + "/"):
            return True
        process = source.process(pid)
        if process is None:
            return False
        pid = process.parent
    return False


def own_memory_bytes(source: Source, root: str) -> int:
    """Memory that pdlab's running services hold for themselves (RssAnon); a new start gets it back."""
    table = source.process_table()
    heads = [pid for pid in table if _program(source, pid).startswith(root.rstrip("/") + "/")]
    mine = {pid for head in heads for pid in processes.process_tree(head, table)}
    return sum(_anonymous_bytes(source, pid) for pid in mine)


def _program(source: Source, pid: int) -> str:
    return next((item for item in source.command_line(pid) if item.startswith("/")), "")


def _anonymous_bytes(source: Source, pid: int) -> int:
    for line in (source.text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
