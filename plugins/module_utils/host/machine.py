# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine whose settings are read and changed. Everything that touches it goes through here.

With another prefix than `/`, a file tree stands in for the machine: its files for the kernel's, the programs in it
for the system's. So the same code runs on a made-up box.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import read_text, remove_file, replace_text

COMMAND_TIMEOUT_S = 120.0


class SettingError(Exception):
    """A setting that could not be read or changed; the text says why, and what to do."""


class Machine:
    """Files and commands below `prefix`. `is_root`: whether this process may change settings."""

    def __init__(self, prefix: str = "/", is_root: bool | None = None) -> None:
        self._prefix = prefix
        self.is_root = os.geteuid() == 0 if is_root is None else is_root

    def path(self, path: str) -> str:
        """Where an absolute path of the machine really lies."""
        return os.path.join(self._prefix, path.lstrip("/"))

    def text(self, path: str) -> str | None:
        """A file's whole text, or None when there is none or it cannot be read."""
        try:
            return read_text(self.path(path))
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The entries of a directory in order; empty when there is none."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        return os.path.isdir(self.path(path))

    def exists(self, path: str) -> bool:
        """Whether anything is at `path`, a dangling link included."""
        return os.path.lexists(self.path(path))

    def can_write(self, path: str) -> bool:
        """Whether this process could write a file that is there; false on a read-only file system, for root, too."""
        return os.access(self.path(path), os.W_OK)

    def write_value(self, path: str, value: str) -> None:
        """Write a value into a file of the kernel's. Raises OSError with the kernel's answer."""
        descriptor = os.open(self.path(path), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, value.encode() + b"\n")
        finally:
            os.close(descriptor)

    def replace(self, path: str, text: str | None) -> None:
        """Make an ordinary file hold `text`, whole or not at all; None removes it. Raises OSError."""
        if text is None:
            remove_file(self.path(path))
            return
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        replace_text(self.path(path), text)

    def file_system_bytes(self, path: str) -> int | None:
        """The size of the file system at a path, in bytes."""
        try:
            stat = os.statvfs(self.path(path))
        except OSError:
            return None
        return stat.f_blocks * stat.f_frsize

    def which(self, name: str) -> str | None:
        """The full path of one of the system's programs."""
        return shutil.which(name, path=self._search_path())

    def run(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run one of the system's programs and return what it printed. Raises SettingError when it fails."""
        program = self.which(argv[0])
        if program is None:
            raise SettingError(f"{argv[0]} is not installed")
        env = {
            "PATH": self._search_path() + os.pathsep + SYSTEM_PATH,
            "LC_ALL": "C",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        done = run_watched([program, *argv[1:]], timeout_s, env=env)
        if done.rc != 0 or done.timed_out:
            said = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-8:])
            late = f"no answer in {timeout_s:g} s" if done.timed_out else f"exit status {done.rc}"
            raise SettingError(f"`{' '.join(argv)}` failed ({late}): {said or 'it said nothing'}")
        return done.stdout

    @property
    def has_systemd(self) -> bool:
        """Whether PID 1 is systemd (the test of sd_booted(3))."""
        return self.is_directory("/run/systemd/system")

    @property
    def memory_bytes(self) -> int | None:
        """The machine's memory (MemTotal)."""
        return self._meminfo("MemTotal")

    @property
    def available_bytes(self) -> int | None:
        """Memory that can be used without swapping (MemAvailable)."""
        return self._meminfo("MemAvailable")

    @property
    def may_mount(self) -> bool:
        """Whether this process has CAP_SYS_ADMIN, which mount and swapoff need."""
        return self._has_capability(21)

    @property
    def may_raise_limits(self) -> bool:
        """Whether this process has CAP_SYS_RESOURCE, without which no hard limit can be raised."""
        return self._has_capability(24)

    def _has_capability(self, bit: int) -> bool:
        """Whether a capability is in force, by its number in linux/capability.h; true when the kernel does not say."""
        for line in (self.text("/proc/self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> bit & 1)
        return True

    def _meminfo(self, name: str) -> int | None:
        for line in (self.text("/proc/meminfo") or "").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return None

    def _search_path(self) -> str:
        return os.pathsep.join(self.path(folder) for folder in SYSTEM_PATH.split(":"))
