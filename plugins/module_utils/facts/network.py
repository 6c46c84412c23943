# SPDX-License-Identifier: GPL-3.0-or-later
"""Network cards with their place on the bus, and the ports that the kernel hands out by itself.

Source: Documentation/ABI/testing/sysfs-class-net of the Linux kernel.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import pci
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_binding import parse_list

NET = "/sys/class/net"
_STATES = {"up": True, "down": False, "lowerlayerdown": False, "dormant": False, "notpresent": False}


def read_nics(source: Source) -> list[dict[str, Any]]:
    """[{"name", "pci", "numa_node", "driver", "speed_mbps", "mtu", "up", "rdma"}] of the interfaces of PCI devices.

    Bridges, bonds and containers' pairs are none. `rdma` names the RDMA device of the same card.
    """
    nics = []
    for name in source.names(NET):
        addresses = pci.addresses_above(source, f"{NET}/{name}")
        if not addresses:
            continue
        device = f"{NET}/{name}/device"
        speed = pci.read_number(source, f"{NET}/{name}/speed")
        nics.append(
            {
                "name": name,
                "pci": addresses[-1],
                "numa_node": pci.read_number(source, f"{pci.DEVICES}/{addresses[-1]}/numa_node"),
                "driver": (source.link(f"{device}/driver") or "").rpartition("/")[2] or None,
                "speed_mbps": speed if speed is not None and speed > 0 else None,
                "mtu": pci.read_number(source, f"{NET}/{name}/mtu"),
                "up": _STATES.get(source.text(f"{NET}/{name}/operstate") or ""),
                "rdma": next(iter(source.names(f"{device}/infiniband")), None),
            }
        )
    return nics


def read_ephemeral_ports(source: Source) -> list[int] | None:
    """[lowest, highest] of the ports that a connection without a wish gets."""
    ends = (source.text("/proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return [int(end) for end in ends] if len(ends) == 2 and all(end.isdigit() for end in ends) else None


def read_reserved_ports(source: Source) -> list[int] | None:
    """The ports that the kernel never hands out by itself; Documentation/networking/ip-sysctl of the Linux kernel."""
    text = source.text("/proc/sys/net/ipv4/ip_local_reserved_ports")
    return None if text is None else sorted(parse_list(text))
