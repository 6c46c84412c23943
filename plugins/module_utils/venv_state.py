# SPDX-License-Identifier: GPL-3.0-or-later
"""What a virtual environment that pdlab built is now, and whether that is what is wanted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import VENV_STAMP

DESCRIBED = ("fingerprint", "python_version", "packages", "lock_sha256", "distributions_sha256")


def read_venv(path: str) -> dict[str, Any]:
    """{"exists", "stamp", "interpreter", "packages"} of the environment at `path`; never raises.

    `stamp` is what it was built from, empty when it was never completed; `interpreter`: whether there is one;
    `packages`: {name: version} as they are on disk now.
    """
    return {
        "exists": os.path.isdir(path),
        "stamp": read_stamp(path),
        "interpreter": os.path.exists(os.path.join(path, "bin", "python")),
        "packages": distributions(path),
    }


def read_stamp(path: str) -> dict[str, Any]:
    """What the environment was built from; empty when it was never completed."""
    try:
        with open(os.path.join(path, VENV_STAMP), encoding="utf-8") as stream:
            stamp = json.load(stream)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def distributions(path: str) -> dict[str, str]:
    """Name and version of every distribution in an environment, from the names of its dist-info directories."""
    found = {}
    lib = os.path.join(path, "lib")
    for python in sorted(os.listdir(lib)) if os.path.isdir(lib) else []:
        site = os.path.join(lib, python, "site-packages")
        for entry in os.listdir(site) if os.path.isdir(site) else []:
            if entry.endswith(".dist-info"):
                name, _dash, version = entry[: -len(".dist-info")].rpartition("-")
                found[name.lower().replace("_", "-")] = version
    return dict(sorted(found.items()))


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


def described(stamp: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says of an environment."""
    return {key: stamp.get(key) for key in DESCRIBED}
