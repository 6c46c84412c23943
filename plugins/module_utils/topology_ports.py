# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of a topology: what each part listens on, clashes on one host, and free ones where none was given.

Default ports follow a server's place among those of its role on its host, so that adding a server moves no other.
NCCL ports lie below 22000, where SGLang's random choice begins (22000 to 29999), and far from the kernel's own
ephemeral range, where UCX and ZMQ listen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import COLOCATED, DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults

PORT_BASE = {PREFILL: 30000, COLOCATED: 30000, DECODE: 30001, "reference": 30009}
NCCL_BASE = {PREFILL: 21000, COLOCATED: 21000, DECODE: 21001, "reference": 21009}
BOOTSTRAP_BASE = 8998
ROUTER_PORT = 8000
PROMETHEUS_PORT = 29001
# Where a Prometheus that pdlab installs listens: its own default.
MONITORING_PORT = 9090
STEP = 10
# With DP attention SGLang opens these beside --port (server_args.py, PortArgs).
DP_ATTENTION_OFFSETS = (233, 234, 235, 236, 237, 239)

_KINDS = {
    "port": ("port", "give each server its own port"),
    "bootstrap_port": (
        "bootstrap port",
        "give each prefill its own bootstrap_port (two on one port answer for each other without an error)",
    ),
    "nccl_port": ("NCCL port", "give each server its own nccl_port"),
    "prometheus_port": ("Prometheus port", "choose another prometheus_port"),
}


@dataclass
class Ports:
    """Who listens where. Ports that the inventory gives come first; derived ones take what is free."""

    taken: dict[tuple[str, int], str] = field(default_factory=dict)

    def claim(self, host: str, port: int, owner: str) -> str | None:
        """Take a port; return who has it already, or None."""
        holder = self.taken.get((host, port))
        if holder is None:
            self.taken[host, port] = owner
        return holder

    def free(self, host: str, start: int, step: int, owner: str, offsets: Sequence[int] = ()) -> int:
        """Take the first free port from `start` in steps, free at `offsets` above it, too."""
        port = start
        while any((host, port + offset) in self.taken for offset in (0, *offsets)):
            port += step
        for offset in (0, *offsets):
            self.taken[host, port + offset] = owner
        return port


def owner_label(name: str, kind: str) -> str:
    """`prefill-0` for its main port, otherwise what the port is for."""
    return name if kind == "port" else f"the {_KINDS[kind][0]} of {name}"


def claim_given(ports: Ports, server: Mapping[str, Any], key: str, kinds: Sequence[str], faults: Faults) -> None:
    """Take the ports that the inventory gives for one server (or the router), noting clashes."""
    for kind in kinds:
        if server.get(kind) is None:
            continue
        owner = owner_label(server["name"], kind)
        for offset in (0, *offsets_of(server, kind)):
            port = server[kind] + offset
            holder = ports.claim(server["host"], port, owner)
            if holder is not None:
                extra = f" (port + {offset}, for DP attention)" if offset else ""
                faults.add(f"{key}.{kind}", f"{port}{extra} is taken by {holder}", _KINDS[kind][1])
                break


def offsets_of(server: Mapping[str, Any], kind: str) -> tuple[int, ...]:
    """Further ports that come with a server's main port."""
    wanted = kind == "port" and (server.get("args") or {}).get("enable-dp-attention")
    return DP_ATTENTION_OFFSETS if wanted else ()


def fill_ports(ports: Ports, servers: Sequence[dict[str, Any]]) -> None:
    """Give every server the ports that it lacks."""
    for server, place in _with_place(servers):
        host, name, role = server["host"], server["name"], server["role"]
        if server.get("port") is None:
            offsets = offsets_of(server, "port")
            server["port"] = ports.free(host, PORT_BASE[role] + STEP * place, STEP, name, offsets)
        if server.get("nccl_port") is None:
            owner = owner_label(name, "nccl_port")
            server["nccl_port"] = ports.free(host, NCCL_BASE[role] + STEP * place, STEP, owner)
        if role == PREFILL and server.get("bootstrap_port") is None:
            owner = owner_label(name, "bootstrap_port")
            server["bootstrap_port"] = ports.free(host, BOOTSTRAP_BASE + place, 1, owner)


def fill_router_ports(ports: Ports, router: dict[str, Any]) -> None:
    """Give the router the ports that it lacks."""
    if router.get("port") is None:
        router["port"] = ports.free(router["host"], ROUTER_PORT, 1, "router")
    if router.get("prometheus_port") is None:
        owner = owner_label("router", "prometheus_port")
        router["prometheus_port"] = ports.free(router["host"], PROMETHEUS_PORT, 1, owner)


def _with_place(servers: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each server with its place among those of its role on its host."""
    places: dict[tuple[str, str], int] = {}
    for server in servers:
        group = (server["host"], server["role"])
        places[group] = places.get(group, -1) + 1
        yield server, places[group]
