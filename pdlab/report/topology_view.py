# SPDX-License-Identifier: Apache-2.0
"""What ran where, for a drawing: hosts, their NUMA nodes, the servers on them with GPUs and ports, the router. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdlab.loose import as_integer, as_list, as_mapping, as_rows, as_text
from pdlab.store import RunContents


@dataclass(frozen=True)
class Box:
    """One server or the router. `ports`: one line each."""

    name: str
    role: str
    gpus: tuple[int, ...]
    tp: int
    device: str
    ports: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One NUMA node of a host with what runs on it; `idle`: its GPUs that no server uses."""

    title: str
    servers: tuple[Box, ...]
    idle: tuple[int, ...]


@dataclass(frozen=True)
class HostView:
    """One host. `gpu_name`: what its GPUs are, when preflight saw them."""

    name: str
    gpu_name: str
    router: Box | None
    nodes: tuple[Node, ...]


def topology_view(contents: RunContents) -> tuple[HostView, ...]:
    """The hosts of a run's plan; none without a plan. What preflight saw adds idle GPUs and what they are."""
    plan = as_mapping(contents.plan)
    rows = as_rows(plan.get("servers"))
    router = as_mapping(plan.get("router"))
    names = dict.fromkeys(str(row.get("host")) for row in [*([router] if router else []), *rows])
    records = contents.host_records("server")
    return tuple(
        _host(
            name,
            [_started(row, records) for row in rows if str(row.get("host")) == name],
            router if str(router.get("host")) == name else {},
            as_mapping(as_mapping(contents.record(f"preflight-{name}")).get("facts")),
        )
        for name in names
    )


def _started(row: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A planned server with the NUMA node that it was bound to."""
    record = records.get(str(row.get("name"))) or {}
    node = record.get("numa_node")
    return {**row, **({"numa_node": node} if node is not None else {})}


def _host(name: str, rows: list[dict[str, Any]], router: Mapping[str, Any], facts: Mapping[str, Any]) -> HostView:
    seen = as_rows(as_mapping(facts.get("gpu")).get("gpus"))
    where = {as_integer(gpu.get("index")): as_integer(gpu.get("numa_node")) for gpu in seen}
    used = {as_integer(gpu) for row in rows for gpu in as_list(row.get("gpus"))}
    idle = {gpu: node for gpu, node in where.items() if gpu is not None and gpu not in used}
    nodes: dict[int | None, list[Box]] = {}
    for row in rows:
        nodes.setdefault(as_integer(row.get("numa_node")), []).append(_box(row))
    for node in idle.values():
        nodes.setdefault(node, [])
    order = sorted(nodes, key=lambda node: (node is None, node or 0))
    return HostView(
        name=name,
        gpu_name=", ".join(dict.fromkeys(str(gpu.get("name")) for gpu in seen if gpu.get("name"))),
        router=_box(router) if router else None,
        nodes=tuple(
            Node(
                "not bound to a NUMA node" if node is None else f"NUMA node {node}",
                tuple(nodes[node]),
                tuple(sorted(gpu for gpu, at in idle.items() if at == node)),
            )
            for node in order
        ),
    )


def _box(row: Mapping[str, Any]) -> Box:
    ports = {"port": "port", "bootstrap_port": "bootstrap", "nccl_port": "nccl", "prometheus_port": "metrics"}
    gpus = tuple(gpu for gpu in map(as_integer, as_list(row.get("gpus"))) if gpu is not None)
    return Box(
        name=as_text(row.get("name")) or "?",
        role=as_text(row.get("role")) or "?",
        gpus=gpus,
        tp=as_integer(row.get("tp")) or 1,
        device="" if gpus else as_text(row.get("device")) or "",
        ports=tuple(f"{words} {row[key]}" for key, words in ports.items() if row.get(key)),
    )
