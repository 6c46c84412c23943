# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose turn it is on a host: one run at a time, and no run that died in the way.

A holder is {"controller": host name, "machine_id", "pid", "pid_started": seconds since the epoch or None}.
A holder on the target itself is looked up among its processes. One on another machine counts as alive until its
lease ends, unless that machine says otherwise (the action plug-in run_lock asks it when it is the controller).
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

# A start time is computed from the clock, which may have been set since.
START_TOLERANCE_S = 5.0
GUARD_WAIT_S = 5.0

Holder = Mapping[str, Any]


def lock_path(root: str) -> str:
    """The lock file below pdlab's root."""
    return under(state_dir(root), "run.lock")


def this_machine() -> dict[str, str]:
    """{"controller", "machine_id", "boot_id"} of the machine that this runs on; empty texts for what it has not."""
    return {
        "controller": os.uname().nodename,
        "machine_id": _text("/etc/machine-id"),
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
    }


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read().strip()
    except (OSError, ValueError):
        return ""


def same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both name one machine. Clones share a machine id and laptops a name: both must agree."""
    return one.get("controller") == other.get("controller") and one.get("machine_id") == other.get("machine_id")


def same_holder(one: Holder, other: Holder) -> bool:
    """Whether both are one process of one machine."""
    if not same_machine(one, other) or one.get("pid") != other.get("pid"):
        return False
    return _close(one.get("pid_started"), other.get("pid_started"))


def _close(one: Any, other: Any) -> bool:
    return one is None or other is None or abs(float(one) - float(other)) <= START_TOLERANCE_S


def runs_here(holder: Holder) -> bool:
    """Whether a holder's process lives on this machine (Linux by /proc, otherwise by signal 0)."""
    pid = int(holder["pid"])
    if not os.path.isdir("/proc/self"):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    return processes.is_alive(pid) and _close(processes.started_at(pid), holder.get("pid_started"))


def is_alive(lock: Mapping[str, Any], here: Mapping[str, str], now: float) -> bool:
    """Whether a lock's holder may still be at work, seen from the host that it holds."""
    if not same_machine(lock["holder"], here):
        return bool(float(lock["refreshed"]) + float(lock["lease_s"]) > now)
    return lock.get("boot_id") == here["boot_id"] and runs_here(lock["holder"])


def new_lock(holder: Holder, before: Mapping[str, Any] | None, lease_s: float, now: float) -> dict[str, Any]:
    """The content of the lock file; a holder's own earlier lock keeps the time at which it was taken."""
    taken = before["taken"] if before is not None and same_holder(before["holder"], holder) else now
    here = this_machine()
    return {"holder": dict(holder), "taken": taken, "refreshed": now, "lease_s": lease_s, "boot_id": here["boot_id"]}


def read_lock(path: str) -> dict[str, Any] | None:
    """The lock as it is; None when there is none, or none that makes sense. Raises OSError."""
    try:
        with open(path, encoding="utf-8") as stream:
            lock = json.load(stream)
        float(lock["taken"]), float(lock["refreshed"]), float(lock["lease_s"]), int(lock["holder"]["pid"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        return None
    return dict(lock)


@contextmanager
def guarded(directory: str) -> Iterator[None]:
    """One process at a time between reading the lock and writing it. Raises OSError when that takes too long."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + GUARD_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def refusal(lock: Mapping[str, Any], here: Mapping[str, str]) -> str:
    """Say who holds the host and what to do."""
    holder = lock["holder"]
    where = holder.get("controller") or "another machine"
    began = _utc(holder.get("pid_started") or lock["taken"])
    held = f"another pdlab run (PID {holder['pid']} on {where}, started {began}) holds this host"
    if same_machine(holder, here):
        return f"{held}; wait for it or stop it: kill {holder['pid']}"
    ends = _utc(float(lock["refreshed"]) + float(lock["lease_s"]))
    return f"{held}; wait for it or stop it on {where}: kill {holder['pid']} (its hold ends by itself at {ends})"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
