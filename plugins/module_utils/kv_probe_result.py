# SPDX-License-Identifier: GPL-3.0-or-later
"""The kept result of the KV probe, and for what it holds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

DEFAULTS: dict[str, Any] = {"devices": [], "bytes": 64 * 1024 * 1024, "fingerprint": None}
ASKED = ("python", "memory", *DEFAULTS)


def result_path(state_dir: str) -> str:
    """The file of the kept result."""
    return os.path.join(state_dir, "kv_probe.json")


def read_kept(state_dir: str) -> dict[str, Any]:
    """{"boot": identity of this boot, "document": what is kept, or None}; never raises."""
    return {"boot": boot_id(), "document": _read(result_path(state_dir))}


def boot_id() -> str:
    """Identity of this boot; a driver or a limit can only have changed with it or with the engine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def key_of(options: Mapping[str, Any], boot: str) -> dict[str, Any]:
    """What a result depends on."""
    return {**{name: options[name] for name in ASKED}, "boot": boot}


def kept_result(kept: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The kept result for exactly these options on this boot, or None. `kept` is from `read_kept`."""
    document = kept.get("document")
    if not isinstance(document, dict) or document.get("key") != key_of(options, kept["boot"]):
        return None
    result = document.get("result")
    return result if isinstance(result, dict) else None


def _read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None
