# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on what the engine is built on: Python, compiler, driver, CUDA, UCX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    VETO,
    WARN,
    Rule,
    View,
    grouped,
    uses_gpus,
)

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

OLDEST_PYTHON = (3, 11)
# By major version: docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility, table 1.
OLDEST_DRIVER = {12: 525, 13: 580}
# CUDA 13 has no code for anything before Turing (release notes of 13.0, deprecated architectures).
OLDEST_CAPABILITY = {12: (5, 0), 13: (7, 5)}
DEFAULT_LOCK = "cuda13"
HEADERS = "apt-get install python3-dev"
OWN_HEADERS = "install the C headers of that Python, from where it came"
CUDA_NOTES = "NVIDIA CUDA compatibility guide, minor version compatibility (13.x: 580, 12.x: 525)"


def _existing(view: View) -> bool:
    """Whether the engine is one that pdlab did not build: nothing is built on any Python then."""
    return bool(view.plan["hosts"][view.host].get("engine_existing"))


def _pythons(view: View) -> list[Mapping[str, Any]]:
    """The existing engine's own interpreter, or the one that the inventory names, otherwise all that were found."""
    found = view.facts["pythons"]
    if _existing(view):
        return [python for python in found if python["path"] == view.engine_python and python["version"]]
    return [python for python in found if python["asked"]] or list(found)


def _new_pythons(view: View) -> list[Mapping[str, Any]]:
    return [python for python in _pythons(view) if numbers(python["version"])[:2] >= OLDEST_PYTHON]


def numbers(text: str | None) -> tuple[int, ...]:
    """The numbers of a version; empty when there is none."""
    return tuple(int(part) for part in re.findall(r"\d+", text or "")[:3])


def _python(view: View) -> Seen:
    new = _new_pythons(view)
    if new:
        return True, f"{new[0]['version']} at {new[0]['path']}"
    old = [f"{python['version'] or 'no Python'} at {python['path']}" for python in _pythons(view)]
    return False, ", ".join(old) or "no Python"


def _compiler(view: View) -> Seen:
    path = view.facts["tools"]["gcc"]
    return path is not None, path or "not installed"


def _headers(view: View) -> Seen:
    new = _pythons(view) if _existing(view) else _new_pythons(view)
    if not new:
        return None, f"{view.engine_python} does not answer" if _existing(view) else "no Python that is new enough"
    return new[0]["headers"], f"{'there' if new[0]['headers'] else 'missing'} for {new[0]['path']}"


def cuda_major(view: View) -> int | None:
    """The CUDA version that the engine is built for: of the engine that is there, otherwise of its lock."""
    built = (view.facts.get("engine") or {}).get("cuda_build")
    lock = view.plan["hosts"][view.host].get("engine_lock") or DEFAULT_LOCK
    named = re.fullmatch(r"cu(?:da)?(\d\d).*", built or lock)
    return int(named[1]) if named else None


def _driver(view: View) -> Seen:
    gpu, major = view.facts["gpu"], cuda_major(view)
    if major not in OLDEST_DRIVER:
        return None, "the engine's lock does not say for which CUDA it is"
    driver, offers = gpu["driver"], gpu.get("cuda_version")
    if driver is None and offers is None:
        return None, "nvidia-smi does not say which driver this is"
    seen = f"driver {driver or 'unknown'}" + (f", which offers CUDA {offers}" if offers else "")
    # With NVIDIA's forward-compatibility package an older driver offers a newer CUDA.
    new = bool(driver) and numbers(driver)[:1] >= (OLDEST_DRIVER[major],)
    return new or (offers is not None and numbers(offers)[:1] >= (major,)), seen


def _driver_wanted(view: View) -> str:
    major = cuda_major(view)
    if major not in OLDEST_DRIVER:
        return "a driver for the engine's CUDA"
    return f"driver {OLDEST_DRIVER[major]} or newer, for CUDA {major}"


def _driver_cure(view: View) -> str:
    return f"apt-get install nvidia-driver-{OLDEST_DRIVER.get(cuda_major(view) or 0, 580)}-open, then reboot"


