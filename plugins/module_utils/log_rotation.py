# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a service's log from growing over many lives: renamed when it is large, while nobody writes to it."""

from __future__ import annotations

import os

from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_program import LOG_BACKUPS, LOG_MAX_BYTES


def rotate(path: str, max_bytes: int = LOG_MAX_BYTES, backups: int = LOG_BACKUPS) -> bool:
    """Rename LOG to LOG.1, LOG.1 to LOG.2 and so on, as supervisor does, when LOG has `max_bytes`; return whether.

    To be called while the service is stopped. Raises OSError.
    """
    try:
        if os.path.getsize(path) < max_bytes:
            return False
    except FileNotFoundError:
        return False
    for number in range(backups - 1, 0, -1):
        if os.path.exists(f"{path}.{number}"):
            os.replace(f"{path}.{number}", f"{path}.{number + 1}")
    os.replace(path, f"{path}.1")
    return True
