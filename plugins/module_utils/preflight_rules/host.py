# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on the host as a whole: name, network, clock, CPU governor, user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    INFO,
    WARN,
    Rule,
    View,
    always,
    has_servers,
)

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

GOOD_GOVERNOR = "performance"


def _hostname(view: View) -> Seen:
    name, addresses = view.facts["hostname"]["name"], view.facts["hostname"]["addresses"]
    if addresses is None:
        return None, f"{name} resolves to nothing"
    loopback = [address for address in addresses if address.startswith("127.") or address == "::1"]
    return not loopback, f"{name} resolves to {', '.join(addresses)}"


def _clock(view: View) -> Seen:
    state = view.facts["clock_synchronised"]
    return state, "cannot be asked" if state is None else "synchronised" if state else "not synchronised"


def _root(view: View) -> Seen:
    return view.facts["root"], "root" if view.facts["root"] else "an ordinary user"


def _governor(view: View) -> Seen:
    governors = view.facts["cpu"].get("governor")
    if not governors:
        return None, "the kernel shows no CPU governor (a virtual machine has none)"
    seen = ", ".join(f"{count} CPUs {name}" for name, count in sorted(governors.items()))
    return set(governors) == {GOOD_GOVERNOR}, seen


def _pinned_network(view: View) -> bool:
    return all(
        "UCX_NET_DEVICES" in server["environment"] or "disaggregation-ib-device" in server["args"]
        for server in view.servers
    )


def _networks(view: View) -> Seen:
    nics = view.facts.get("nics")
    if _pinned_network(view):
        return True, "every server names its device"
    if nics is None:
        return None, "the network devices cannot be listed"
    up = [str(nic["rdma"] or nic["name"]) for nic in nics if nic.get("up")]
    return len(up) < 2, f"{', '.join(up)} are up" if len(up) > 1 else f"{', '.join(up) or 'no device'} is up"


RULES: tuple[Rule, ...] = (
    Rule(
        id="network_device_not_chosen",
        severity=WARN,
        finds="in a fleet, a host with several network devices up, and a server that does not say which one carries the KV "
        "cache",
        applies=lambda view: view.fleet and has_servers(view),
        check=_networks,
        wanted="UCX_NET_DEVICES in pd_server_env, or disaggregation-ib-device in pd_server_args",
        why="UCX may take a device that does not reach the other host: every transfer then hangs until its time is up.",
        cure="ip -br addr shows the devices; then pd_server_env: {UCX_NET_DEVICES: NAME}",
        source="sglang #28737",
    ),
    Rule(
        id="hostname_is_loopback",
        severity=WARN,
        finds="in a fleet, a host's name resolves to a loopback address, as Debian's installer writes it (127.0.1.1)",
        applies=lambda view: view.fleet and bool(view.parts),
        check=_hostname,
        wanted="a host name that resolves to an address which other hosts reach",
        why="Libraries that ask for their own address by name hand out one that only this host can use.",
        cure="replace 127.0.1.1 by the host's address in /etc/hosts",
        source="sglang 0.5.23, srt/utils/network.py",
    ),
    Rule(
        id="clock_not_synchronised",
        severity=INFO,
        finds="in a fleet, a host's clock follows no time source",
        applies=lambda view: view.fleet and bool(view.parts),
        check=_clock,
        wanted="a clock that follows a time source",
        why="Logs of several hosts can be compared only on one clock.",
        cure="timedatectl set-ntp true",
    ),
    Rule(
        id="governor_saves_power",
        severity=WARN,
        finds="a CPU governor other than performance, on a GPU box",
        applies=lambda view: view.cuda,
        check=_governor,
        wanted="the governor performance on every CPU",
        why="Between kernels the GPU waits for one CPU thread; a slow clock there is a slow token, and differs from run to "
        "run.",
        cure="cpupower frequency-set -g performance; to make it last, pd_host: {cpu_governor: performance}",
        unknown=INFO,
        source="Linux, Documentation/admin-guide/pm/cpufreq.rst",
    ),
    Rule(
        id="not_root",
        severity=INFO,
        finds="pdlab is not root on the target",
        applies=always,
        check=_root,
        wanted="root, for the role host",
        why="Without root the role host installs nothing and services run as this user, under supervisor.",
        cure="set ansible_become: true where packages are to be installed",
    ),
)