def _capability(view: View) -> Seen:
    oldest = OLDEST_CAPABILITY.get(cuda_major(view) or 0)
    if oldest is None:
        return None, "the engine's lock does not say for which CUDA it is"
    known = [(gpu["index"], gpu.get("compute_capability")) for gpu in view.used_gpus]
    if any(capability is None for _index, capability in known):
        return None, "nvidia-smi does not say the compute capability"
    seen = grouped(view, lambda gpu: f"{gpu['name']}, compute capability {gpu['compute_capability']}")
    return all(numbers(capability)[:2] >= oldest for _index, capability in known), "; ".join(seen)


def _ucx(view: View) -> Seen:
    has = view.facts["engine"].get("ucx_cuda")
    if has is None:
        return None, "the engine's NIXL has no UCX beside it that could be looked at"
    return has, "UCX beside the engine's NIXL " + ("has its CUDA module" if has else "has no CUDA module (libuct_cuda)")


RULES: tuple[Rule, ...] = (
    Rule(
        id="python_too_old",
        severity=VETO,
        finds="no Python 3.11 or newer on the target, or the one that `pd_engine.python` names is not",
        applies=lambda view: not _existing(view),
        check=_python,
        wanted="Python 3.11 or newer",
        why="The engine's environment is built on it.",
        cure="apt-get install python3, or name one with pd_engine.python",
    ),
    Rule(
        id="driver_too_old",
        severity=VETO,
        finds="an NVIDIA driver that is older than the CUDA of the engine's wheels needs",
        applies=lambda view: view.cuda and bool(view.gpus),
        check=_driver,
        wanted=_driver_wanted,
        why="torch and every kernel of the engine are built for this CUDA; on an older driver no server starts.",
        cure=_driver_cure,
        cure_in_words="apt-get install nvidia-driver-580-open (for CUDA 13), then reboot",
        source=CUDA_NOTES,
    ),
    Rule(
        id="gpu_too_old",
        severity=VETO,
        finds="a GPU for which the CUDA of the engine's wheels has no code",
        applies=uses_gpus,
        check=_capability,
        wanted=lambda view: "compute capability {}.{} or newer".format(
            *OLDEST_CAPABILITY.get(cuda_major(view) or 0, (7, 5))
        ),
        why="CUDA 13 dropped the architectures before Turing: the first kernel would fail.",
        cure="name other gpus in pd_servers (nvidia-smi --query-gpu=index,compute_cap --format=csv lists them)",
        source="CUDA Toolkit 13.0 release notes",
    ),
    Rule(
        id="ucx_without_cuda",
        severity=VETO,
        finds="an engine whose UCX, the one beside NIXL, has no CUDA module",
        applies=lambda view: view.cuda and bool(view.facts.get("engine")),
        check=_ucx,
        wanted="libuct_cuda beside the UCX of the nixl wheel",
        why="Such a UCX takes GPU memory for host memory: NIXL refuses to register it, or the server crashes.",
        cure="pdlab rebuild (the lock names nixl-cu13, which brings it)",
        source="sglang #6694; nixl, ucx_utils.cpp",
    ),
    Rule(
        id="compiler_absent",
        severity=WARN,
        finds="no gcc, on a GPU box",
        applies=lambda view: view.cuda,
        check=_compiler,
        wanted="a C compiler",
        why="Triton compiles its launcher on the target at the first kernel.",
        cure="apt-get install gcc",
    ),
    Rule(
        id="python_headers_absent",
        severity=WARN,
        finds="no Python.h for the engine's Python, on a GPU box",
        applies=lambda view: view.cuda,
        check=_headers,
        wanted="Python.h of the engine's Python",
        why="Triton compiles its launcher against it at the first kernel.",
        cure=lambda view: OWN_HEADERS if _existing(view) else HEADERS,
        cure_in_words=f"{HEADERS}; of an existing engine: {OWN_HEADERS}",
    ),
)
