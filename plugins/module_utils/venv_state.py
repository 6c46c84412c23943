# SPDX-License-Identifier: GPL-3.0-or-later
"""What a virtual environment that pdlab built is now, and whether that is what is wanted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import overlay as overlays
from ansible_collections.pdlab.pdlab.plugins.module_utils.environment_files import (
    installed,
    read_below,
    site_packages,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import VENV_STAMP

DESCRIBED = ("fingerprint", "python_version", "packages", "lock_sha256", "distributions_sha256")


def read_venv(path: str) -> dict[str, Any]:
    """{"exists", "stamp", "interpreter", "packages", "overlay", "overlay_faults"} of the environment at `path`.

    `stamp` is what it was built from, empty when it was never completed; `interpreter`: whether there is one;
    `packages`: {name: version} as they are on disk now; `overlay`: the document (see overlay.py) of what was applied,
    empty for none; `overlay_faults`: a line for each file that is no longer what the overlay made it. Never raises.
    """
    stamp = read_document(path, VENV_STAMP)
    # An environment without a stamp has nothing that could be relied on.
    overlay = read_document(path, overlays.APPLIED) if stamp.get("overlay_sha256") else {}
    return {
        "exists": os.path.isdir(path),
        "stamp": stamp,
        "interpreter": os.path.exists(os.path.join(path, "bin", "python")),
        "packages": distributions(path),
        "overlay": overlay,
        "overlay_faults": overlay_faults(path, overlay, stamp),
    }


def read_document(path: str, name: str) -> dict[str, Any]:
    """A JSON file of an environment; empty when it is missing or damaged."""
    try:
        with open(os.path.join(path, name), encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def overlay_faults(path: str, overlay: Mapping[str, Any], stamp: Mapping[str, Any]) -> list[str]:
    """A line for each file that is not what the applied overlay made it."""
    if overlays.digest(overlay) != stamp.get("overlay_sha256", ""):
        return [f"{overlays.APPLIED}: the note of what was applied is missing or damaged"]
    if not overlay:
        return []
    try:
        return overlays.changed_files(overlay, reader(path))
    except OSError as error:
        return [str(error)]


def reader(path: str) -> overlays.Reader:
    """How a file of an environment is read, by its path below site-packages."""
    (folder,) = site_packages(path)[:1] or [path]
    return lambda name: read_below(folder, name)


def distributions(path: str) -> dict[str, str]:
    """Name and version of every distribution in an environment."""
    return installed(site_packages(path))


def reason_to_build(state: Mapping[str, Any], wanted: Mapping[str, Any], base_version: str | None) -> str | None:
    """Why an environment must be built, or None when it is what it should be.

    `state` is from `read_venv`; `wanted` has lock_sha256, distributions_sha256 and rebuild; `base_version` is the
    version of the interpreter that was named, None when none was.
    """
    stamp = state["stamp"]
    if not state["exists"]:
        return "it does not exist"
    if not stamp:
        return "it was never completed, or not made by pdlab"
    for key, name in (("lock_sha256", "lock"), ("distributions_sha256", "local distributions")):
        if stamp.get(key, "") != (wanted.get(key) or ""):
            return f"the {name} changed"
    if base_version is not None and base_version != stamp.get("python_version"):
        return f"its Python is {stamp.get('python_version')}, wanted is {base_version}"
    if not state["interpreter"]:
        return "its interpreter is gone"
    if state["packages"] != stamp.get("packages"):
        return "its distributions are not the ones that were installed"
    return "a rebuild was asked for" if wanted.get("rebuild") else None


def reason_to_patch(state: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Why the overlay of an environment that is otherwise right must change, or None.

    `wanted` has overlay_sha256, empty for no overlay.
    """
    asked, present = wanted.get("overlay_sha256") or "", state["stamp"].get("overlay_sha256", "")
    if asked == present:
        return None
    if not present:
        return "an overlay is to be applied"
    return "the overlay changed" if asked else "the overlay is to be taken back"


def described(stamp: Mapping[str, Any], overlay: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a result says of an environment with a stamp and an applied overlay."""
    return {
        **{key: stamp.get(key) for key in DESCRIBED},
        "overlay_sha256": stamp.get("overlay_sha256", ""),
        "overlay": overlays.summary(overlay),
    }
