# SPDX-License-Identifier: Apache-2.0
"""A made-up box: a file tree that stands in for /proc, /sys and /etc, and small programs for the system's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine
from ansible_collections.pdlab.pdlab.plugins.modules import host_settings

ROOT = "/opt/pdlab"
GIB = 1024**3
KERNEL = {
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/vm/swappiness": "60\n",
    "proc/sys/fs/nr_open": "1048576\n",
    "proc/sys/net/core/somaxconn": "4096\n",
    "proc/sys/net/ipv4/ip_local_reserved_ports": "\n",
    "proc/meminfo": "MemTotal:       134217728 kB\nMemAvailable:   100000000 kB\n",
    "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 999 0 -2\n/swap\\040file partition 999 0 5\n",
    "proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\n",
    "proc/self/mountinfo": "22 1 0:20 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "dev/shm.bytes": str(64 * GIB),
}
# Each notes how it was called; those that change something change what the kernel would show.
PROGRAMS = {
    "mount": 'for last; do :; done; size=${2#remount,size=}; printf %s "$size" > "$BOX/dev/shm.bytes"',
    "swapoff": 'head -n 1 "$BOX/proc/swaps" > "$BOX/new" && mv "$BOX/new" "$BOX/proc/swaps"',
    "swapon": "case $# in 1) pri=-2 dev=$1;; *) pri=$2 dev=$3;; esac\n"
    'printf "%s partition 999 0 %s\\n" "$(printf %s "$dev" | sed "s/ /\\\\\\\\040/")" $pri >> "$BOX/proc/swaps"',
    "systemctl": "link=$BOX/etc/systemd/system/multi-user.target.wants/pdlab-host.service\n"
    'case "$*" in *enable*--quiet*) case "$*" in *disable*) rm -f "$link";; '
    '*) mkdir -p "${link%/*}"; ln -sf ../pdlab-host.service "$link";; esac;; esac',
    "nvidia-smi": 'case "$*" in --query*) cat "$BOX/gpus";; '
    '*) mode=Disabled; [ "$4" = 1 ] && mode=Enabled; sed -i "/$2/s/[A-Z][a-z]*abled/$mode/" "$BOX/gpus";; esac',
    "apt-get": 'case "$*" in *install*) for last; do :; done; cp "$BOX/usr/bin/mount" "$BOX/usr/bin/$last";; esac',
}


class FakeMachine(Machine):
    """The made-up box. A file tree has no file systems of its own, so the size of /dev/shm is a file, too."""

    def file_system_bytes(self, path: str) -> int | None:
        return int(self.text(path + ".bytes") or 0)


class Box:
    """The box below `path`, with what tests ask of it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.root = True
        self._capsys = capsys
        for name, text in KERNEL.items():
            self.write(name, text)
        for node in (0, 1):
            self.write(f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: 67108864 kB\n")
            for size in (2048, 1048576):
                self.write(f"sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB/nr_hugepages", "0\n")
        for policy in range(12):
            folder = f"sys/devices/system/cpu/cpufreq/policy{policy}"
            self.write(f"{folder}/scaling_governor", "powersave\n")
            self.write(f"{folder}/scaling_available_governors", "performance powersave\n")
        self.write("gpus", "".join(f"{index}, GPU-{index}{index}, Disabled\n" for index in range(4)))
        (path / "run/systemd/system").mkdir(parents=True)
        (path / "usr/bin").mkdir(parents=True)
        for name, script in PROGRAMS.items():
            self.program(name, script)
        self._warnings: list[str] = []
        monkeypatch.setattr(host_settings, "Machine", lambda: FakeMachine(str(path), self.root))
        monkeypatch.setattr(host_settings.AnsibleModule, "warn", lambda _module, text: self._warnings.append(text))

    def program(self, name: str, script: str) -> None:
        """Make a program that notes its arguments and then does `script`."""
        file = self.path / "usr/bin" / name
        file.write_text(f'#!/bin/sh\nBOX={self.path}\necho "{name} $*" >> "$BOX/calls"\n{script}\n')
        file.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        """Make a file."""
        file = self.path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, name: str) -> str | None:
        """A file's text without the white space around it, None when there is none."""
        file = self.path / name.lstrip("/")
        return file.read_text().strip() if file.exists() else None

    def tree(self) -> dict[str, str]:
        """All files with their texts, less the notes of calls."""
        files = [file for file in sorted(self.path.rglob("*")) if file.is_file() and file.name != "calls"]
        return {str(file.relative_to(self.path)): file.read_text() for file in files}

    @property
    def calls(self) -> list[str]:
        """How programs were called, less mere questions."""
        lines = (self.read("calls") or "").splitlines()
        return [line for line in lines if "--query" not in line]

    @property
    def memory(self) -> dict[str, Any] | None:
        """The memory's settings."""
        text = self.read(ROOT + "/state/host.json")
        return None if text is None else json.loads(text)["settings"]

    def run(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Run the module; its JSON result, with `failed` and `warnings` always there."""
        given = {"root": ROOT, "_ansible_check_mode": check, **arguments}
        self._warnings.clear()
        with patch_module_args(given), pytest.raises(SystemExit):
            host_settings.main()
        result: dict[str, Any] = json.loads(self._capsys.readouterr().out.strip().splitlines()[-1])
        return {"failed": False, **result, "warnings": list(self._warnings)}

    def set(self, check: bool = False, gpus: tuple[int, ...] = (), **settings: Any) -> dict[str, Any]:
        """Ask for settings."""
        return self.run(check, settings=settings, gpus=list(gpus))

    def undo(self, check: bool = False, force: bool = False) -> dict[str, Any]:
        """Put the old values back."""
        return self.run(check, state="restored", force=force)


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Box:
    """Two NUMA nodes, twelve CPUs, four GPUs, 128 GiB, swap, systemd; everything as a distribution leaves it."""
    return Box(tmp_path, monkeypatch, capsys)
