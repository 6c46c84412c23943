# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a host that pdlab can change, each under a key that says what it is.

A key is a path or a name: a file below /proc/sys or /sys, a file of pdlab's own below /etc, `/dev/shm` (its size in
bytes), `swap` (the devices in use) or `gpu UUID` (persistence mode, on or off). A value is text; None means that it
is not there. Whoever has the key can read, change and put back the value: the memory needs to hold nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.sysctls import sysctl_name

SHM = "/dev/shm"
SWAP = "swap"
NO_SWAP = "off"
GPU = "gpu "
ON, OFF = "on", "off"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
NUMA_BALANCING = "/proc/sys/kernel/numa_balancing"
POLICIES = "/sys/devices/system/cpu/cpufreq"
NODES = "/sys/devices/system/node"
SWAP_TIMEOUT_S = 900.0
# Files that show all choices, with the one in force in brackets: "always [madvise] never".
_CHOSEN = re.compile(r"\[([^\]]+)\]")
_GOVERNOR = re.compile(r"/sys/devices/system/cpu/cpufreq/(policy\d+)/scaling_governor\Z")
_HUGEPAGES = re.compile(r"/sys/devices/system/node/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages\Z")


def hugepages_path(node: int, size_kib: int) -> str:
    """The file that reserves huge pages of one size on one NUMA node (Documentation/admin-guide/mm/hugetlbpage.rst)."""
    return f"{NODES}/node{node}/hugepages/hugepages-{size_kib}kB/nr_hugepages"


def is_kernel_file(key: str) -> bool:
    """Whether the value is a file of the kernel's."""
    return key.startswith(("/proc/sys/", "/sys/"))


def is_own_file(key: str) -> bool:
    """Whether the value is a whole file of pdlab's own."""
    return key.startswith("/etc/")


def label(key: str) -> str:
    """The setting as people read it, with the inventory's word first: `cpu_governor policy0`."""
    governor, pages = _GOVERNOR.match(key), _HUGEPAGES.match(key)
    if governor:
        return f"cpu_governor {governor.group(1)}"
    if pages:
        return f"hugepages node{pages.group(1)}, {int(pages.group(2)) // 1024} MiB each"
    if key == THP:
        return "transparent_hugepages"
    if key == NUMA_BALANCING:
        return "numa_balancing"
    if key.startswith("/proc/sys/"):
        return f"sysctl {sysctl_name(key)}"
    if key.startswith(GPU):
        return f"gpu_persistence {key[len(GPU) :]}"
    return {SHM: "size of /dev/shm", SWAP: "swap"}.get(key, key)


def shown(key: str, value: str | None) -> str:
    """A value as people read it."""
    if value is None:
        return "absent"
    if key == SHM:
        return f"{int(value) / 1024**3:.4g} GiB"
    if is_own_file(key):
        return f"{len(value.splitlines())} lines"
    if key == SWAP and value != NO_SWAP:
        return "on (" + " ".join(value.split()) + ")"
    return value


def read_all(machine: Machine, keys: Iterable[str]) -> dict[str, str | None]:
    """The values now, None for one that is not there. nvidia-smi, which may take a second, is asked once."""
    keys = list(keys)
    modes = persistence_modes(machine) if any(key.startswith(GPU) for key in keys) else {}
    return {key: modes.get(key[len(GPU) :]) if key.startswith(GPU) else read(machine, key) for key in keys}


def read(machine: Machine, key: str) -> str | None:
    """The value now, None when it is not there."""
    if is_own_file(key):
        return machine.text(key)
    if is_kernel_file(key):
        text = machine.text(key)
        chosen = _CHOSEN.search(text or "")
        return None if text is None else chosen.group(1) if chosen else " ".join(text.split())
    if key == SHM:
        size = machine.file_system_bytes(SHM) if _is_tmpfs(machine, SHM) else None
        return None if size is None else str(size)
    if key == SWAP:
        return swap_devices(machine)
    return persistence_modes(machine).get(key[len(GPU) :]) if key.startswith(GPU) else None


def obstacle(machine: Machine, key: str, wanted: str) -> tuple[str, str] | None:
    """Why this value cannot be changed here and what to do about it, for root; None when nothing stands in the way."""
    if is_kernel_file(key) and not machine.can_write(key):
        by_hand = f"sysctl -w {sysctl_name(key)}={wanted}" if key.startswith("/proc/") else f"echo {wanted} > {key}"
        return (
            f"{key} is read-only here, as in a container",
            f"set it on the machine that runs the container, as root: {by_hand}",
        )
    if key in (SHM, SWAP) and not machine.may_mount:
        cure = f"start the container with --shm-size={wanted} or --ipc=host" if key == SHM else "run: swapoff -a"
        where = "" if key == SHM else " on the machine that runs the container"
        return "this container may not mount (no CAP_SYS_ADMIN)", cure + where
    return None


