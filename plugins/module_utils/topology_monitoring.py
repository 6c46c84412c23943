# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's pd_monitoring in the plan: whether a Prometheus is installed, where it listens, how often it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults, suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_ports import MONITORING_PORT, Ports

KEY = "pd_monitoring"
# Seconds. A point of a sweep lasts tens of seconds: with Prometheus' usual 15 it would have two or three samples.
INTERVAL_S = 5
# Prometheus' own default.
RETENTION_DAYS = 15
LOOPBACK = "127.0.0.1"


def is_loopback(address: str) -> bool:
    """Tell whether only the host itself reaches an address."""
    return address.startswith("127.") or address == "::1"


def resolve_monitoring(
    given: Mapping[str, Any],
    router: Mapping[str, Any] | None,
    hosts: Mapping[str, Mapping[str, Any]],
    used: Sequence[str],
    ports: Ports,
    faults: Faults,
) -> dict[str, Any]:
    """The plan's `monitoring`, with every default filled in.

    It stands beside the router, or the first server, unless it says otherwise. `used`: the hosts that run something.
    Its port is taken in `ports` where it is installed.
    """
    monitoring = {
        "install": False,
        "host": (router or {}).get("host") or (used[0] if used else None),
        "address": LOOPBACK,
        "port": MONITORING_PORT,
        "interval_s": INTERVAL_S,
        "retention_days": RETENTION_DAYS,
        "gpu_exporter_port": None,
        **given.get(KEY, {}),
    }
    host = monitoring["host"]
    if host is not None and hosts and host not in hosts:
        problem = f"{host!r} is not in the inventory's group pdlab"
        faults.add(f"{KEY}.host", problem, suggestion(host, list(hosts)))
    elif monitoring["install"] and host is not None:
        _can_be_there(monitoring, host, router, hosts, used, ports, faults)
    return monitoring


def _can_be_there(
    monitoring: Mapping[str, Any],
    host: str,
    router: Mapping[str, Any] | None,
    hosts: Mapping[str, Mapping[str, Any]],
    used: Sequence[str],
    ports: Ports,
    faults: Faults,
) -> None:
    """Its port is free there, and it reaches whatever it shall ask."""
    holder = ports.claim(host, monitoring["port"], "Prometheus")
    if holder is not None:
        faults.add(f"{KEY}.port", f"{monitoring['port']} is taken by {holder}", "choose another port for Prometheus")
    for name in used:
        if name != host and is_loopback((hosts.get(name) or {}).get("address") or ""):
            problem = f"{host} does not reach the servers of {name}, which listen on a loopback address"
            faults.add(f"{KEY}.host", problem, f"remove it, or set pd_address of {name}")
    if router and router.get("host") not in (host, None) and is_loopback(router.get("prometheus_host") or LOOPBACK):
        problem = f"{host} does not reach the router's metrics on {router['host']}, which listen on a loopback address"
        faults.add(f"{KEY}.host", problem, "remove it, or set pd_router.prometheus_host")
