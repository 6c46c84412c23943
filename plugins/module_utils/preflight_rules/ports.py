# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on ports: taken ones, and ones that SGLang or the kernel may give to somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import VETO, WARN, Rule, View, has_parts
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import overlaps

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

# get_free_port_below_ephemeral in sglang 0.5.23, srt/utils/network.py.
SGLANG_RANGE = (22000, 29999)


def claims(view: View) -> dict[int, tuple[str, str]]:
    """Every port that this host's parts listen on: {port: (who wants it, at which address)}."""
    found = {}
    for part in view.parts:
        found[part["port"]] = (part["name"], part["address"])
        for kind, called in (("bootstrap_port", "bootstrap port"), ("nccl_port", "NCCL port")):
            if part.get(kind):
                found[part[kind]] = (f"the {called} of {part['name']}", part["address"])
        if part.get("prometheus_port"):
            found[part["prometheus_port"]] = (f"the Prometheus port of {part['name']}", part["prometheus_host"])
    return found


def _foreign_listeners(view: View) -> list[tuple[Mapping[str, Any], str]]:
    wanted = claims(view)
    return [
        (listener, wanted[listener["port"]][0])
        for listener in view.facts["ports"]
        if listener["port"] in wanted
        and not listener["own"]
        and overlaps(wanted[listener["port"]][1], listener["address"])
    ]


def _free(view: View) -> Seen:
    foreign = [
        f"{listener['port']} ({wanted}) is held by {_owner(listener)}" for listener, wanted in _foreign_listeners(view)
    ]
    if foreign:
        return False, "; ".join(foreign)
    own = len({listener["port"] for listener in view.facts["ports"] if listener["own"]})
    free = f"{len(claims(view)) - own} ports free"
    return True, f"{free}, {own} held by pdlab's own services" if own else free


def _owner(listener: Mapping[str, Any]) -> str:
    if listener["pid"] is None:
        return "a process of another user (root can name it)"
    return f"PID {listener['pid']} ({listener['command']})"


def _free_cure(view: View) -> str:
    pids = sorted({str(listener["pid"]) for listener, _wanted in _foreign_listeners(view) if listener["pid"]})
    stop = f"stop it: kill {' '.join(pids)}" if pids else "stop it"
    return f"{stop}; or choose other ports in pd_servers and pd_router"


def _within(view: View, low: int, high: int) -> dict[int, str]:
    return {port: owner for port, (owner, _address) in sorted(claims(view).items()) if low <= port <= high}


def _listed(ports: Mapping[int, str]) -> str:
    return ", ".join(f"{port} ({owner})" for port, owner in ports.items())


def _unpinned(view: View) -> list[str]:
    """Servers of this host that take their NCCL port at random."""
    return [server["name"] for server in view.servers if not server.get("nccl_port")]


def _sglang_range(view: View) -> Seen:
    inside = _within(view, *SGLANG_RANGE)
    pinned = "every server here has its NCCL port pinned"
    if _unpinned(view):
        return (
            not inside,
            f"{_listed(inside) or 'no port'} inside, and {', '.join(_unpinned(view))} takes one at random",
        )
    return True, f"{_listed(inside)} inside, but {pinned}" if inside else pinned


def _ephemeral(view: View) -> Seen:
    bounds = view.facts.get("ephemeral_ports")
    if bounds is None:
        return None, "the kernel's range cannot be read"
    low, high = bounds
    reserved = set(view.facts.get("reserved_ports") or [])
    inside = {port: owner for port, owner in _within(view, low, high).items() if port not in reserved}
    return not inside, f"{_listed(inside)} inside {low}-{high}" if inside else f"none inside {low}-{high}"


def _ephemeral_cure(view: View) -> str:
    low, high = view.facts.get("ephemeral_ports") or (0, 0)
    ports = sorted({*_within(view, low, high), *(view.facts.get("reserved_ports") or [])})
    return (
        f"sysctl -w net.ipv4.ip_local_reserved_ports={','.join(map(str, ports))}, or choose lower ports in pd_servers"
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="port_taken",
        severity=VETO,
        finds="a process that is not pdlab's own listens on a port, bootstrap port, NCCL port or Prometheus port of this "
        "host's parts",
        applies=has_parts,
        check=_free,
        wanted="every port free, or held by pdlab's own services",
        why="A server that cannot bind its port ends, and one that finds another's bootstrap port answers wrongly.",
        cure=_free_cure,
        cure_in_words="kill PID (it is named with its command); or choose other ports in pd_servers and pd_router",
        source="sglang #20952, #21268",
    ),
    Rule(
        id="port_in_sglang_range",
        severity=WARN,
        finds="a port between 22000 and 29999, where a server here takes its NCCL port at random",
        applies=has_parts,
        check=_sglang_range,
        wanted="no port in 22000-29999, or nccl_port set for every server",
        why="The server that starts first may take the other's port: it fails on some starts and not on others.",
        cure="set nccl_port in pd_servers, or choose ports below 22000 in pd_servers and pd_router",
        source="sglang 0.5.23, srt/utils/network.py, get_free_port_below_ephemeral",
    ),
    Rule(
        id="port_in_ephemeral_range",
        severity=WARN,
        finds="a port inside the kernel's ephemeral range (net.ipv4.ip_local_port_range)",
        applies=has_parts,
        check=_ephemeral,
        wanted="ports outside it, or reserved in net.ipv4.ip_local_reserved_ports",
        why="Any outgoing connection may hold such a port at the moment when its server starts; UCX and ZMQ listen there, too.",
        cure=_ephemeral_cure,
        cure_in_words="sysctl -w net.ipv4.ip_local_reserved_ports=PORTS, or choose lower ports in pd_servers and pd_router",
        source="Linux, Documentation/networking/ip-sysctl.rst",
    ),
)
