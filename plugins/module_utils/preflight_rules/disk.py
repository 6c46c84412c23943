# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on disks: room for the environment, caches, model and logs, and whether pdlab may write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    GB,
    GIB,
    INFO,
    VETO,
    Rule,
    View,
    always,
    has_servers,
    size,
)

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

# Measured: the environment that each lock makes, and a margin for what pip and logs leave beside it.
ENGINE_BYTES = {"cpu": 8 * GB, "cuda": 11 * GB}
MARGIN = 1.15
# Kernels that Triton, FlashInfer and their like compile and keep below HOME, which is pdlab's root. An estimate.
KERNEL_CACHE_BYTES = {"cpu": 0, "cuda": 2 * GB}
# What a deployment writes beside an engine that is already there: logs, raw results.
WORKING_BYTES = 1 * GB
# uv unpacks each wheel there and links the environment's files to it: free on one file system, a copy on two.
UV_CACHE = "~/.cache/uv"
CANARY_BYTES = GB // 4


@dataclass(frozen=True)
class Need:
    """Room that something takes at a path."""

    path: str
    count: float
    what: str


def _engine_exists(view: View) -> bool:
    return bool(view.path(view.engine_python).get("exists"))


def model_paths(view: View) -> list[str]:
    """Where the servers of this host expect the model."""
    return list(dict.fromkeys(str(server["model_path"]) for server in view.servers))


def model_bytes(view: View) -> float | None:
    """What a model that is fetched or made takes; 0 for one that is there or that nobody fetches, None if unknown."""
    model = view.plan["model"]
    if (
        not view.servers
        or model["source"] == "local"
        or any(view.path(path).get("exists") for path in model_paths(view))
    ):
        return 0
    if model["source"] == "canary":
        return CANARY_BYTES
    gib = model.get("size_gib")
    return None if gib is None else float(gib) * GIB * MARGIN


def needs(view: View) -> list[Need]:
    """All room that a deployment is going to take on this host."""
    device = view.plan["device"]
    wanted = [Need(view.root, WORKING_BYTES, "logs and results")]
    if not _engine_exists(view):
        wanted.append(Need(view.root, ENGINE_BYTES[device] * MARGIN, "the engine"))
        if KERNEL_CACHE_BYTES[device]:
            wanted.append(Need(view.root, KERNEL_CACHE_BYTES[device], "compiled kernels"))
        if _elsewhere(view, UV_CACHE):
            wanted.append(Need(UV_CACHE, ENGINE_BYTES[device] * MARGIN, "uv's cache"))
    wanted += [Need(path, model_bytes(view) or 0, "the model") for path in model_paths(view)]
    return [need for need in wanted if need.count]


def _file_system(view: View, path: str) -> tuple[int, int] | None:
    """What tells a file system from another: two paths with the same size and the same free room lie on one."""
    at = view.path(path)
    return None if at.get("free_bytes") is None else (at["total_bytes"], at["free_bytes"])


def _elsewhere(view: View, path: str) -> bool:
    """Whether a path is known to lie on another file system than pdlab's root."""
    return None not in (here := (_file_system(view, view.root), _file_system(view, path))) and here[0] != here[1]


def _file_systems(view: View) -> dict[tuple[int, int], list[Need]]:
    """Needs by file system, of those that are known."""
    found: dict[tuple[int, int], list[Need]] = {}
    for need in needs(view):
        key = _file_system(view, need.path)
        if key is not None:
            found.setdefault(key, []).append(need)
    return found


def _wanted(view: View) -> str:
    each = [
        f"{size(sum(need.count for need in there))} free at {there[0].path} ({', '.join(need.what for need in there)})"
        for there in _file_systems(view).values()
    ]
    return "; ".join(each) or f"{size(sum(need.count for need in needs(view)))} free"


def _disk(view: View) -> Seen:
    blind = [need.path for need in needs(view) if view.path(need.path).get("free_bytes") is None]
    seen, small = [], False
    for (_total, free), there in _file_systems(view).items():
        small = small or free < sum(need.count for need in there)
        seen.append(f"{size(free)} free at {view.path(there[0].path)['at']}")
    said = "; ".join(seen) + (" (the engine is there already)" if _engine_exists(view) else "")
    if blind and not small:
        return None, f"the file system of {blind[0]} cannot be asked"
    return not small, said


def _writable(view: View) -> Seen:
    root = view.path(view.root)
    if not root:
        return None, f"{view.root} was not looked at"
    if root["exists"] and not root["directory"]:
        return False, f"{view.root} is not a directory"
    if root["read_only"]:
        return False, f"{root['at']} lies on a read-only file system"
    return root["writable"], f"{root['at']} {'can' if root['writable'] else 'cannot'} be written"


def _writable_cure(view: View) -> str:
    root = view.path(view.root)
    if root.get("read_only"):
        return f"mount -o remount,rw for the file system of {root['at']}, or choose another pd_root"
    if root.get("exists") and not root.get("directory"):
        return f"choose another pd_root, or move {view.root} away"
    return "set ansible_become: true, or choose another pd_root"


def _model_size(view: View) -> Seen:
    count = model_bytes(view)
    if count is None:
        return None, f"the inventory does not say how large {view.plan['model'].get('repo')} is"
    return True, f"{size(count)} with a margin" if count else "the model is there"


RULES: tuple[Rule, ...] = (
    Rule(
        id="root_not_writable",
        severity=VETO,
        finds="`pd_root` cannot be made or written: permissions, a read-only file system, a file in the way",
        applies=always,
        check=_writable,
        wanted=lambda view: f"a directory {view.root} that can be made and written",
        why="Everything that pdlab keeps on the target lies there.",
        cure=_writable_cure,
        cure_in_words="mount -o remount,rw for a read-only file system, ansible_become: true for another user's directory, "
        "or choose another pd_root",
    ),
    Rule(
        id="disk_too_small",
        severity=VETO,
        finds="less room than the engine's environment (8 GB for cpu, 11 GB for cuda, and 15 %), compiled kernels "
        "(2 GB, an estimate), uv's cache where it is not on the same file system, a model that is fetched, and 1 GB for logs "
        "and results need together on one file system; 1 GB when the engine is already there",
        applies=always,
        check=_disk,
        wanted=_wanted,
        why="The engine's environment, its caches, a fetched model, logs and raw results must fit, with a margin of 15 %.",
        cure="free space there (du -xh --max-depth=2 / | sort -h | tail), or choose a pd_root on another disk",
    ),
    Rule(
        id="model_size_unknown",
        severity=INFO,
        finds="a model that is going to be fetched, of which the inventory does not say how large it is",
        applies=lambda view: has_servers(view) and view.plan["model"]["source"] == "hub",
        check=_model_size,
        wanted="pd_model.size_gib",
        why="Role model refuses a model that does not fit when it begins to fetch it, minutes into the deployment.",
        cure="set pd_model.size_gib to what the repository's page says",
    ),
)
