# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: one table of rules over a box's facts. A new check is a new row of RULES.

A rule is named after the fault that it finds. `check` returns (ok, what was seen); ok is None when the fact is
unknown, which is never fine: an unknown veto becomes a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import overlaps

VETO, WARN, INFO = "veto", "warn", "info"
GIB = 1024**3
MIB = 1024**2
GB = 1000**3
OLDEST_PYTHON = (3, 11)
# Measured: the environment that each lock makes, and a margin for what pip and logs leave beside it.
ENGINE_BYTES = {"cpu": 8 * GB, "cuda": 11 * GB}
MARGIN = 1.15
# What a deployment writes beside an engine that is already there: logs, raw results.
WORKING_BYTES = 1 * GB
# Anonymous memory of a server's processes beside weights and KV cache: 2.3 GiB measured on the CPU with the canary
# (main 0.7, scheduler 1.0, detokenizer 0.7), 0.5 GiB for the router. The GPU ranks' share is an estimate.
SERVER_BYTES = int(2.5 * GIB)
ROUTER_BYTES = GIB // 2
GPU_RANK_BYTES = 3 * GIB
SMALLEST_SHM_BYTES = 1 * GIB
SMALLEST_MEMLOCK_BYTES = 1 * GIB
SMALLEST_NOFILE = 4096
# Below this, memory in use on a GPU is what the driver itself takes.
IDLE_GPU_MIB = 1024

if TYPE_CHECKING:
    Seen = tuple[bool | None, str]
    Text = str | Callable[["View"], str]


@dataclass(frozen=True)
class View:
    """One host of a plan with its facts, and what rules often ask."""

    facts: Mapping[str, Any]
    plan: Mapping[str, Any]
    host: str

    @property
    def servers(self) -> list[Mapping[str, Any]]:
        return [server for server in self.plan["servers"] if server["host"] == self.host]

    @property
    def parts(self) -> list[Mapping[str, Any]]:
        """The servers of this host, and the router when it runs here."""
        router = self.plan["router"]
        return [*self.servers, *([router] if router and router["host"] == self.host else [])]

    @property
    def cuda(self) -> bool:
        return self.plan["device"] == "cuda" and bool(self.servers)

    @property
    def root(self) -> str:
        return str(self.plan["hosts"][self.host]["root"])

    @property
    def fleet(self) -> bool:
        return len({part["host"] for part in [*self.plan["servers"], self.plan["router"] or {}] if part}) > 1

    @property
    def nodes_asked(self) -> list[int]:
        return sorted({server["numa_node"] for server in self.servers if server["numa_node"] is not None})

    @property
    def gpus_declared(self) -> list[int]:
        return sorted({gpu for server in self.servers for gpu in server["gpus"]})

    @property
    def gpus(self) -> list[Mapping[str, Any]]:
        return list(self.facts["gpu"]["gpus"] or [])

    def path(self, path: str) -> Mapping[str, Any]:
        return self.facts["paths"].get(path) or {}


@dataclass(frozen=True)
class Rule:
    """A row of the table: the fault, whom it concerns, how it is seen, what is wanted, why, and the cure."""

    id: str
    severity: str
    applies: Callable[[View], bool]
    check: Callable[[View], Seen]
    wanted: Text
    why: str
    cure: Text


def judge(facts: Mapping[str, Any], plan: Mapping[str, Any], host: str) -> list[dict[str, Any]]:
    """The verdicts on one host, in the table's order: {"id", "severity", "ok", "seen", "wanted", "why", "cure"}.

    Rules that do not concern this host are left out. `cure` is None when all is well.
    """
    view = View(facts, plan, host)
    return [_verdict(rule, view) for rule in RULES if rule.applies(view)]


def wanted_ports(plan: Mapping[str, Any], host: str) -> dict[int, str]:
    """Every port that the parts of one host listen on, with who wants it."""
    view = View({}, plan, host)
    return {port: owner for port, (owner, _address) in _claims(view).items()}


