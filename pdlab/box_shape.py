# SPDX-License-Identifier: Apache-2.0
"""From what a box is to what should run on it: which GPUs belong together, who does what, on which ports.

Pure: facts in (as box_facts returns them), a Shape out, every choice with its reason. A person reads the reasons as
comments of the inventory that `pdlab init` writes, and changes what they know better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import COLOCATED, DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_binding import format_list
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import UNBOUND
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_ports import (
    BOOTSTRAP_BASE,
    NCCL_BASE,
    PORT_BASE,
    ROUTER_PORT,
    STEP,
)

Facts = Mapping[str, Any]
# SGLang draws the ports that nobody gave it from here (sglang 0.5.23, srt/utils/network.py, get_open_port users).
SGLANG_RANDOM_PORTS = range(22000, 30000)
# The reference's 29001 lies among SGLang's random ports; 29000, the router's own default, as well.
PROMETHEUS_PORT = 8100
# How far a port may move away from its usual place when others have taken it.
PORT_TRIES = 20
GIB = 1024**3
# The engine's environment, and room for logs and results (docs/preflight.md).
ROOM_BYTES = 14 * GIB
ROOTS = ("/opt/pdlab", "/srv/pdlab", "/data/pdlab", "/mnt/pdlab", "/home/pdlab")


@dataclass
class Server:
    """One server of the shape. `gpus` are indices; `step` is above 1 where SGLang must skip GPUs.

    `unbound`: the box has several NUMA nodes and does not say at which of them these GPUs lie.
    """

    name: str
    role: str
    gpus: list[int]
    port: int
    nccl_port: int
    bootstrap_port: int | None = None
    step: int = 1
    unbound: bool = False
    why: str = ""

    def settings(self) -> dict[str, Any]:
        """As `pd_servers` has it, on one line."""
        found: dict[str, Any] = {"name": self.name, "role": self.role}
        if self.gpus:
            found["gpus"] = self.gpus
        if self.unbound:
            found["numa_node"] = UNBOUND
        found |= {"port": self.port, "nccl_port": self.nccl_port}
        return {**found, "args": {"gpu-id-step": self.step}} if self.step > 1 else found


@dataclass
class Shape:
    """What the box gets. `notes` are for the head of the file: what was seen, and what a person should know.

    `arms`: what the same GPUs could be instead, to compare with; empty where figures mean nothing.
    """

    device: str
    servers: list[Server]
    router_port: int
    prometheus_port: int
    shared: bool = False
    # Of all GPUs, when nvidia-smi says it; and the profile of the environment that goes with how they are joined.
    compute_capability: str | None = None
    collectives: str | None = None
    arms: dict[str, list[Server]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    port_notes: list[str] = field(default_factory=list)


def candidate_ports() -> list[int]:
    """Every port that a shape may choose: box_facts must be asked for their listeners."""
    wanted: set[int] = set()
    for base, step in ((ROUTER_PORT, 1), (PROMETHEUS_PORT, 1), (BOOTSTRAP_BASE, 1), *_server_bases()):
        wanted.update(range(base, base + PORT_TRIES * step, step))
    return sorted(wanted)


def _server_bases() -> list[tuple[int, int]]:
    bases = {**{("port", role): PORT_BASE[role] for role in (PREFILL, DECODE)},
             **{("nccl", role): NCCL_BASE[role] for role in (PREFILL, DECODE)}}  # fmt: skip
    return [(base, STEP) for base in bases.values()]


def shape_of(facts: Facts) -> Shape:
    """Choose what runs on a box."""
    ports = _FreePorts(facts)
    known = facts["gpu"]["gpus"]
    if not known:
        return _rehearsal(facts, ports)
    gpus, notes = _usable(known)
    if not gpus:
        return _rehearsal(facts, ports, notes)
    notes = [_seen(facts, gpus), *notes]
    shape = _shared(facts, gpus[0], ports, notes) if len(gpus) == 1 else _disaggregated(facts, gpus, ports, notes)
    shape.compute_capability = gpus[0].get("compute_capability")
    shape.collectives = "nvlink" if facts["gpu"].get("nvlink") else "pcie"
    return shape


# --- which GPUs belong together ---------------------------------------------------------------------------------------


def _usable(gpus: Sequence[Facts]) -> tuple[list[Facts], list[str]]:
    """The GPUs of the most frequent model that are not cut up by MIG, and a note on each that is left out."""
    notes = []
    whole = [gpu for gpu in gpus if not gpu.get("mig")]
    if len(whole) < len(gpus):
        cut = format_list({gpu["index"] for gpu in gpus if gpu.get("mig")})
        notes.append(f"GPU {cut} is cut up by MIG and left out; as a whole: nvidia-smi -mig 0 (as root).")
    names = [gpu["name"] for gpu in whole]
    if len(set(names)) > 1:
        common = max(dict.fromkeys(names), key=names.count)
        others = format_list({gpu["index"] for gpu in whole if gpu["name"] != common})
        notes.append(f"GPU {others} is of another model than the {names.count(common)} {common}, and left out.")
        whole = [gpu for gpu in whole if gpu["name"] == common]
    return whole, notes


def groups_of(facts: Facts, gpus: Sequence[Facts]) -> list[tuple[int, list[int]]]:
    """GPUs that may form one TP group, by NUMA node (-1: not known) and then by P2P: [(node, indices)].

    Where P2P is unknown, the node alone decides.
    """
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        node = gpu.get("numa_node")
        nodes.setdefault(-1 if node is None else node, []).append(gpu["index"])
    found = []
    for node, indices in sorted(nodes.items()):
        found += [(node, island) for island in _islands(indices, facts["gpu"].get("p2p"))]
    return found


def _islands(indices: Sequence[int], p2p: Mapping[str, Mapping[str, str]] | None) -> list[list[int]]:
    """GPUs that all reach each other, as far as is known; each GPU in one island."""
    islands: list[list[int]] = []
    for index in sorted(indices):
        for island in islands:
            if all(_reaches(index, other, p2p) for other in island):
                island.append(index)
                break
        else:
            islands.append([index])
    return islands


def _reaches(one: int, other: int, p2p: Mapping[str, Mapping[str, str]] | None) -> bool:
    if not p2p:
        return True
    said = [p2p[way].get(f"{a}-{b}") for way in p2p if p2p[way] for a, b in ((one, other), (other, one))]
    return all(word in (None, "OK") for word in said)


def _rows(indices: Sequence[int], size: int) -> list[tuple[list[int], int]]:
    """Rows of `size` GPUs that SGLang can count through with one step: [(GPUs, step)]."""
    rows, rest = [], sorted(indices)
    while len(rest) >= size:
        row, step = _row(rest, size)
        if not row:
            rest = rest[1:]
            continue
        rows.append((row, step))
        rest = [index for index in rest if index not in row]
    return rows


def _row(indices: Sequence[int], size: int) -> tuple[list[int], int]:
    """The row that begins with the first GPU, and its step; no GPUs when there is none."""
    if size == 1:
        return [indices[0]], 1
    for second in indices[1:]:
        step = second - indices[0]
        row = list(range(indices[0], indices[0] + step * size, step))
        if set(row) <= set(indices):
            return row, step
    return [], 1


# --- who does what ----------------------------------------------------------------------------------------------------


def _disaggregated(facts: Facts, gpus: Sequence[Facts], ports: _FreePorts, notes: list[str]) -> Shape:
    """Servers of one size, a power of two, on GPUs of one node; the first half of them prefill, the others decode."""
    groups = groups_of(facts, gpus)
    size = 1
    while sum(len(_rows(indices, size * 2)) for _node, indices in groups) >= 2:
        size *= 2
    places = [(node, row, step) for node, indices in groups for row, step in _rows(indices, size)]
    prefills = max(1, len(places) // 2)
    notes.append(_division(size, prefills, len(places) - prefills))
    unused = {gpu["index"] for gpu in gpus} - {gpu for _node, row, _step in places for gpu in row}
    if unused:
        notes.append(f"GPU {format_list(unused)} is left over: what remains makes no further server of this size.")
    if facts["gpu"].get("p2p") is None:
        notes.append("Which GPUs reach each other (P2P) is not known; nvidia-smi topo -p2p w shows it.")
    several_nodes = len(facts["numa"] or []) > 1
    servers = []
    for place, (node, row, step) in enumerate(places):
        role, index = (PREFILL, place) if place < prefills else (DECODE, place - prefills)
        server = _server(role, index, row, ports)
        server.step, server.unbound = step, node < 0 and several_nodes
        server.why = f"GPU {format_list(set(row))}: {_placed_at(node, several_nodes)}"
        servers.append(server)
    arms = _colocated_arms(servers, facts["gpu"].get("p2p"), {node for node, _row, _step in places})
    return Shape("cuda", servers, *_router_ports(ports), arms=arms, notes=notes, port_notes=ports.notes)


def _colocated_arms(
    servers: Sequence[Server], p2p: Mapping[str, Mapping[str, str]] | None, nodes: set[int]
) -> dict[str, list[Server]]:
    """The same GPUs without disaggregation: one server over all of them, and one in each server's place.

    One over all only where they reach each other, SGLang can count through them, and their number is a power of two,
    as TP wants it. It is bound to no node where they lie at several (`nodes`). Ports are those of the servers that
    are replaced: arms take turns.
    """
    arms = {}
    gpus = sorted(gpu for server in servers for gpu in server.gpus)
    row, step = _row(gpus, len(gpus))
    if len(row) == len(gpus) and len(gpus).bit_count() == 1 and len(_islands(gpus, p2p)) == 1:
        first = servers[0]
        whole = replace(
            first, name=f"colocated-tp{len(gpus)}", role=COLOCATED, bootstrap_port=None, gpus=gpus, step=step
        )
        arms[f"tp{len(gpus)}"] = [replace(whole, unbound=first.unbound or len(nodes) > 1)]
    copies = [
        replace(server, name=f"colocated-{place}", role=COLOCATED, bootstrap_port=None)
        for place, server in enumerate(servers)
    ]
    return {**arms, f"dp{len(copies)}": copies}


def _division(size: int, prefills: int, decodes: int) -> str:
    each = "one GPU each" if size == 1 else f"TP{size} each"
    if (prefills, decodes) == (1, 1):
        return f"One server for prefill, one for decode, {each}: as large as GPUs that belong together allow."
    return (
        f"{prefills} prefill and {decodes} decode, {each}: as large as GPUs that belong together allow, and all alike, "
        "because the router sends to all alike."
    )


def _placed_at(node: int, several_nodes: bool) -> str:
    if node >= 0:
        return f"at NUMA node {node}"
    return "the firmware does not say at which NUMA node" if several_nodes else "the box has one NUMA node"


def _shared(facts: Facts, gpu: Facts, ports: _FreePorts, notes: list[str]) -> Shape:
    notes.append("One GPU: both roles share it. The whole path runs, and its figures say nothing about disaggregation.")
    servers = [_server(role, 0, [gpu["index"]], ports) for role in (PREFILL, DECODE)]
    for server in servers:
        server.unbound = len(facts["numa"] or []) > 1 and (gpu.get("numa_node") in (None, -1))
    return Shape("cuda", servers, *_router_ports(ports), shared=True, notes=notes, port_notes=ports.notes)


def _rehearsal(facts: Facts, ports: _FreePorts, notes: Sequence[str] = ()) -> Shape:
    """No GPU that can be used: the rehearsal on the CPU."""
    seen = list(notes) or [_no_gpus(facts)]
    seen.append("So this is a REHEARSAL on the CPU with the canary model. Its figures say nothing about any GPU.")
    servers = [_server(role, 0, [], ports) for role in (PREFILL, DECODE)]
    arms = {"colocated": [replace(servers[0], name="colocated-0", role=COLOCATED, bootstrap_port=None)]}
    return Shape("cpu", servers, *_router_ports(ports), arms=arms, notes=seen, port_notes=ports.notes)


def _no_gpus(facts: Facts) -> str:
    on_bus = len(facts["gpu"]["pci_devices"] or [])
    if on_bus:
        said = facts["gpu"]["error"] or "nvidia-smi lists none"
        return f"{on_bus} NVIDIA GPUs are on the bus, and the driver does not show them: {said}."
    return "No NVIDIA GPU was found."


def _seen(facts: Facts, gpus: Sequence[Facts]) -> str:
    memory = gpus[0].get("memory_total_mib")
    size = f", {round(memory / 1024)} GiB{' each' if len(gpus) > 1 else ''}" if memory else ""
    nodes = len(facts["numa"] or []) or 1
    link = {True: "NVLink", False: "no NVLink", None: "NVLink unknown"}[facts["gpu"].get("nvlink")]
    count = f"{len(gpus)} GPUs" if len(gpus) > 1 else "1 GPU"
    return f"{count} ({gpus[0]['name']}{size}), {nodes} NUMA node{'s' if nodes > 1 else ''}, {link}."


# --- ports ------------------------------------------------------------------------------------------------------------


class _FreePorts:
    """Ports that nobody holds and that neither SGLang nor the kernel hands out by itself."""

    def __init__(self, facts: Facts) -> None:
        self._held = {listener["port"]: listener for listener in facts["ports"]}
        self._ephemeral = facts.get("ephemeral_ports") or [0, 0]
        self._given: set[int] = set()
        self.notes: list[str] = []

    def take(self, base: int, step: int, place: int, what: str) -> int:
        """The first free port of those that `what` may have, from its usual one on."""
        usual = base + step * place
        for port in range(usual, base + step * (PORT_TRIES + place), step):
            if port not in self._held and port not in self._given and not self._handed_out(port):
                break
        else:
            port = usual
            self.notes.append(f"{what}: no free port found near {usual}; choose one.")
        self._given.add(port)
        if port != usual:
            self.notes.append(f"{what}: {port}, because {self._why(usual)}.")
        return port

    def _handed_out(self, port: int) -> bool:
        low, high = self._ephemeral
        return port in SGLANG_RANDOM_PORTS or low <= port <= high

    def _why(self, port: int) -> str:
        if port in self._held:
            command = self._held[port].get("command")
            return f"{port} is held by {command or 'another process'}"
        return f"{port} is one that the kernel hands out" if self._handed_out(port) else f"{port} is taken"


def _router_ports(ports: _FreePorts) -> tuple[int, int]:
    return (
        ports.take(ROUTER_PORT, 1, 0, "router"),
        ports.take(PROMETHEUS_PORT, 1, 0, "the router's metrics"),
    )


def _server(role: str, index: int, gpus: Iterable[int], ports: _FreePorts) -> Server:
    name = f"{role}-{index}"
    return Server(
        name,
        role,
        list(gpus),
        port=ports.take(PORT_BASE[role], STEP, index, name),
        nccl_port=ports.take(NCCL_BASE[role], STEP, index, f"NCCL of {name}"),
        bootstrap_port=ports.take(BOOTSTRAP_BASE, 1, index, f"bootstrap of {name}") if role == PREFILL else None,
    )


# --- where pdlab lives ------------------------------------------------------------------------------------------------


def candidate_roots(home: str | None) -> list[str]:
    """Directories that may become pdlab's own; box_facts must be asked for them. `home` is known for this machine."""
    return [*ROOTS, *([f"{home}/.local/share/pdlab"] if home else [])]


def root_of(facts: Facts, home: str | None) -> tuple[str, str]:
    """(pdlab's directory, why this one): the first with room that can be written; by root in /opt first."""
    candidates = candidate_roots(home)
    if home and not facts["root"]:
        candidates = candidates[::-1]
    seen = [(path, facts["paths"].get(path) or {}) for path in candidates]
    for path, fact in seen:
        if fact.get("writable") and (fact.get("free_bytes") or 0) >= ROOM_BYTES:
            return path, f"{fact['free_bytes'] / GIB:.0f} GiB are free there"
    return ROOTS[0], f"no directory with {ROOM_BYTES // GIB} GiB that can be written was found; name one that has room"
