# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model directory consists of, one fingerprint for it, and what is remembered so that neither costs twice.

A checkpoint has hundreds of gigabytes. What was read of a file is remembered with its size and modification time
and holds as long as both do, so that a second deployment reads nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

MANIFEST = "pdlab-manifest.json"
HASHED_WHOLE_BYTES = 64 * 1024 * 1024
# Of a larger file so many pieces are read: two trainings of one architecture differ in none of the sizes.
SAMPLES = 16
SAMPLE_BYTES = 64 * 1024
SCHEMA = 1
NOTHING: dict[str, Any] = {"files": {}, "whole": False, "quantization": None}

Files = dict[str, dict[str, Any]]


def inventory(path: str, known: Mapping[str, Mapping[str, Any]] | None = None) -> Files:
    """Every file of a model: {"size", "mtime_ns", and "sha256" (small files) or "sample" (large ones)}.

    `known` is an earlier inventory; of a file whose size and modification time are as they were, everything is
    taken from there ("checked_sha256" too, a large file's own hash). Hidden folders are left out (.git, .cache).
    A link to nothing has no size: {"size": None}. Raises OSError when a file cannot be read.
    """
    found = {relative: _entry(full, (known or {}).get(relative)) for relative, full in _walk(path)}
    return dict(sorted(found.items()))


def untouched(path: str, files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a model consists of exactly these files with these sizes and times. No file is opened; raises OSError."""
    found = {}
    for relative, full in _walk(path):
        try:
            status = os.stat(full)
        except FileNotFoundError:
            return False
        found[relative] = (status.st_size, status.st_mtime_ns)
    return found == {name: (entry["size"], entry["mtime_ns"]) for name, entry in files.items()}


def _walk(path: str) -> Iterator[tuple[str, str]]:
    """Each file of a model: its name below the folder, and its path."""
    for directory, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            full = os.path.join(directory, name)
            relative = os.path.relpath(full, path)
            if relative != MANIFEST:
                yield relative, full


def _entry(full: str, known: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        status = os.stat(full)
    except FileNotFoundError:
        return {"size": None, "mtime_ns": None}
    entry: dict[str, Any] = {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if (
        known
        and all(known.get(key) == value for key, value in entry.items())
        and ("sha256" in known or "sample" in known)
    ):
        return dict(known)
    if status.st_size <= HASHED_WHOLE_BYTES:
        with open(full, "rb") as stream:
            return {**entry, "sha256": hashlib.sha256(stream.read()).hexdigest()}
    return {**entry, "sample": _sample(full, status.st_size)}


def _sample(full: str, size: int) -> str:
    """A hash over pieces of a large file, evenly spaced, its first and last bytes among them."""
    digest = hashlib.sha256()
    with open(full, "rb", buffering=0) as stream:
        for index in range(SAMPLES):
            stream.seek((size - SAMPLE_BYTES) * index // (SAMPLES - 1))
            digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()


def read_manifest(path: str) -> dict[str, Any]:
    """What a download or the canary's maker left in a model's folder; empty when there is none."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as stream:
            manifest = json.load(stream)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def fingerprint(files: Mapping[str, Mapping[str, Any]]) -> str:
    """One hash for the whole inventory: the same on every host that has the same files, whenever they came there."""
    content = {
        name: {key: entry[key] for key in ("size", "sha256", "sample") if key in entry} for name, entry in files.items()
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def memory_path(root: str, path: str) -> str:
    """Where pdlab remembers what it found in a model directory; a local checkpoint itself is never touched."""
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:12]
    return under(state_dir(root), f"model-{name}.json")


def remembered(root: str | None, path: str) -> dict[str, Any]:
    """What was found last time: {"files": inventory, "whole": bool, "quantization": mapping or null}."""
    if root is None:
        return dict(NOTHING)
    try:
        with open(memory_path(root, path), encoding="utf-8") as stream:
            memory = json.load(stream)
    except (OSError, ValueError):
        memory = None
    if not isinstance(memory, dict) or memory.get("schema") != SCHEMA or not isinstance(memory.get("files"), dict):
        return dict(NOTHING)
    # What an earlier pdlab did not write down is unknown.
    return {**NOTHING, **memory}


def remember(
    root: str | None, path: str, files: Files, whole: bool, quantization: Mapping[str, str] | None = None
) -> None:
    """Keep for next time what was found; `whole` when nothing was missing. Raises OSError."""
    if root is not None:
        os.makedirs(state_dir(root), exist_ok=True)
        found = {"files": files, "whole": whole, "quantization": quantization}
        write_json(memory_path(root, path), {"schema": SCHEMA, "path": path, **found})