def wanted_paths(plan: Mapping[str, Any], host: str) -> list[str]:
    """Every path whose room, existence or writability the rules ask for."""
    view = View({}, plan, host)
    return list(dict.fromkeys([view.root, _engine(view), *_model_paths(view)]))


def _verdict(rule: Rule, view: View) -> dict[str, Any]:
    ok, seen = rule.check(view)
    return {
        "id": rule.id,
        "severity": WARN if ok is None and rule.severity == VETO else rule.severity,
        "ok": bool(ok),
        "seen": "unknown: " + seen if ok is None else seen,
        "wanted": _text(rule.wanted, view),
        "why": rule.why,
        "cure": None if ok else _text(rule.cure, view),
    }


def _text(text: Text, view: View) -> str:
    return text if isinstance(text, str) else text(view)


def size(count: float) -> str:
    """Bytes as people read them."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _always(view: View) -> bool:
    return True


# --- engine, disk, memory --------------------------------------------------------------------------------------------


def _engine(view: View) -> str:
    return str(view.plan["hosts"][view.host]["engine_python"])


def _model_paths(view: View) -> list[str]:
    return list(dict.fromkeys(str(server["model_path"]) for server in view.servers))


def _pythons(view: View) -> list[Mapping[str, Any]]:
    """The interpreter that the inventory names, otherwise all that were found."""
    found = view.facts["pythons"]
    return [python for python in found if python["asked"]] or list(found)


def _new_pythons(view: View) -> list[Mapping[str, Any]]:
    return [python for python in _pythons(view) if _version(python["version"]) >= OLDEST_PYTHON]


def _python(view: View) -> Seen:
    new = _new_pythons(view)
    if new:
        return True, f"{new[0]['version']} at {new[0]['path']}"
    old = [f"{python['version'] or 'no Python'} at {python['path']}" for python in _pythons(view)]
    return False, ", ".join(old) or "no Python"


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2]) if text else ()


def _engine_exists(view: View) -> bool:
    return bool(view.path(_engine(view)).get("exists"))


def _disk_bytes(view: View) -> float:
    return WORKING_BYTES if _engine_exists(view) else ENGINE_BYTES[view.plan["device"]] * MARGIN + WORKING_BYTES


def _disk(view: View) -> Seen:
    root = view.path(view.root)
    if root.get("free_bytes") is None:
        return None, f"the file system of {view.root} cannot be asked"
    engine = " (the engine is there already)" if _engine_exists(view) else ""
    return root["free_bytes"] >= _disk_bytes(view), f"{size(root['free_bytes'])} free at {root['at']}{engine}"


def _writable(view: View) -> Seen:
    root = view.path(view.root)
    if not root:
        return None, f"{view.root} was not looked at"
    if root["exists"] and not root["directory"]:
        return False, f"{view.root} is not a directory"
    if root["read_only"]:
        return False, f"{root['at']} lies on a read-only file system"
    return root["writable"], f"{root['at']} {'can' if root['writable'] else 'cannot'} be written"


def _memory_bytes(view: View) -> float:
    ranks = len(view.gpus_declared)
    return (
        SERVER_BYTES * len(view.servers) + GPU_RANK_BYTES * ranks + ROUTER_BYTES * (len(view.parts) - len(view.servers))
    )


def _memory(view: View) -> Seen:
    memory = view.facts["memory"]
    available, own, limit = memory["available_bytes"], memory["own_bytes"], memory["cgroup_limit_bytes"]
    if available is None:
        return None, "/proc/meminfo has no MemAvailable"
    usable = min(available + own, limit) if limit else available + own
    held = f", {size(own)} of it held by pdlab's own services" if own else ""
    bounded = f", cgroup limit {size(limit)}" if limit else ""
    return usable >= _memory_bytes(view), f"{size(usable)} available{held}{bounded}"


def _swap(view: View) -> Seen:
    total = view.facts["memory"]["swap_total_bytes"]
    if total is None:
        return None, "/proc/meminfo has no SwapTotal"
    return total == 0, f"{size(total)} of swap" if total else "no swap"


def _shm(view: View) -> Seen:
    shm = view.facts["shm"]
    return (
        (None, "/dev/shm cannot be asked")
        if shm is None
        else (
            shm["total_bytes"] >= SMALLEST_SHM_BYTES,
            size(shm["total_bytes"]),
        )
    )


def _tmp(view: View) -> Seen:
    noexec = view.path("/tmp").get("noexec")
    return (
        (None, "/tmp cannot be asked") if noexec is None else (not noexec, "noexec" if noexec else "programs may run")
    )


def _limit(view: View, name: str, smallest: int) -> Seen:
    of_service = (view.facts["limits"]["services"] or {}).get(name)
    limit = view.facts["limits"]["process"][name]["hard"] if of_service is None else of_service
    of = "this session" if of_service is None else "a systemd service"
    if limit == "unlimited":
        return True, f"unlimited for {of}"
    return limit >= smallest, f"{limit} for {of}"


# --- ports -----------------------------------------------------------------------------------------------------------


def _claims(view: View) -> dict[int, tuple[str, str]]:
    """Every port that this host's parts listen on: {port: (who wants it, at which address)}."""
    claims = {}
    for part in view.parts:
        claims[part["port"]] = (part["name"], part["address"])
        for kind, called in (("bootstrap_port", "bootstrap port"), ("nccl_port", "NCCL port")):
            if part.get(kind):
                claims[part[kind]] = (f"the {called} of {part['name']}", part["address"])
        if part.get("prometheus_port"):
            claims[part["prometheus_port"]] = (f"the Prometheus port of {part['name']}", part["prometheus_host"])
    return claims


