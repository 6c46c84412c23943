# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine as a whole: kernel, distribution, host name, init system, container, user, clock."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

_CONTAINER_FILES = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_CONTAINER_CGROUPS = ("docker", "kubepods", "lxc", "containerd", "libpod")


def read_system(source: Source) -> dict[str, Any]:
    """{"kernel", "distribution", "hostname", "init", "container", "root", "clock_synchronised"}."""
    uname = source.uname()
    return {
        "kernel": {
            "release": uname["release"],
            "machine": uname["machine"],
            "command_line": source.text("/proc/cmdline"),
        },
        "distribution": read_distribution(source),
        "hostname": {"name": uname["name"], "addresses": source.addresses(uname["name"])},
        "init": "systemd" if source.exists("/run/systemd/system") else source.text("/proc/1/comm"),
        "container": read_container(source),
        "root": source.is_root(),
        "clock_synchronised": source.clock_synchronised(),
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
