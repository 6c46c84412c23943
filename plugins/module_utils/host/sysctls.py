# SPDX-License-Identifier: GPL-3.0-or-later
"""The sysctls that pdlab sets when it is asked to: each with the values that make sense, and why one would.

kernel.numa_balancing has a setting of its own (`numa_balancing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PORTS_HINT = "ports and ranges of ports, for example 8000,8998,30000-30001"


@dataclass(frozen=True)
class Sysctl:
    """`canonical` turns what a person wrote into what the kernel will say; it raises ValueError with what is wanted."""

    canonical: Callable[[object], str]
    example: str
    why: str


def _whole(low: int, high: int) -> Callable[[object], str]:
    def canonical(value: object) -> str:
        number = int(value) if isinstance(value, (int, str)) and str(value).strip().isdigit() else -1
        if isinstance(value, bool) or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return str(number)

    return canonical


def port_list(value: object) -> str:
    """Ports and ranges in order and joined as the kernel shows them (`proc_do_large_bitmap` in kernel/sysctl.c)."""
    ports: set[int] = set()
    for part in str(value).split(","):
        first, _dash, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or (_dash and not last):
            raise ValueError(PORTS_HINT)
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= 65535:
            raise ValueError(PORTS_HINT)
        ports.update(range(low, high + 1))
    spans: list[list[int]] = []
    for port in sorted(ports):
        if spans and spans[-1][1] == port - 1:
            spans[-1][1] = port
        else:
            spans.append([port, port])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)


SYSCTLS: dict[str, Sysctl] = {
    "vm.swappiness": Sysctl(
        _whole(0, 200),
        "0",
        "Where swap must stay: with a low value the kernel drops page cache (a checkpoint that was read) before it "
        "swaps out a server.",
    ),
    "fs.nr_open": Sysctl(
        _whole(1048576, 2147483584),
        "1048576",
        "The most open files that one process may be allowed; pdlab's units ask for 1048576 (LimitNOFILE).",
    ),
    "fs.file-max": Sysctl(
        _whole(65536, 2**63 - 1),
        "9223372036854775807",
        "The most open files of the whole machine.",
    ),
    "net.core.somaxconn": Sysctl(
        _whole(128, 2147483647),
        "4096",
        "SGLang's HTTP server asks for a queue of 2048 connections (http_server.py of 0.5.23), and the kernel cuts it "
        "to this. 4096 since Linux 5.4, 128 before.",
    ),
    "net.ipv4.ip_local_reserved_ports": Sysctl(
        port_list,
        "8000,8998,30000-30001",
        "Keeps the kernel from giving an outgoing connection a port that a server wants; needed only where "
        "ip_local_port_range reaches down to them.",
    ),
}


def sysctl_path(name: str) -> str:
    """The file of a sysctl."""
    return "/proc/sys/" + name.replace(".", "/")


def sysctl_name(path: str) -> str:
    """The sysctl of a file below /proc/sys."""
    return path[len("/proc/sys/") :].replace("/", ".")