def _foreign_listeners(view: View) -> list[tuple[Mapping[str, Any], str]]:
    claims = _claims(view)
    return [
        (listener, claims[listener["port"]][0])
        for listener in view.facts["ports"]
        if listener["port"] in claims
        and not listener["own"]
        and overlaps(claims[listener["port"]][1], listener["address"])
    ]


def _ports(view: View) -> Seen:
    foreign = [
        f"{listener['port']} ({wanted}) is held by {_owner(listener)}" for listener, wanted in _foreign_listeners(view)
    ]
    if foreign:
        return False, "; ".join(foreign)
    own = len({listener["port"] for listener in view.facts["ports"] if listener["own"]})
    free = f"{len(_claims(view)) - own} ports free"
    return True, f"{free}, {own} held by pdlab's own services" if own else free


def _owner(listener: Mapping[str, Any]) -> str:
    if listener["pid"] is None:
        return "a process of another user (root can name it)"
    return f"PID {listener['pid']} ({listener['command']})"


def _port_cure(view: View) -> str:
    pids = sorted({str(listener["pid"]) for listener, _wanted in _foreign_listeners(view) if listener["pid"]})
    stop = f"stop it: kill {' '.join(pids)}" if pids else "stop it"
    return f"{stop}; or choose other ports in pd_servers and pd_router"


# --- NUMA ------------------------------------------------------------------------------------------------------------


def _numactl_present(view: View) -> Seen:
    path = view.facts["numactl"]["path"]
    return path is not None, path or "not installed"


def _numactl_allowed(view: View) -> Seen:
    tried = view.facts["numactl"]["nodes"]
    known = {str(node["node"]) for node in view.facts["numa"] or []}
    asked = [str(node) for node in view.nodes_asked if str(node) in known] or sorted(set(tried) & (known or {"0"}))
    answers = {node: tried.get(node) or {"ok": None, "said": "not tried"} for node in asked}
    refused = [
        f"node {node}: {answer['said'] or 'no reason given'}"
        for node, answer in answers.items()
        if answer["ok"] is False
    ]
    if refused:
        return False, "; ".join(refused)
    unknown = [f"node {node}: {answer['said']}" for node, answer in answers.items() if answer["ok"] is None]
    return (None, "; ".join(unknown)) if unknown else (True, f"node {', '.join(answers)} can be bound")


