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
from ansible_collections.pdlab.pdlab.plugins.module_utils.init_system import can_use_systemd
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

# A start time is computed from the clock, which may have been set since.
START_TOLERANCE_S = 5.0
# How long a holder on another machine is believed to be alive after it was last seen.
LEASE_S = 7200
GUARD_WAIT_S = 5.0

# Of the module run_lock, and of what takes the host beside its own work.
HOLDER_OPTION: dict[str, Any] = {
    "type": "dict",
    "options": {
        "controller": {"type": "str", "required": True},
        "machine_id": {"type": "str", "default": ""},
        "pid": {"type": "int", "required": True},
        "pid_started": {"type": "float"},
        "run": {"type": "str"},
    },
}

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


class HeldError(Exception):
    """Another run holds the host; `result` is what there is to say of the lock."""

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class LockFileError(Exception):
    """The lock cannot be written; the text says what to do."""


def hold(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Take the host for a run, or refresh its hold; in check mode take nothing and refuse nothing.

    `options`: root, holder, lease_s, gone (a holder that is known to be dead, or None), and, where they are given, force
    (who holds the host is not disturbed and does not stand in the way), make (False: no folder is made for the lock;
    where there is none no run can hold the host) and anyway (how one goes on all the same, for the refusal). Returns
    {"path", "held", "held_by", "took_over", "systemd"}, the last being whether services here can be systemd's. Raises
    HeldError, LockFileError.
    """
    path = lock_path(options["root"])
    directory = os.path.dirname(path)
    try:
        if check_mode or (options.get("make") is False and not os.path.isdir(directory)):
            return _take(options, path, True)
        os.makedirs(directory, exist_ok=True)
        with guarded(directory):
            return _take(options, path, False)
    except OSError as error:
        if options.get("force"):
            return {"path": path, "held": False, "held_by": None, "took_over": None, "systemd": can_use_systemd()}
        raise LockFileError(or_else(unwritable(path, error), options)) from error


def or_else(message: str, options: Mapping[str, Any]) -> str:
    """A refusal, and how one goes on all the same where there is a way."""
    return f"{message}; or {options['anyway']}" if options.get("anyway") else message


def unwritable(path: str, error: OSError) -> str:
    """Say that the lock cannot be written, and what to do."""
    return (
        f"the lock {path} cannot be written: {error.strerror or error}; make {os.path.dirname(path)} a directory that "
        "this user can write, with space left, or set another pd_root"
    )


def _take(options: Mapping[str, Any], path: str, check_mode: bool) -> dict[str, Any]:
    holder, here, now = options["holder"], this_machine(), time.time()
    before = read_lock(path)
    other = None if before is None or same_holder(before["holder"], holder) else before
    gone = options["gone"]
    known_dead = other is not None and gone is not None and same_holder(other["holder"], gone)
    alive = other is not None and not known_dead and is_alive(other, here, now)
    result = {
        "path": path,
        "held": not check_mode and not alive,
        "held_by": other["holder"] if other and alive else None,
        "took_over": other["holder"] if other and not alive else None,
        "systemd": can_use_systemd(),
    }
    if other and alive and not check_mode:
        if options.get("force"):
            return result
        raise HeldError(or_else(refusal(other, here), options), result)
    if not check_mode:
        write_json(path, new_lock(holder, before, options["lease_s"], now))
    return result


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
