# SPDX-License-Identifier: GPL-3.0-or-later
"""From the settings that the inventory asks for to values of this machine, or to what is wrong with them here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.host import values
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.sysctls import SYSCTLS, sysctl_path

GIB = 1024**3


@dataclass(frozen=True)
class Skipped:
    """A setting that was asked for and not made: what, why not, and what to do about it."""

    setting: str
    why: str
    cure: str

    def __str__(self) -> str:
        return f"{self.setting}: not done, {self.why}; {self.cure}"


@dataclass
class Asked:
    """`wanted`: key -> value. `limits`: those of sessions. `faults`: a line for each thing that makes no sense here."""

    wanted: dict[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] | None = None
    skipped: list[Skipped] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def asked_values(machine: Machine, settings: Mapping[str, Any], gpus: Sequence[int]) -> Asked:
    """What `settings` (those of the module host_settings) mean here. `gpus`: indices whose persistence mode is meant."""
    asked = Asked()
    given = {name: value for name, value in settings.items() if value is not None}
    if "sysctl" in given:
        _sysctls(machine, given["sysctl"], asked)
    if "limits" in given:
        _limits(machine, given["limits"], asked)
    if "shm_gib" in given:
        _shm(machine, given["shm_gib"], asked)
    if "numa_balancing" in given:
        _numa_balancing(machine, given["numa_balancing"], asked)
    if "transparent_hugepages" in given:
        _transparent_hugepages(machine, given["transparent_hugepages"], asked)
    if "cpu_governor" in given:
        _governor(machine, given["cpu_governor"], asked)
    if "hugepages" in given:
        _hugepages(machine, given["hugepages"], asked)
    if "swap" in given:
        _swap(machine, given["swap"], asked)
    if "gpu_persistence" in given:
        _persistence(machine, given["gpu_persistence"], gpus, asked)
    return asked


def _sysctls(machine: Machine, given: Mapping[str, Any], asked: Asked) -> None:
    for name, value in given.items():
        if name not in SYSCTLS:
            asked.faults.append(f"sysctl.{name}: is none that pdlab sets; {suggestion(name, SYSCTLS)}")
            continue
        try:
            wanted = SYSCTLS[name].canonical(value)
        except ValueError as error:
            asked.faults.append(f"sysctl.{name}: {value!r} is no value for it; write {error}")
            continue
        if machine.text(sysctl_path(name)) is None:
            asked.skipped.append(
                Skipped(f"sysctl {name}", "this kernel, or this container, does not have it", "leave it out here")
            )
        else:
            asked.wanted[sysctl_path(name)] = wanted


def _limits(machine: Machine, given: Mapping[str, Any], asked: Asked) -> None:
    memlock, nofile = given.get("memlock_gib"), given.get("nofile")
    if memlock is None and nofile is None:
        asked.faults.append("limits: is empty; write memlock_gib or nofile below it")
    bad_size = memlock is not None and memlock != "unlimited" and not re.fullmatch(r"[1-9]\d*", str(memlock))
    if bad_size:
        asked.faults.append(f"limits.memlock_gib: {memlock!r} is no size; write unlimited or a whole number of GiB")
    user = given.get("user")
    if user is not None and not re.fullmatch(r"\*|@?[A-Za-z_][A-Za-z0-9_.-]*", str(user)):
        asked.faults.append(f"limits.user: {user!r} is no user; write a name, @ and a group's name, or '*' for all")
    _check_nofile(machine, nofile, asked)
    beyond = "" if asked.faults else _beyond_hard_limits(machine, memlock, nofile)
    if beyond and not machine.may_raise_limits:
        why = f"this container may not raise limits (no CAP_SYS_RESOURCE), and {beyond}"
        asked.skipped.append(Skipped("limits", why, "start it with --ulimit memlock=-1 --ulimit nofile=1048576"))
    else:
        asked.limits = given


def _check_nofile(machine: Machine, nofile: int | None, asked: Asked) -> None:
    """setrlimit(2) refuses more than fs.nr_open: pam_limits then logs an error, and some systems refuse the login."""
    path = sysctl_path("fs.nr_open")
    most = asked.wanted.get(path) or (machine.text(path) or "").strip()
    most = most if most.isdigit() else "1048576"
    if nofile is not None and not 1 <= int(nofile) <= int(most):
        asked.faults.append(
            f"limits.nofile: {nofile} is out of range, and no login would get it; write 1 to {most} (fs.nr_open), "
            "or raise sysctl.fs.nr_open as well"
        )


def _beyond_hard_limits(machine: Machine, memlock: Any, nofile: Any) -> str:
    """Which of the limits is above what this process has as its hard limit (proc(5), /proc/PID/limits)."""
    text = machine.text("/proc/self/limits") or ""
    for name, asked, unit in (("Max locked memory", memlock, GIB), ("Max open files", nofile, 1)):
        found = re.search(rf"^{name}\s+\S+\s+(\d+)\b", text, re.MULTILINE)
        if asked is not None and found and (asked == "unlimited" or int(asked) * unit > int(found.group(1))):
            return f"its own is {found.group(1)} ({name[4:]})"
    return ""


def _shm(machine: Machine, gib: int, asked: Asked) -> None:
    now, most = values.read(machine, values.SHM), machine.memory_bytes
    if now is None:
        asked.skipped.append(Skipped("size of /dev/shm", "there is no tmpfs", "mount one at /dev/shm"))
    elif most is not None and gib * GIB > most:
        asked.faults.append(
            f"shm_gib: {gib} GiB is more than this machine's memory; write at most {most // GIB}, or leave it out"
        )
    elif gib * GIB > int(now) or now == str(gib * GIB):
        # A larger one is left as it is: shm_gib says how much there must be at least.
        asked.wanted[values.SHM] = str(gib * GIB)


def _numa_balancing(machine: Machine, on: bool, asked: Asked) -> None:
    if machine.text(values.NUMA_BALANCING) is not None:
        asked.wanted[values.NUMA_BALANCING] = "1" if on else "0"
    elif on:
        asked.skipped.append(Skipped("numa_balancing", "this kernel has none", "leave it out"))


def _transparent_hugepages(machine: Machine, mode: str, asked: Asked) -> None:
    if machine.text(values.THP) is not None:
        asked.wanted[values.THP] = mode
    elif mode != "never":
        asked.skipped.append(Skipped("transparent_hugepages", "this kernel has none", "leave it out"))


def _governor(machine: Machine, governor: str, asked: Asked) -> None:
    policies = [name for name in machine.names(values.POLICIES) if re.fullmatch(r"policy\d+", name)]
    if not policies:
        why = "the kernel shows no cpufreq policy: a virtual machine, or the firmware keeps the frequency to itself"
        asked.skipped.append(Skipped("cpu_governor", why, "choose the power profile in the firmware (BIOS)"))
    for policy in sorted(policies, key=lambda name: int(name[len("policy") :])):
        available = (machine.text(f"{values.POLICIES}/{policy}/scaling_available_governors") or "").split()
        if available and governor not in available:
            asked.faults.append(
                f"cpu_governor: {governor!r} is unknown to this machine; write {' or '.join(available)}"
            )
            return
        asked.wanted[f"{values.POLICIES}/{policy}/scaling_governor"] = governor


def _hugepages(machine: Machine, given: Sequence[Mapping[str, Any]], asked: Asked) -> None:
    nodes = sorted(int(name[4:]) for name in machine.names(values.NODES) if re.fullmatch(r"node\d+", name))
    taken: dict[int, int] = {}
    for index, entry in enumerate(given):
        node, size_mib, count = int(entry["node"]), int(entry.get("size_mib") or 2), int(entry["count"])
        where, path = f"hugepages[{index}]", values.hugepages_path(node, size_mib * 1024)
        if node not in nodes:
            asked.faults.append(f"{where}.node: there is no NUMA node {node}; this machine has {_listed(nodes)}")
        elif machine.text(path) is None:
            sizes = [name for name in machine.names(f"{values.NODES}/node{node}/hugepages")]
            found = [str(int(size) // 1024) for name in sizes for size in re.findall(r"hugepages-(\d+)kB", name)]
            asked.faults.append(f"{where}.size_mib: this machine has none of {size_mib} MiB, only {_listed(found)}")
        elif path in asked.wanted:
            asked.faults.append(f"{where}: node {node} is asked for twice; write it once for each size")
        else:
            asked.wanted[path] = str(count)
            taken[node] = taken.get(node, 0) + size_mib * count
    for node, mib in taken.items():
        found = re.findall(r"MemTotal:\s+(\d+) kB", machine.text(f"{values.NODES}/node{node}/meminfo") or "")
        if found and mib > int(found[0]) // 1024:
            asked.faults.append(
                f"hugepages: {mib} MiB is more than the memory of node {node}; write at most {int(found[0]) // 1024} MiB"
            )


def _swap(machine: Machine, on: bool, asked: Asked) -> None:
    if on:
        asked.faults.append("swap: pdlab does not switch swap on; write false, or leave it out")
    elif values.swap_devices(machine) is not None:
        asked.wanted[values.SWAP] = values.NO_SWAP


def _persistence(machine: Machine, on: bool, gpus: Sequence[int], asked: Asked) -> None:
    if not gpus:
        asked.skipped.append(Skipped("gpu_persistence", "no server of this host names a GPU", "leave it out here"))
        return
    try:
        uuids = values.gpu_uuids(machine)
    except SettingError as error:
        asked.skipped.append(Skipped("gpu_persistence", str(error), "install the NVIDIA driver"))
        return
    missing = [gpu for gpu in gpus if gpu not in uuids]
    if missing:
        asked.faults.append(f"gpu_persistence: there is no GPU {_listed(missing)}; this machine has {_listed(uuids)}")
    for gpu in gpus:
        if gpu in uuids:
            asked.wanted[values.GPU + uuids[gpu]] = values.ON if on else values.OFF


def _listed(items: Any) -> str:
    return ", ".join(map(str, items)) or "none"