def _numa_node(view: View) -> Seen:
    nodes = view.facts["numa"]
    if nodes is None:
        return None, "the kernel shows no NUMA nodes"
    known = [node["node"] for node in nodes]
    missing = [str(node) for node in view.nodes_asked if node not in known]
    has = f"this box has node {', '.join(map(str, known))}"
    return not missing, f"no node {', '.join(missing)}; {has}" if missing else has


def _nodes(view: View) -> int:
    return len(view.facts["numa"] or [])


def _has_numactl(view: View) -> bool:
    return view.facts["numactl"]["path"] is not None


# --- GPUs ------------------------------------------------------------------------------------------------------------


def _gpu_present(view: View) -> Seen:
    gpu = view.facts["gpu"]
    if view.gpus:
        return True, f"{len(view.gpus)} GPUs, driver {gpu['driver']}"
    on_bus = f"{len(gpu['pci_devices'])} NVIDIA devices on the PCI bus, " if gpu["pci_devices"] else ""
    return False, on_bus + (gpu["error"] or "nvidia-smi lists none")


def _gpus_enough(view: View) -> Seen:
    known = [gpu["index"] for gpu in view.gpus]
    missing = [str(gpu) for gpu in view.gpus_declared if gpu not in known]
    has = f"this box has GPUs {', '.join(map(str, known))}"
    return not missing, f"no GPU {', '.join(missing)}; {has}" if missing else has


