# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a model that was judged before and has not been touched since: nothing of it is read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import checksums, quantization
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import (
    Files,
    fingerprint,
    read_manifest,
    remembered,
    untouched,
)

LOCAL, HUB, CANARY = "local", "hub", "canary"


def canary_content(files: Files) -> dict[str, dict[str, Any]]:
    """What of an inventory tells an intact canary: times may differ."""
    return {name: {key: value for key, value in entry.items() if key != "mtime_ns"} for name, entry in files.items()}


def read_model(root: str, path: str) -> dict[str, Any] | None:
    """What is known of the model at `path`; None when that is not all, or when any file is not as it was. Never raises.

    {"fingerprint", "files": how many, "bytes", "hashes": {name: SHA-256 of the whole file or None}, "quantization",
    "architecture", "manifest": what the folder's manifest says but for its files, "intact": {"canary", "hub"}}.
    `intact` tells whether the files are those of the manifest, each of the two in its own terms.
    """
    memory = remembered(root, path)
    files: Files = memory["files"]
    try:
        if not memory["whole"] or not memory["quantization"] or not untouched(path, files):
            return None
        architecture = quantization.architecture_of(path)
    except (OSError, ValueError):
        return None
    manifest = read_manifest(path)
    listed = manifest.pop("files", None)
    return {
        "fingerprint": fingerprint(files),
        "files": len(files),
        "bytes": sum(entry["size"] or 0 for entry in files.values()),
        "hashes": {name: checksums.hash_of(entry) for name, entry in files.items()},
        "quantization": memory["quantization"],
        "architecture": architecture,
        "manifest": manifest,
        "intact": {CANARY: listed == canary_content(files), HUB: _as_fetched(listed, files)},
    }


def _as_fetched(listed: Any, files: Files) -> bool:
    """Whether each file of a hub's manifest has the size and the time that it was fetched with."""
    if not isinstance(listed, dict):
        return False
    return all(
        name in files and all(files[name][key] == entry.get(key) for key in ("size", "mtime_ns"))
        for name, entry in listed.items()
    )


def standing(model: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of model_files with the options `wanted` when there is nothing to do, or to say; else None.

    `model` is from `read_model`, of the folder and the root that `wanted` names.
    """
    source, sums = wanted.get("source"), wanted.get("sha256") or {}
    hashes = {name: {"sha256": digest} for name, digest in model["hashes"].items()}
    if wanted.get("warm_up") or quantization.mismatch(model["quantization"], wanted.get("quantization")):
        return None
    if checksums.not_hashed(hashes, sums) or checksums.faults(hashes, sums):
        return None
    result = {"path": wanted["path"], "source": source, "changed": False}
    if source == CANARY and not (model["intact"][CANARY] and model["manifest"].get("maker") == wanted.get("maker", "")):
        return None
    if source == HUB:
        if not (model["intact"][HUB] and _is_revision(model["manifest"], wanted)):
            return None
        result["commit"] = model["manifest"]["commit"]
    known = {key: model[key] for key in ("quantization", "architecture", "fingerprint", "files", "bytes")}
    return {**result, **known, "sha256_checked": len(sums)}


def _is_revision(manifest: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return (
        manifest.get("source") == HUB
        and manifest.get("repo") == wanted.get("repo")
        and wanted.get("revision") in (manifest.get("revision"), manifest.get("commit"))
        and manifest.get("exclude") == sorted(wanted.get("exclude") or [])
        and bool(wanted.get("python"))
    )
