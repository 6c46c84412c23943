# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs on the target: Pythons that could host the engine, uv, a C compiler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Command, Source

# In the order in which the engine's environment looks for one.
PYTHONS = ("/usr/bin/python3", "python3.13", "python3.12", "python3.11", "python3")
TOOLS = ("uv", "gcc", "systemctl", "nvidia-smi")
_PROBE = (
    "import json, os, sys; v = sys.version_info; "
    "h = os.path.join(sys.base_prefix, 'include', 'python%d.%d' % v[:2], 'Python.h'); "
    "print(json.dumps({'version': '%d.%d.%d' % v[:3], 'headers': os.path.exists(h)}))"
)


def start_pythons(source: Source, extra: Sequence[str] = ()) -> dict[str, Command]:
    """Ask every interpreter for its version; each file once, whatever its names.

    Scripts (pyenv's shims take 0.1 s each) are asked only when there is no compiled interpreter at all.
    """
    by_file: dict[str, str] = {}
    for name in (*extra, *PYTHONS):
        path = source.which(name)
        if path is not None:
            by_file.setdefault(source.real_path(path), path)
    programs = [path for path in by_file.values() if path in extra or source.is_program(path)]
    # -I -S: neither the user's site-packages nor a slow sitecustomize.
    return {path: source.command([path, "-I", "-S", "-c", _PROBE]) for path in programs or by_file.values()}


def read_pythons(started: dict[str, Command], timeout_s: float, asked: Sequence[str] = ()) -> list[dict[str, Any]]:
    """[{"path", "version", "headers", "asked"}] of those that answered (a pyenv shim of no version does not).

    One that was asked for and does not answer, or is not there, is listed with nulls.
    """
    found = [{"path": path, "version": None, "headers": None, "asked": True} for path in asked if path not in started]
    for path, command in started.items():
        said = command.result(timeout_s)
        try:
            answer = json.loads(said.stdout) if said.rc == 0 else None
        except ValueError:
            answer = None
        if isinstance(answer, dict) or path in asked:
            found.append({"path": path, "version": None, "headers": None, **(answer or {}), "asked": path in asked})
    return found


def read_tools(source: Source) -> dict[str, str | None]:
    """{name: full path, or None when it is not installed}."""
    return {name: source.which(name) for name in TOOLS}
