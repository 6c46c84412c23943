# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules ask of one host: the options of box_facts that follow from a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules import disk, ports
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import View
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import options_of_host

# The box may decide to which node a server is bound (numa_placement.py). Two sockets, each of four nodes (AMD's NPS4);
# binding to a node that is not there is refused, which costs nothing and is not looked at.
MOST_NODES = range(8)


def facts_options(plan: Mapping[str, Any], host: str, pythons: Sequence[str] = ()) -> dict[str, Any]:
    """The options of box_facts for one host of a plan; `pythons` are interpreters that the inventory names.

    The interpreter of an engine that is there already is always asked.
    """
    view = View({}, plan, host)
    local_model = plan["model"]["source"] == "local" and bool(view.servers)
    return {
        "ports": sorted(wanted_ports(plan, host)),
        "paths": wanted_paths(plan, host),
        "root": view.root,
        "numa_nodes": sorted({0, *view.nodes_asked, *(MOST_NODES if view.gpus_declared else ())}),
        "pythons": [*pythons, *([view.engine_python] if plan["hosts"][host].get("engine_existing") else [])],
        "engine": view.engine_python,
        "engine_pythonpath": list(plan["hosts"][host].get("engine_pythonpath") or []),
        "checkpoint": disk.model_paths(view)[0] if local_model else None,
        "model": next(iter(disk.model_paths(view)), None),
        "servers": options_of_host(plan, host),
    }


def wanted_ports(plan: Mapping[str, Any], host: str) -> dict[int, str]:
    """Every port that the parts of one host listen on, and the reference, with who wants it."""
    view = View({}, plan, host)
    wanted = {**ports.reference_claims(view), **ports.claims(view)}
    return {port: owner for port, (owner, _address) in wanted.items()}


def wanted_paths(plan: Mapping[str, Any], host: str) -> list[str]:
    """Every path whose room, existence or writability the rules ask for."""
    view = View({}, plan, host)
    return list(dict.fromkeys([view.root, view.engine_python, disk.UV_CACHE, *disk.model_paths(view)]))
