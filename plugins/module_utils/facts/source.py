# SPDX-License-Identifier: GPL-3.0-or-later
"""Where facts come from: files, commands and the kernel's answers of one machine.

Readers take a Source and never look elsewhere, so that the same readers work on a recording of another machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

RESOLVE_S = 0.3


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


def remaining(deadline: float) -> float:
    """Seconds until `deadline` (of time.monotonic), at least a little."""
    return max(0.01, deadline - time.monotonic())
