# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine as a whole: kernel, distribution, host name, init system, container, user, clock."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

# adjtimex(2): the clock is not synchronised to a time source.
_TIME_ERROR = 5
_CONTAINER_FILES = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_CONTAINER_CGROUPS = ("docker", "kubepods", "lxc", "containerd", "libpod")


def read_system(source: Source) -> dict[str, Any]:
    """{"kernel", "distribution", "hostname", "init", "container", "root", "clock_synchronised"}."""
    uname = os.uname()
    return {
        "kernel": {"release": uname.release, "machine": uname.machine},
        "distribution": read_distribution(source),
        "hostname": {"name": uname.nodename, "addresses": source.addresses(uname.nodename)},
        "init": "systemd" if source.exists("/run/systemd/system") else source.text("/proc/1/comm"),
        "container": read_container(source),
        "root": os.geteuid() == 0,
        "clock_synchronised": clock_synchronised(),
    }


def read_distribution(source: Source) -> dict[str, str] | None:
    """{"id", "version", "name"} from os-release(5)."""
    text = source.text("/etc/os-release")
    if text is None:
        return None
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    values = {key: value.strip().strip("\"'") for key, value in pairs.items()}
    return {
        "id": values.get("ID", ""),
        "version": values.get("VERSION_ID", ""),
        "name": values.get("PRETTY_NAME") or values.get("NAME", ""),
    }


def read_container(source: Source) -> str | None:
    """The kind of container this runs in, "none" when nothing says so, None when that cannot be read."""
    named = source.text("/run/systemd/container")
    if named:
        return named
    for path, kind in _CONTAINER_FILES.items():
        if source.exists(path):
            return kind
    cgroup = source.text("/proc/1/cgroup")
    if cgroup is None:
        return None
    return next((kind for kind in _CONTAINER_CGROUPS if kind in cgroup), "none")


def clock_synchronised() -> bool | None:
    """Whether the kernel's clock follows a time source (adjtimex without any change)."""
    try:
        # struct timex is 208 bytes on 64-bit Linux; all zero means: change nothing.
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
