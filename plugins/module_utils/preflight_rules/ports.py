# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on ports: taken ones, and ones that SGLang or the kernel may give to somebody else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import VETO, WARN, Rule, View, has_parts
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import overlaps
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_ports import offsets_of, owner_label

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

    # {port: (who wants it, at which address)}
    Claims = dict[int, tuple[str, str]]

# get_free_port_below_ephemeral in sglang 0.5.23, srt/utils/network.py.
SGLANG_RANGE = (22000, 29999)


def claims(view: View) -> Claims:
    """Every port that this host's parts listen on."""
    return _claims_of(view.parts)


def reference_claims(view: View) -> Claims:
    """The ports of the reference, which verify starts once and not again while its answers hold."""
    reference = view.plan.get("reference")
    if not reference or reference["host"] != view.host or not view.plan["oracle"]["enabled"]:
        return {}
    return _claims_of([reference])


def _claims_of(parts: Iterable[Mapping[str, Any]]) -> Claims:
    found: Claims = {}
    for part in parts:
        for offset in offsets_of(part, "port"):
            found[part["port"] + offset] = (f"port + {offset} of {part['name']}, for DP attention", part["address"])
        for kind in ("nccl_port", "bootstrap_port", "port"):
            if part.get(kind):
                found[part[kind]] = (owner_label(part["name"], kind), part["address"])
        if part.get("prometheus_port"):
            found[part["prometheus_port"]] = (owner_label(part["name"], "prometheus_port"), part["prometheus_host"])
    return found


def _foreign_listeners(view: View, wanted: Claims) -> list[tuple[Mapping[str, Any], str]]:
    return [
        (listener, wanted[listener["port"]][0])
        for listener in view.facts["ports"]
        if listener["port"] in wanted
        and not listener["own"]
        and overlaps(wanted[listener["port"]][1], listener["address"])
    ]


def _free(view: View, wanted: Claims) -> Seen:
    foreign = [
        f"{each['port']} ({owner}) is held by {_owner(each)}" for each, owner in _foreign_listeners(view, wanted)
    ]
    if foreign:
        return False, "; ".join(foreign)
    own = len({each["port"] for each in view.facts["ports"] if each["own"] and each["port"] in wanted})
    free = f"{len(wanted) - own} ports free"
    return True, f"{free}, {own} held by pdlab's own services" if own else free


def _owner(listener: Mapping[str, Any]) -> str:
    if listener["pid"] is None:
        return "a process of another user (root can name it)"
    return f"PID {listener['pid']} ({listener['command']})"


def _free_cure(view: View, wanted: Claims) -> str:
    pids = sorted({str(each["pid"]) for each, _owner in _foreign_listeners(view, wanted) if each["pid"]})
    stop = f"stop it: kill {' '.join(pids)}" if pids else "stop it"
    if wanted == reference_claims(view):
        return f"{stop}; or do without the comparison: pd_oracle: {{enabled: false}}"
    return f"{stop}; or choose other ports in pd_servers and pd_router"


def _within(view: View, low: int, high: int) -> dict[int, str]:
    everything = {**reference_claims(view), **claims(view)}
    return {port: owner for port, (owner, _address) in sorted(everything.items()) if low <= port <= high}


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
        check=lambda view: _free(view, claims(view)),
        wanted="every port free, or held by pdlab's own services",
        why="A server that cannot bind its port ends, and one that finds another's bootstrap port answers wrongly.",
        cure=lambda view: _free_cure(view, claims(view)),
        cure_in_words="kill PID (it is named with its command); or choose other ports in pd_servers and pd_router",
        source="sglang #20952, #21268",
    ),
    Rule(
        id="reference_port_taken",
        severity=WARN,
        finds="the same of a port of the reference, the colocated server that verify compares with",
        applies=lambda view: bool(reference_claims(view)),
        check=lambda view: _free(view, reference_claims(view)),
        wanted="every port free, or held by pdlab's own services",
        why="Verify fails when it has to start the reference, minutes after the deployment began.",
        cure=lambda view: _free_cure(view, reference_claims(view)),
        cure_in_words="kill PID (it is named with its command); or switch it off with pd_oracle: {enabled: false}",
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
        cure_in_words="sysctl -w net.ipv4.ip_local_reserved_ports=PORTS (to last: pd_host.sysctl), or lower ports in pd_servers",
        source="Linux, Documentation/networking/ip-sysctl.rst",
    ),
)