def _busy(view: View) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Declared GPUs in use by others, with the processes that nvidia-smi names (none when it cannot see them)."""
    busy = []
    for gpu in view.gpus:
        if gpu["index"] in view.gpus_declared:
            foreign = [process for process in gpu["processes"] or [] if not process.get("own")]
            unseen = not gpu["processes"] and (gpu["memory_used_mib"] or 0) > IDLE_GPU_MIB
            if foreign or unseen:
                busy.append((gpu, foreign))
    return busy


def _gpus_idle(view: View) -> Seen:
    said = []
    for gpu, foreign in _busy(view):
        users = ", ".join(f"PID {process['pid']} ({process['command']})" for process in foreign)
        said.append(
            f"GPU {gpu['index']}: {gpu['memory_used_mib']} MiB used by {users or 'a process that cannot be seen'}"
        )
    if said:
        return False, "; ".join(said)
    if any(gpu["processes"] is None for gpu in view.gpus):
        return None, "nvidia-smi does not list the processes"
    return True, f"GPUs {', '.join(map(str, view.gpus_declared))} are idle or run pdlab's own servers"


def _gpu_cure(view: View) -> str:
    pids = sorted({str(process["pid"]) for _gpu, foreign in _busy(view) for process in foreign})
    return (
        f"stop it: kill {' '.join(pids)}; or choose other gpus"
        if pids
        else "stop what runs there, or choose other gpus"
    )


def _gpus_in_use(view: View) -> Seen:
    gpu = view.facts["gpu"]
    count = len(gpu["gpus"] or gpu["pci_devices"])
    return count == 0, f"{count} GPUs, and this inventory rehearses on the CPU" if count else "no GPU"


def _tool(view: View, name: str) -> Seen:
    path = view.facts["tools"][name]
    return path is not None, path or "not installed"


def _headers(view: View) -> Seen:
    new = _new_pythons(view)
    if not new:
        return None, "no Python that is new enough"
    return new[0]["headers"], f"{'there' if new[0]['headers'] else 'missing'} for {new[0]['path']}"


# --- model -----------------------------------------------------------------------------------------------------------


def _is_local_model(view: View) -> bool:
    return view.plan["model"]["source"] == "local" and bool(view.servers)


def _model_exists(view: View) -> Seen:
    missing = [path for path in _model_paths(view) if not view.path(path).get("exists")]
    return not missing, f"{missing[0]} does not exist" if missing else f"{_model_paths(view)[0]} exists"


def _checkpoint(view: View) -> Seen:
    checkpoint = view.facts["checkpoint"]
    if checkpoint is None:
        return None, "the checkpoint was not looked at"
    return not checkpoint["faults"], "; ".join(checkpoint["faults"]) or f"{checkpoint['path']} is whole"


# --- the host --------------------------------------------------------------------------------------------------------


def _hostname(view: View) -> Seen:
    name, addresses = view.facts["hostname"]["name"], view.facts["hostname"]["addresses"]
    if addresses is None:
        return None, f"{name} resolves to nothing"
    loopback = [address for address in addresses if address.startswith("127.") or address == "::1"]
    return not loopback, f"{name} resolves to {', '.join(addresses)}"


def _clock(view: View) -> Seen:
    state = view.facts["clock_synchronised"]
    return state, "cannot be asked" if state is None else "synchronised" if state else "not synchronised"


def _is_root(view: View) -> Seen:
    return view.facts["root"], "root" if view.facts["root"] else "an ordinary user"


RULES: tuple[Rule, ...] = (
    Rule(
        id="python_too_old",
        severity=VETO,
        applies=_always,
        check=_python,
        wanted="Python 3.11 or newer",
        why="The engine's environment is built on it.",
        cure="apt-get install python3, or name one with pd_engine.python",
    ),
    Rule(
        id="root_not_writable",
        severity=VETO,
        applies=_always,
        check=_writable,
        wanted=lambda view: f"a directory {view.root} that can be made and written",
        why="Everything that pdlab keeps on the target lies there.",
        cure="choose another pd_root, or make it writable for this user",
    ),
    Rule(
        id="disk_too_small",
        severity=VETO,
        applies=_always,
        check=_disk,
        wanted=lambda view: f"{size(_disk_bytes(view))} free",
        why="The engine's environment, logs and raw results must fit, with a margin of 15 %.",
        cure="free space there, or choose a pd_root on another disk",
    ),
    Rule(
        id="memory_too_small",
        severity=VETO,
        applies=lambda view: bool(view.servers),
        check=_memory,
        wanted=lambda view: f"{size(_memory_bytes(view))} available",
        why="The kernel ends a server that runs out of memory, in the middle of a request.",
        cure="end what uses the memory (ps aux --sort=-rss | head), or run fewer servers here",
    ),
    Rule(
        id="port_taken",
        severity=VETO,
        applies=lambda view: bool(view.parts),
        check=_ports,
        wanted="every port free, or held by pdlab's own services",
        why="A server that cannot bind its port ends, and one that finds another's bootstrap port answers wrongly.",
        cure=_port_cure,
    ),
    Rule(
        id="model_absent",
        severity=VETO,
        applies=_is_local_model,
        check=_model_exists,
        wanted=lambda view: f"the checkpoint at {', '.join(_model_paths(view))}",
        why="pd_model.source is local: nothing fetches it.",
        cure="put the checkpoint there, or correct pd_model.path",
    ),
    Rule(
        id="checkpoint_incomplete",
        severity=VETO,
        applies=lambda view: _is_local_model(view) and bool(_model_exists(view)[0]),
        check=_checkpoint,
        wanted="config, tokenizer and every shard that the index names, each of its full size",
        why="The engine would fail minutes into loading, or load what is not the model.",
        cure="fetch the missing files again",
    ),
    Rule(
        id="gpu_absent",
        severity=VETO,
        applies=lambda view: view.cuda,
        check=_gpu_present,
        wanted="an NVIDIA driver that lists the GPUs",
        why="pd_device is cuda.",
        cure="install the NVIDIA driver and see that nvidia-smi lists the GPUs, or use an inventory for the CPU",
    ),
    Rule(
        id="gpus_fewer_than_declared",
        severity=VETO,
        applies=lambda view: view.cuda and bool(view.gpus),
        check=_gpus_enough,
        wanted=lambda view: f"GPUs {', '.join(map(str, view.gpus_declared))}",
        why="pd_servers names GPUs that are not there.",
        cure="correct gpus in pd_servers",
    ),
    Rule(
        id="gpu_busy",
        severity=VETO,
        applies=lambda view: view.cuda and bool(view.gpus),
        check=_gpus_idle,
        wanted=lambda view: f"GPUs {', '.join(map(str, view.gpus_declared))} free of other processes",
        why="A server takes nearly all of a GPU's memory, and a shared GPU measures nothing.",
        cure=_gpu_cure,
    ),
    Rule(
        id="gpus_unused",
        severity=INFO,
        applies=lambda view: view.plan["device"] == "cpu",
        check=_gpus_in_use,
        wanted="an inventory that uses the GPUs, where there are any",
        why="A rehearsal on the CPU says nothing about their speed.",
        cure="describe the GPUs in an inventory (docs/inventory.md), then: pdlab up -i INVENTORY",
    ),
    Rule(
        id="compiler_absent",
        severity=WARN,
        applies=lambda view: view.cuda,
        check=lambda view: _tool(view, "gcc"),
        wanted="a C compiler",
        why="Triton compiles its launcher on the target at the first kernel.",
        cure="apt-get install gcc",
    ),
    Rule(
        id="python_headers_absent",
        severity=WARN,
        applies=lambda view: view.cuda,
        check=_headers,
        wanted="Python.h of the engine's Python",
        why="Triton compiles its launcher against it at the first kernel.",
        cure="apt-get install python3-dev",
    ),
    Rule(
        id="numa_node_absent",
        severity=VETO,
        applies=lambda view: bool(view.nodes_asked),
        check=_numa_node,
        wanted=lambda view: f"NUMA nodes {', '.join(map(str, view.nodes_asked))}",
        why="pd_servers binds servers to them.",
        cure="correct numa_node in pd_servers (numactl --hardware lists the nodes), or leave it out",
    ),
    Rule(
        # As root, the role host installs it before the servers need it.
        id="numactl_absent",
        severity=VETO,
        applies=lambda view: bool(view.nodes_asked) and not view.facts["root"],
        check=_numactl_present,
        wanted="numactl",
        why="A numa_node is asked for, and without root pdlab cannot install what binds to it.",
        cure="apt-get install numactl (as root), or leave numa_node out",
    ),
    Rule(
        id="numactl_absent",
        severity=WARN,
        applies=lambda view: bool(view.servers) and not (view.nodes_asked and not view.facts["root"]),
        check=_numactl_present,
        wanted="numactl",
        why="SGLang binds its GPU processes to NUMA nodes with it, and without it leaves them unbound in silence.",
        cure="apt-get install numactl (as root, the role host does it)",
    ),
    Rule(
        id="numactl_refused",
        severity=VETO,
        applies=lambda view: bool(view.nodes_asked) and _has_numactl(view),
        check=_numactl_allowed,
        wanted=lambda view: (
            f"numactl --cpunodebind=N --membind=N true to work for N = {', '.join(map(str, view.nodes_asked))}"
        ),
        why="Every server of this host starts under that command.",
        cure="in a container add the capability SYS_NICE (--cap-add SYS_NICE); or leave numa_node out",
    ),
    Rule(
        id="numactl_refused",
        severity=WARN,
        applies=lambda view: view.cuda and _nodes(view) > 1 and not view.nodes_asked and _has_numactl(view),
        check=_numactl_allowed,
        wanted="numactl --cpunodebind=0 --membind=0 true to work",
        why="SGLang binds its GPU processes with it, and falls back to no binding.",
        cure="in a container add the capability SYS_NICE (--cap-add SYS_NICE)",
    ),
    Rule(
        id="tmp_noexec",
        severity=VETO,
        applies=lambda view: view.cuda and _nodes(view) > 1 and _has_numactl(view),
        check=_tmp,
        wanted="/tmp from which programs may be run",
        why="SGLang writes its NUMA wrappers there and executes them.",
        cure="mount -o remount,exec /tmp",
    ),
    Rule(
        id="tmp_noexec",
        severity=WARN,
        applies=lambda view: not (view.cuda and _nodes(view) > 1 and _has_numactl(view)),
        check=_tmp,
        wanted="/tmp from which programs may be run",
        why="Compilers of kernels write programs there and load them.",
        cure="mount -o remount,exec /tmp",
    ),
    Rule(
        id="shm_too_small",
        severity=WARN,
        applies=lambda view: bool(view.servers),
        check=_shm,
        wanted=f"{size(SMALLEST_SHM_BYTES)} of /dev/shm",
        why="NCCL and UCX share memory between processes through it; containers often have 64 MiB.",
        cure="mount -o remount,size=8G /dev/shm; in a container --ipc=host or --shm-size=8g",
    ),
    Rule(
        # Without RDMA devices and GPUs nothing is pinned.
        id="memlock_too_low",
        severity=WARN,
        applies=lambda view: bool(view.servers) and (view.cuda or bool(view.facts["infiniband"])),
        check=lambda view: _limit(view, "memlock_bytes", SMALLEST_MEMLOCK_BYTES),
        wanted=f"unlimited, at least {SMALLEST_MEMLOCK_BYTES}",
        why="UCX pins the memory that it registers for RDMA and fails when it may not.",
        cure="under systemd pdlab's units ask for more themselves; elsewhere ulimit -l unlimited, or --ulimit memlock=-1",
    ),
    Rule(
        id="nofile_too_low",
        severity=WARN,
        applies=lambda view: bool(view.parts),
        check=lambda view: _limit(view, "nofile", SMALLEST_NOFILE),
        wanted=f"{SMALLEST_NOFILE} open files",
        why="Every request, ZMQ socket and UCX connection is one.",
        cure="raise the hard limit: ulimit -Hn, or nofile in /etc/security/limits.conf",
    ),
    Rule(
        id="swap_on",
        severity=INFO,
        applies=lambda view: bool(view.servers),
        check=_swap,
        wanted="no swap",
        why="A server of which parts were swapped out answers late now and then, which no average shows.",
        cure="swapoff -a, for the time of a measurement",
    ),
    Rule(
        id="hostname_is_loopback",
        severity=WARN,
        applies=lambda view: view.fleet and bool(view.parts),
        check=_hostname,
        wanted="a host name that resolves to an address which other hosts reach",
        why="Libraries that ask for their own address by name hand out one that only this host can use.",
        cure="replace 127.0.1.1 by the host's address in /etc/hosts",
    ),
    Rule(
        id="clock_not_synchronised",
        severity=INFO,
        applies=lambda view: view.fleet and bool(view.parts),
        check=_clock,
        wanted="a clock that follows a time source",
        why="Logs of several hosts can be compared only on one clock.",
        cure="timedatectl set-ntp true",
    ),
    Rule(
        id="not_root",
        severity=INFO,
        applies=_always,
        check=_is_root,
        wanted="root, for the role host",
        why="Without root the role host installs nothing and services run as this user, under supervisor.",
        cure="set ansible_become: true where packages are to be installed",
    ),
)


def vetoes(verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The verdicts that forbid a deployment."""
    return [verdict for verdict in verdicts if verdict["severity"] == VETO and not verdict["ok"]]


def warnings(verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The verdicts that should be read before a deployment."""
    return [verdict for verdict in verdicts if verdict["severity"] == WARN and not verdict["ok"]]


def line(verdict: Mapping[str, Any]) -> str:
    """A verdict that is not well, on one line."""
    return f"{verdict['id']}: {verdict['seen']}; wanted: {verdict['wanted']}; {verdict['cure']}"
