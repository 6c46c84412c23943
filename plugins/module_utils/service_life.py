# SPDX-License-Identifier: GPL-3.0-or-later
"""What is remembered of a service's present life: which definition it was started with, when, and where its log stood.

A definition on disk does not prove that the running process was started from it: whoever wrote it may have been
stopped before the restart. This record is removed before a change and written after the start.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass

from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_log import LogMark
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import read_text, remove_file, replace_text


@dataclass(frozen=True)
class Life:
    """`definition` is the digest of the text that was started.

    `started` is when, in seconds since boot (CLOCK_BOOTTIME, which no clock adjustment moves). `seconds_to_ready` is None until the service was seen ready in this life.
    `launched` is when its manager had carried out the order: to bring itself up may have taken it seconds. None where
    nobody gave that order, or an older pdlab did.
    """

    definition: str
    started: float
    log: LogMark
    seconds_to_ready: float | None = None
    launched: float | None = None


def now() -> float:
    """Return the seconds since boot, suspended time included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def digest(text: str) -> str:
    """Return the SHA-256 of a definition's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def path_of(root: str, name: str) -> str:
    """Return where the record of a service lies."""
    return under(state_dir(root), "services", name + ".json")


def read_life(root: str, name: str) -> Life | None:
    """Return what is remembered, or None when there is nothing (or nothing readable: then it is started anew)."""
    text = read_text(path_of(root, name))
    try:
        data = json.loads(text or "")
        return Life(
            definition=str(data["definition"]),
            started=float(data["started"]),
            log=LogMark(int(data["log"]["offset"]), int(data["log"]["inode"])),
            seconds_to_ready=None if data["seconds_to_ready"] is None else float(data["seconds_to_ready"]),
            launched=None if data.get("launched") is None else float(data["launched"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def write_life(root: str, name: str, life: Life) -> None:
    """Remember. Raises OSError."""
    path = path_of(root, name)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    replace_text(path, json.dumps(asdict(life)) + "\n")


def forget_life(root: str, name: str) -> None:
    """Forget what is remembered. Raises OSError."""
    remove_file(path_of(root, name))
