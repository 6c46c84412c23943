# SPDX-License-Identifier: GPL-3.0-or-later
"""Where facts come from: files, commands and the kernel's answers of one machine.

Readers take a Source and never look elsewhere, so that the same readers work on a recording of another machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.checkpoint import checkpoint_faults

RESOLVE_S = 0.3
UNLIMITED = "unlimited"
# PCI configuration space with PCI Express' extension: the longest file that is read as bytes.
LONGEST_DATA_BYTES = 4096
# adjtimex(2): the clock is not synchronised to a time source.
_TIME_ERROR = 5
# The kernel keeps 15 characters of a program's name (TASK_COMM_LEN).
_COMM_LENGTH = 15


@dataclass(frozen=True)
class Said:
    """What a command did. `rc` is None when it could not be started or did not end in time."""

    rc: int | None
    stdout: str
    stderr: str


class Command:
    """A command that runs while other facts are read."""

    def __init__(self, argv: Sequence[str], env: dict[str, str] | None = None) -> None:
        try:
            self._child: subprocess.Popen[str] | None = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C", **(env or {})},
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError:
            self._child = None

    def result(self, timeout_s: float) -> Said:
        """Wait for its end, at most `timeout_s`; it is killed when that is not enough."""
        if self._child is None:
            return Said(None, "", "cannot be started")
        try:
            stdout, stderr = self._child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            # Nothing is waited for: a command stuck in a driver cannot even be killed.
            self._child.kill()
            return Said(None, "", f"no answer in {timeout_s:g} s")
        return Said(self._child.returncode, stdout, stderr)


class Source:
    """This machine."""

    def text(self, path: str) -> str | None:
        """A file's content without surrounding white space, or None."""
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                return stream.read().strip()
        except OSError:
            return None

    def data(self, path: str) -> bytes | None:
        """The first LONGEST_DATA_BYTES of a file, or None."""
        try:
            with open(path, "rb") as stream:
                return stream.read(LONGEST_DATA_BYTES)
        except OSError:
            return None

    def link(self, path: str) -> str | None:
        """What a symbolic link says, not followed; None when there is none."""
        try:
            return os.readlink(path)
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The entries of a directory in order; empty when there is none."""
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def is_program(self, path: str) -> bool:
        """Whether `path` is a compiled program, not a script."""
        try:
            with open(path, "rb") as stream:
                return stream.read(4) == b"\x7fELF"
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        """Whether anything is at `path`."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory is at `path`."""
        return os.path.isdir(path)

    def is_writable(self, path: str) -> bool:
        """Whether this user may write the file or make files in the directory at `path`."""
        return os.access(path, os.W_OK | (os.X_OK if os.path.isdir(path) else 0))

    def home(self) -> str:
        """The home directory of this user."""
        return os.path.expanduser("~")

    def real_path(self, path: str) -> str:
        """The path with all links followed."""
        return os.path.realpath(path)

    def which(self, name: str) -> str | None:
        """The full path of a program, with the system's directories searched, too (a bare ssh PATH lacks them)."""
        return shutil.which(
            name, path=os.environ.get("PATH", os.defpath) + ":/usr/local/bin:/usr/sbin:/sbin:/usr/bin:/bin"
        )

    def command(self, argv: Sequence[str], env: dict[str, str] | None = None) -> Command:
        """Start a command."""
        return Command(argv, env)

    def file_system(self, path: str) -> dict[str, int | bool] | None:
        """Bytes and flags of the file system at an existing path; free bytes are those for an ordinary user."""
        try:
            stat = os.statvfs(path)
        except OSError:
            return None
        return {
            "total_bytes": stat.f_blocks * stat.f_frsize,
            "free_bytes": stat.f_bavail * stat.f_frsize,
            "noexec": bool(stat.f_flag & os.ST_NOEXEC),
            "read_only": bool(stat.f_flag & os.ST_RDONLY),
        }

    def addresses(self, name: str) -> list[str] | None:
        """What a host name resolves to; None when that takes too long or fails."""
        found: list[str] = []

        def ask() -> None:
            with contextlib.suppress(OSError):
                found.extend(sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None)}))

        # A resolver without an answer takes many seconds and cannot be interrupted.
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(RESOLVE_S)
        return found or None

    def uname(self) -> dict[str, str]:
        """{"release", "machine", "name"} of the kernel, `name` being the host's."""
        uname = os.uname()
        return {"release": uname.release, "machine": uname.machine, "name": uname.nodename}

    def is_root(self) -> bool:
        """Whether this process is root's."""
        return os.geteuid() == 0

    def cpus(self) -> dict[str, int | None]:
        """{"count", "usable"}: the CPUs that are on, and those that this process may run on."""
        return {"count": os.cpu_count(), "usable": len(os.sched_getaffinity(0))}

    def limits(self) -> dict[str, dict[str, int | str]]:
        """{"memlock_bytes": {"soft", "hard"}, "nofile": {"soft", "hard"}}; a number or "unlimited"."""
        return {
            name: {"soft": _limit(soft), "hard": _limit(hard)}
            for name, (soft, hard) in {
                "memlock_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK),
                "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
            }.items()
        }

    def clock_synchronised(self) -> bool | None:
        """Whether the kernel's clock follows a time source (adjtimex without any change)."""
        try:
            # struct timex is 208 bytes on 64-bit Linux; all zero means: change nothing.
            state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
        except (OSError, AttributeError):
            return None
        return None if state < 0 else bool(state != _TIME_ERROR)

    def listeners(self, ports: Iterable[int]) -> list[processes.Listener]:
        """Who listens on these TCP ports."""
        return processes.listeners(ports)

    def process_table(self) -> dict[int, processes.Process]:
        """Every process, by PID."""
        return processes.all_processes()

    def process(self, pid: int) -> processes.Process | None:
        """One process, or None when it is gone."""
        return processes.read_process(pid)

    def command_line(self, pid: int) -> list[str]:
        """A process's argv; empty when it cannot be read."""
        return processes.command_line(pid)

    def running(self, program: str) -> bool | None:
        """Whether a process of a program of this name can be seen; None when no process can."""
        names = [self.text(f"/proc/{pid}/comm") for pid in self.names("/proc") if pid.isdigit()]
        return program[:_COMM_LENGTH] in names if names else None

    def checkpoint(self, path: str) -> dict[str, Any] | None:
        """{"path", "faults"} of the model in a directory; None when this machine's models cannot be looked at."""
        return {"path": path, "faults": checkpoint_faults(path)}


def _limit(value: int) -> int | str:
    return UNLIMITED if value == resource.RLIM_INFINITY else value


def remaining(deadline: float) -> float:
    """Seconds until `deadline` (of time.monotonic), at least a little."""
    return max(0.01, deadline - time.monotonic())
