# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model directory consists of, and one fingerprint for it."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

MANIFEST = "pdlab-manifest.json"
HASHED_WHOLE_BYTES = 64 * 1024 * 1024


def inventory(path: str) -> dict[str, dict[str, Any]]:
    """Size of every file of a model, and the SHA-256 of those small enough to read at every deployment."""
    found = {}
    for directory, _names, files in os.walk(path):
        for name in files:
            full = os.path.join(directory, name)
            relative = os.path.relpath(full, path)
            if relative == MANIFEST or relative.startswith(".cache" + os.sep):
                continue
            size = os.stat(full).st_size
            entry: dict[str, Any] = {"size": size}
            if size <= HASHED_WHOLE_BYTES:
                with open(full, "rb") as stream:
                    entry["sha256"] = hashlib.sha256(stream.read()).hexdigest()
            found[relative] = entry
    return dict(sorted(found.items()))


def fingerprint(files: dict[str, dict[str, Any]]) -> str:
    """One hash for the whole inventory."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
