# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths that pdlab is going to use: whether they exist, can be written, and how much room there is."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source


def read_path(source: Source, path: str) -> dict[str, Any]:
    """{"exists", "directory", "writable", "at", "total_bytes", "free_bytes", "noexec", "read_only"} of a path.

    For a path that does not exist yet, all but the first two are those of `at`, the nearest directory above it. A
    path that begins with `~/` lies in this user's home.
    """
    if path.startswith("~/"):
        path = os.path.join(source.home(), path[2:])
    at = path
    while not source.exists(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    system = source.file_system(at) or {}
    return {
        "exists": source.exists(path),
        "directory": source.is_directory(path),
        "writable": source.is_writable(at) and not system.get("read_only"),
        "at": at,
        **{key: system.get(key) for key in ("total_bytes", "free_bytes", "noexec", "read_only")},
    }