def write(machine: Machine, key: str, value: str | None) -> None:
    """Change the value and see that it holds. Raises SettingError with the reason."""
    try:
        _write(machine, key, value)
    except OSError as error:
        raise SettingError(f"the kernel refused {shown(key, value)}: {error.strerror or error}") from error
    now = read(machine, key)
    if now != value:
        cure = (
            "; the kernel found no more memory in one piece: ask for fewer, or let them be reserved at boot"
            if _HUGEPAGES.match(key)
            else ""
        )
        raise SettingError(f"it is {shown(key, now)} after {shown(key, value)} was set{cure}")


def _write(machine: Machine, key: str, value: str | None) -> None:
    if is_own_file(key):
        machine.replace(key, value)
    elif value is None:
        raise SettingError("there is no old value")
    elif is_kernel_file(key):
        machine.write_value(key, value)
    elif key == SHM:
        # Bytes, because a size in percent or GiB could not be compared with what the kernel says.
        machine.run(["mount", "-o", f"remount,size={value}", machine.path(SHM)])
    elif key == SWAP:
        _set_swap(machine, value)
    elif key.startswith(GPU):
        machine.run(["nvidia-smi", "-i", key[len(GPU) :], "-pm", "1" if value == ON else "0"])


# --- /dev/shm --------------------------------------------------------------------------------------------------------


def _is_tmpfs(machine: Machine, path: str) -> bool:
    """Whether the file system that lies uppermost at `path` is a tmpfs (proc(5), /proc/PID/mountinfo)."""
    kind = ""
    for line in (machine.text("/proc/self/mountinfo") or "").splitlines():
        fields, _dash, rest = line.partition(" - ")
        if fields.split()[4:5] == [path]:
            kind = rest.split()[0]
    return kind == "tmpfs"


# --- swap ------------------------------------------------------------------------------------------------------------


def swap_devices(machine: Machine) -> str | None:
    """`off`, or the devices in use, each with `,pri=N` where a priority was given (the kernel's own are negative)."""
    text = machine.text("/proc/swaps")
    if text is None:
        return None
    rows = [line.split() for line in text.splitlines()[1:] if len(line.split()) >= 5]
    devices = sorted(row[0] + (f",pri={row[4]}" if int(row[4]) >= 0 else "") for row in rows)
    return " ".join(devices) or NO_SWAP


def swap_used_bytes(machine: Machine) -> int:
    """How much of the swap is in use."""
    rows = [line.split() for line in (machine.text("/proc/swaps") or "").splitlines()[1:]]
    return sum(int(row[3]) for row in rows if len(row) >= 5) * 1024


def _set_swap(machine: Machine, value: str) -> None:
    if value == NO_SWAP:
        available = machine.available_bytes
        if available is not None and swap_used_bytes(machine) > available:
            raise SettingError("what lies in swap does not fit into memory; end what uses the memory first")
        machine.run(["swapoff", "-a"], SWAP_TIMEOUT_S)
        return
    on = (swap_devices(machine) or "").split(" ")
    for device in value.split(" "):
        if device in on:
            continue
        path, _comma, priority = device.partition(",pri=")
        # /proc/swaps writes blanks of a file's name as \040 (mangle_path in fs/seq_file.c).
        path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)
        machine.run(["swapon", *(["-p", priority] if priority else []), path])


# --- GPUs ------------------------------------------------------------------------------------------------------------


def _query(machine: Machine) -> list[list[str]]:
    text = machine.run(["nvidia-smi", "--query-gpu=index,uuid,persistence_mode", "--format=csv,noheader"])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) == 3]


def gpu_uuids(machine: Machine) -> dict[int, str]:
    """The UUID of each GPU by its index. Raises SettingError when nvidia-smi cannot say."""
    return {int(index): uuid for index, uuid, _mode in _query(machine) if index.isdigit()}


def persistence_modes(machine: Machine) -> dict[str, str]:
    """Persistence mode of each GPU by its UUID; empty when nvidia-smi cannot say."""
    try:
        rows = _query(machine)
    except SettingError:
        return {}
    return {uuid: {"Enabled": ON, "Disabled": OFF}[mode] for _i, uuid, mode in rows if mode in ("Enabled", "Disabled")}
