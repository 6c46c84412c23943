# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that make settings outlast a reboot, and the limits of sessions: one writer for each format.

They follow from what the memory says was set, so what is remembered and what is set at boot are never two things.
Where two files name one sysctl or limit the last one in alphabetical order holds, so ours begin with a letter:
`pdlab.conf` comes after `99-sysctl.conf` (sysctl.d(5), limits.conf(5)).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.host import values
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.sysctls import sysctl_name

LIMITS = "/etc/security/limits.d/pdlab.conf"
SYSCTL = "/etc/sysctl.d/pdlab.conf"
TMPFILES = "/etc/tmpfiles.d/pdlab.conf"
UNIT_NAME = "pdlab-host.service"
UNIT = "/etc/systemd/system/" + UNIT_NAME
# What each file says first, so that it can be found who wrote it and where the old values lie.
MEMORY_LINE = "# The old values: "


def head(memory_path: str) -> list[str]:
    """The first lines of each file."""
    return [
        "# Written by pdlab; a change made here is overwritten. `pdlab undo` removes it.",
        MEMORY_LINE + memory_path,
    ]


def memory_of(text: str | None) -> str | None:
    """Where the old values lie that belong to a file of pdlab's; None when it is nobody's or another's."""
    for line in (text or "").splitlines()[:4]:
        if line.startswith(MEMORY_LINE):
            return line[len(MEMORY_LINE) :].strip()
    return None


def limits_text(limits: Mapping[str, Any], memory_path: str) -> str:
    """limits.conf(5) for {"user", "memlock_gib", "nofile"}; `*` does not stand for root there, so root is named, too."""
    lines = head(memory_path)
    user = limits.get("user") or "*"
    for domain in ["*", "root"] if user == "*" else [user]:
        memlock = limits.get("memlock_gib")
        if memlock is not None:
            size = memlock if memlock == "unlimited" else str(int(memlock) * 1024**2)
            lines.append(f"{domain} - memlock {size}")
        if limits.get("nofile") is not None:
            # The hard limit alone: SGLang raises its own, and programs that walk all descriptors stay quick.
            lines.append(f"{domain} hard nofile {limits['nofile']}")
    return _text(lines)


def boot_files(settings: Mapping[str, str], memory_path: str) -> dict[str, str | None]:
    """The files that set these values (key -> value) again at boot; None for one that is not needed."""
    sysctls = {key: value for key, value in settings.items() if key.startswith("/proc/sys/")}
    sysfs = {key: value for key, value in settings.items() if key.startswith("/sys/")}
    others = {key: value for key, value in settings.items() if not values.is_kernel_file(key)}
    return {
        SYSCTL: _sysctl_text(sysctls, memory_path) if sysctls else None,
        TMPFILES: _tmpfiles_text(sysfs, memory_path) if sysfs else None,
        UNIT: _unit_text(sysfs, others, memory_path) if sysfs or others else None,
    }


def _sysctl_text(settings: Mapping[str, str], memory_path: str) -> str:
    return _text([*head(memory_path), *(f"{sysctl_name(key)} = {value}" for key, value in sorted(settings.items()))])


def _tmpfiles_text(settings: Mapping[str, str], memory_path: str) -> str:
    """tmpfiles.d(5): `w` writes a value into a file, if the file is there."""
    return _text([*head(memory_path), *(f"w {key} - - - - {value}" for key, value in sorted(settings.items()))])


def _unit_text(sysfs: Mapping[str, str], others: Mapping[str, str], memory_path: str) -> str:
    """A oneshot unit for what has no file of its own. Each line begins with `-`: one that fails stops no other.

    systemd mounts /dev/shm before it reads anything, and activates the swap of /etc/fstab by itself; drivers that
    come late (cpufreq) are not there yet when systemd-tmpfiles first runs.
    """
    commands = [f"systemd-tmpfiles --create {TMPFILES}"] if sysfs else []
    for key, value in sorted(others.items()):
        if key == values.SHM:
            commands.append(f"mount -o remount,size={value} {values.SHM}")
        elif key == values.SWAP:
            commands.append("swapoff -a")
        elif key.startswith(values.GPU):
            commands.append(f"nvidia-smi -i {key[len(values.GPU) :]} -pm {1 if value == values.ON else 0}")
    return _text(
        [
            *head(memory_path),
            "",
            "[Unit]",
            "Description=pdlab: settings of this host",
            "After=swap.target nvidia-persistenced.service",
            # pdlab's servers wait for the network, so they wait for this, too.
            "Before=network-online.target",
            "",
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            *(f"ExecStart=-{command}" for command in commands),
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
    )


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
