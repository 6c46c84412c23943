# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one command for as long as somebody cares: a stand-alone script, standard library alone, Linux.

    python3 leased_job.py --status FILE --lease FILE --lease-s 60 --limit-s 600 -- COMMAND ARGUMENT…

The command runs in a session of its own, with this script's standard output and error. It is ended, with every
process that it started, when
- it takes longer than `--limit-s`,
- nobody touched the lease file for `--lease-s` (the controller is gone),
- this script is asked to stop (SIGTERM, SIGINT, SIGHUP), or is killed (the kernel then kills the command).
Whatever the command left running when it exited is ended, too.

The status file is JSON, replaced whole: {"pid", "started", "ended", "exit_code", "reason", "cpu_s"}. pid is the
command's; started and ended are Unix times, ended is null while it runs; exit_code is the command's own, -N when
signal N ended it; reason is "exited", "limit", "lease", "stopped" or "not started: …"; cpu_s is the processor time
of the command and of those of its children that it waited for.
Exit status: the command's own (128+N for a signal), 124 at the limit, 75 for a lost lease, 143 when stopped,
127 when the command cannot be started, 73 when the status file cannot be written.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

CHECK_EVERY_S = 0.2
GRACE_S = 5.0

EXIT_CODES = {"limit": 124, "lease": 75, "stopped": 143}
EXIT_NOT_STARTED = 127
EXIT_NO_STATUS = 73

ZOMBIE = b"Z"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Lease:
    """A file that somebody touches now and then. Counts on the monotonic clock, so a clock that is set is no harm."""

    def __init__(self, path: str, lease_s: float) -> None:
        self._path = path
        self._lease_s = lease_s
        self._touched: int | None = None
        self._seen = time.monotonic()

    def lost(self) -> bool:
        """Whether the file has not been touched for the whole lease. A file that is missing is not touched."""
        try:
            touched: int | None = os.stat(self._path).st_mtime_ns
        except OSError:
            touched = None
        now = time.monotonic()
        if touched is not None and touched != self._touched:
            self._touched = touched
            self._seen = now
        return now - self._seen > self._lease_s


def processes() -> Iterator[tuple[int, bytes, int]]:
    """Every process as (PID, state, parent's PID), from /proc."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stream:
                # The command's name may hold blanks and brackets; the fields follow the last ")".
                state, parent = stream.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        yield int(name), state, int(parent)


def descendants(pid: int) -> list[int]:
    """The living processes below `pid`, zombies left out."""
    children: dict[int, list[int]] = {}
    for child, state, parent in processes():
        if state != ZOMBIE:
            children.setdefault(parent, []).append(child)
    found: list[int] = []
    wanted = [pid]
    while wanted:
        below = children.get(wanted.pop(), [])
        found += below
        wanted += below
    return found


def end_all(grace_s: float = GRACE_S) -> None:
    """End every process below this one: SIGTERM, then SIGKILL to those that are still there after `grace_s`.

    As the reaper of its descendants (PR_SET_CHILD_SUBREAPER) this process stays above all of them, whatever
    session or parent they chose.
    """
    deadline = time.monotonic() + grace_s
    told: set[int] = set()
    while True:
        living = descendants(os.getpid())
        if not living:
            return
        force = time.monotonic() >= deadline
        for pid in living:
            if force or pid not in told:
                told.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
        reap()
        time.sleep(0.05)


def reap() -> None:
    """Collect the orphans that have ended; the command itself is left to subprocess."""
    for pid, state, parent in processes():
        if state == ZOMBIE and parent == os.getpid() and pid != _Job.command_pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


class _Job:
    command_pid: int | None = None
    stopped = False


class Child(Protocol):
    """What is asked of a running command; subprocess.Popen has it."""

    pid: int

    def poll(self) -> int | None:
        """How it ended; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""


class Watch:
    """For how long a command may run. Its time counts from here on."""

    def __init__(self, lease: Lease, limit_s: float) -> None:
        self.started = time.time()
        self.lease = lease
        self._begun = time.monotonic()
        self._limit_s = limit_s

    def over(self) -> str | None:
        """Why it must end now: "stopped", "limit" or "lease"; None while it may run on."""
        if _Job.stopped:
            return "stopped"
        if time.monotonic() - self._begun > self._limit_s:
            return "limit"
        return "lease" if self.lease.lost() else None


def write_status(path: str, status: Mapping[str, Any]) -> None:
    """Replace the status file, whole or not at all. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(status, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def prctl(option: int, value: int) -> None:
    """Linux prctl(2) with one argument. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def become_keeper() -> None:
    """Reap all that follows, and remember it when somebody asks this process to stop. Raises OSError."""

    def stop(_number: int, _frame: object) -> None:
        _Job.stopped = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with(keeper: int) -> None:
    """In a new child of `keeper`: be killed when that ends. Raises OSError."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(EXIT_NOT_STARTED)


def status_of(watch: Watch, **known: Any) -> dict[str, Any]:
    """The status document with what is known; null for what is not."""
    unknown = dict.fromkeys(("pid", "started", "ended", "exit_code", "reason", "cpu_s"))
    return {**unknown, "started": watch.started, **known}


def cpu_of_children() -> float:
    """Seconds of processor time of the children that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def popen(command: list[str]) -> Child:
    """Start a command in a session of its own; it is killed when this process ends."""
    keeper = os.getpid()
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=lambda: end_with(keeper)
    )


def run(launch: Callable[[], Child], status_path: str, watch: Watch) -> int:
    """Run what `launch` starts to its end, whichever comes first; return this script's exit status."""
    used = cpu_of_children()
    try:
        child = launch()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        write_status(status_path, status_of(watch, ended=time.time(), reason=f"not started: {error}"))
        return EXIT_NOT_STARTED
    _Job.command_pid = child.pid
    reason = None
    try:
        write_status(status_path, status_of(watch, pid=child.pid))
        while child.poll() is None:
            reason = watch.over()
            if reason is not None:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=CHECK_EVERY_S)
    finally:
        end_all()
        exit_code = child.wait()
    ended = status_of(watch, pid=child.pid, ended=time.time(), exit_code=exit_code, reason=reason or "exited")
    write_status(status_path, {**ended, "cpu_s": round(cpu_of_children() - used, 3)})
    if reason is not None:
        return EXIT_CODES[reason]
    return exit_code if exit_code >= 0 else 128 - exit_code


def main() -> int:
    """Read the command line, become the reaper of all that follows, run the command."""
    parser = argparse.ArgumentParser(description="Run a command under a lease and a time limit.")
    parser.add_argument("--status", required=True)
    parser.add_argument("--lease", required=True)
    parser.add_argument("--lease-s", type=float, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()

    become_keeper()
    watch = Watch(Lease(arguments.lease, arguments.lease_s), arguments.limit_s)
    try:
        return run(lambda: popen(arguments.command), arguments.status, watch)
    except OSError as error:
        print(f"leased_job: the status file cannot be written: {error}", file=sys.stderr)
        return EXIT_NO_STATUS


if __name__ == "__main__":
    sys.exit(main())
