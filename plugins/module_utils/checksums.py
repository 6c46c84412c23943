# SPDX-License-Identifier: GPL-3.0-or-later
"""SHA-256 lists of a model's files: read in the form of sha256sum(1), compared a slice of time after the other.

Hundreds of gigabytes take minutes. So the work is cut into slices: each ends in time for somebody to be told how
far it is (and to notice that nobody asks any more), and what was hashed is remembered with the file's size and
modification time (module_utils/model_inventory.py) and is not hashed again.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import Files

SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)\Z")
BLOCK_BYTES = 8 * 1024 * 1024
WORKERS = 8


def parse(text: str) -> dict[str, str]:
    """A list as sha256sum writes it: {name: digest}. Raises ValueError naming the first line that is none."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"line {number} is not `HASH  NAME` as sha256sum writes it")
        found[match["name"].removeprefix("./")] = match["digest"].lower()
    if not found:
        raise ValueError("it lists no file")
    return found


def faults(files: Files, wanted: Mapping[str, str]) -> list[str]:
    """What is known to differ from the list, one line a file; files not hashed yet are no fault."""
    found = []
    for name, digest in sorted(wanted.items()):
        entry = files.get(name)
        known = None if entry is None else hash_of(entry)
        if entry is None:
            found.append(f"{name} is missing (pd_model.sha256 names it)")
        elif known is not None and known != digest.lower():
            found.append(f"{name} has the SHA-256 {known}, and pd_model.sha256 says {digest.lower()}")
    return found


def hash_of(entry: Mapping[str, Any]) -> str | None:
    """The SHA-256 of a whole file, when it was read for one."""
    value = entry.get("sha256") or entry.get("checked_sha256")
    return None if value is None else str(value)


def not_hashed(files: Files, wanted: Mapping[str, str]) -> list[str]:
    """The files of the list that must still be read."""
    return [name for name in sorted(wanted) if name in files and hash_of(files[name]) is None]


def hash_slice(
    path: str, files: Files, wanted: Mapping[str, str], slice_s: float | None, tick: Callable[[], None]
) -> None:
    """Hash files of the list until `slice_s` is over (None: all); a file that was begun is finished.

    Their hashes go into `files` as "checked_sha256". `tick` is called often; what it raises ends the work.
    Raises OSError when a file cannot be read.
    """
    deadline = None if slice_s is None else time.monotonic() + slice_s
    waiting = not_hashed(files, wanted)
    stop = threading.Event()

    def one(name: str) -> None:
        if stop.is_set() or (deadline is not None and time.monotonic() >= deadline):
            return
        digest = _hash(os.path.join(path, name), stop)
        if digest is not None:
            files[name]["checked_sha256"] = digest

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(one, name) for name in waiting]
        try:
            tick()  # also when all is done at once
            while not all(future.done() for future in futures):
                concurrent.futures.wait(futures, timeout=0.2)
                tick()
        except BaseException:
            stop.set()
            raise
    for future in futures:
        future.result()


def _hash(full: str, stop: threading.Event) -> str | None:
    digest = hashlib.sha256()
    with open(full, "rb", buffering=0) as stream:
        while block := stream.read(BLOCK_BYTES):
            if stop.is_set():
                return None
            digest.update(block)
    return digest.hexdigest()
