# SPDX-License-Identifier: Apache-2.0
"""Faults of boxes, each made by a small edit of a recording or of the plan, and the verdict that it must get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

GIB = 1024**3
Change = Callable[[dict[str, Any], dict[str, Any]], Any]


@dataclass(frozen=True)
class Case:
    """A fault: its name, the edit of facts and plan that makes it, and what its verdict says.

    `also` names rules that rightly find the same edit.
    """

    name: str
    change: Change
    rule: str
    severity: str
    seen: str
    cure: str
    also: frozenset[str] = field(default_factory=frozenset)


def listener(port: int, **changed: Any) -> dict[str, Any]:
    return {"port": port, "address": "0.0.0.0", "pid": 4711, "command": "nc -l", "own": False, **changed}


def python(version: str | None, path: str = "/usr/bin/python3", asked: bool = False) -> dict[str, Any]:
    return {"path": path, "version": version, "headers": bool(version), "asked": asked}


def gpu_of(facts: dict[str, Any], index: int, **changed: Any) -> None:
    facts["gpu"]["gpus"][index].update(changed)


def every_gpu(facts: dict[str, Any], **changed: Any) -> None:
    for gpu in facts["gpu"]["gpus"]:
        gpu.update(changed)


def link_of(facts: dict[str, Any], index: int, **changed: Any) -> None:
    facts["gpu"]["gpus"][index]["pcie"].update(changed)


def at_work(facts: dict[str, Any], index: int) -> None:
    clocks = facts["gpu"]["gpus"][index]["clocks_mhz"]
    clocks["sm"] = clocks["sm_max"]


def p2p_of(facts: dict[str, Any], way: str, pair: str, word: str) -> None:
    one, other = pair.split("-")
    facts["gpu"]["p2p"][way].update({pair: word, f"{other}-{one}": word})


def redirect(facts: dict[str, Any], index: int) -> None:
    bridge = facts["gpu"]["gpus"][index]["bridges"][0]
    facts["pci_bridges"][bridge] = {
        "acs": {"source_validation": True, "request_redirect": True, "completion_redirect": False},
        "acs_readable": True,
    }


def unreadable_bridges(facts: dict[str, Any]) -> None:
    for address in facts["pci_bridges"]:
        facts["pci_bridges"][address] = {"acs": None, "acs_readable": False}


def bind(plan: dict[str, Any], *nodes: int | None) -> None:
    for server, node in zip(plan["servers"], nodes, strict=True):
        server.update(numa_node=node, numa_pending=False)


def leave_open(plan: dict[str, Any]) -> None:
    for server in plan["servers"]:
        server.update(numa_node=None, numa_pending=True)


def gpus_of(plan: dict[str, Any], place: int, *gpus: int) -> None:
    plan["servers"][place].update(gpus=list(gpus))


def engine(**changed: Any) -> dict[str, Any]:
    found = {"python": "3.12.3", "sglang": "0.5.23", "torch": "2.14.1", "nixl": "1.5.1"}
    return {**found, "cuda_build": "cu130", "ucx_cuda": True, **changed}


def hub(plan: dict[str, Any], **changed: Any) -> None:
    plan["model"].update(source="hub", repo="owner/flash", **changed)


def nic(name: str, **changed: Any) -> dict[str, Any]:
    return {"name": name, "pci": "0000:01:00.0", "numa_node": 0, "driver": "x", "up": True, "rdma": None, **changed}


def absent(path: dict[str, Any]) -> None:
    path.update(exists=False, directory=False)


ON_A_CPU_BOX: tuple[Case, ...] = (
    Case(
        "an old Python",
        lambda f, p: f.update(
            pythons=[{"path": "/usr/bin/python3", "version": "3.9.2", "headers": True, "asked": False}]
        ),
        "python_too_old",
        "veto",
        "3.9.2 at /usr/bin/python3",
        "pd_engine.python",
    ),
    Case(
        "a named Python that is not there, beside a good one",
        lambda f, p: f["pythons"].append({"path": "/opt/python", "version": None, "headers": None, "asked": True}),
        "python_too_old",
        "veto",
        "no Python at /opt/python",
        "pd_engine.python",
    ),
    Case(
        "no Python", lambda f, p: f.update(pythons=[]), "python_too_old", "veto", "no Python", "apt-get install python3"
    ),
    Case(
        "a full disk",
        lambda f, p: f["paths"]["/opt/pdlab"].update(free_bytes=GIB),
        "disk_too_small",
        "veto",
        "1.0 GiB free at /opt",
        "free space",
    ),
    Case(
        "a disk that cannot be asked",
        lambda f, p: f["paths"]["/opt/pdlab"].update(free_bytes=None),
        "disk_too_small",
        "warn",
        "unknown: ",
        "free space",
    ),
    Case(
        "a root that cannot be written",
        lambda f, p: f["paths"]["/opt/pdlab"].update(writable=False),
        "root_not_writable",
        "veto",
        "/opt cannot be written",
        "another pd_root",
    ),
    Case(
        "a read-only root",
        lambda f, p: f["paths"]["/opt/pdlab"].update(read_only=True, writable=False),
        "root_not_writable",
        "veto",
        "read-only",
        "another pd_root",
    ),
    Case(
        "a file where the root should be",
        lambda f, p: f["paths"]["/opt/pdlab"].update(exists=True, directory=False),
        "root_not_writable",
        "veto",
        "is not a directory",
        "another pd_root",
    ),
    Case(
        "too little memory",
        lambda f, p: f["memory"].update(available_bytes=GIB),
        "memory_too_small",
        "veto",
        "1.0 GiB available",
        "ps aux",
    ),
    Case(
        "a small cgroup",
        lambda f, p: f["memory"].update(cgroup_limit_bytes=2 * GIB),
        "memory_too_small",
        "veto",
        "cgroup limit 2.0 GiB",
        "fewer servers",
    ),
    Case(
        "a taken port",
        lambda f, p: f.update(ports=[listener(30000)]),
        "port_taken",
        "veto",
        "30000 (prefill-0) is held by PID 4711 (nc -l)",
        "kill 4711",
    ),
    Case(
        "a taken bootstrap port of another user's",
        lambda f, p: f.update(ports=[listener(8998, pid=None, command="")]),
        "port_taken",
        "veto",
        "8998 (the bootstrap port of prefill-0) is held by a process of another user",
        "choose other ports",
    ),
    Case(
        "a taken Prometheus port",
        lambda f, p: f.update(ports=[listener(29001, address="127.0.0.1")]),
        "port_taken",
        "veto",
        "29001 (the Prometheus port of router)",
        "pd_router",
    ),
    Case(
        "a taken port of the reference",
        lambda f, p: f.update(ports=[listener(30009)]),
        "reference_port_taken",
        "warn",
        "30009 (reference) is held by PID 4711",
        "kill 4711; or do without the comparison: pd_oracle",
    ),
    Case(
        "no numactl",
        lambda f, p: f.update(numactl={"path": None, "nodes": {}}),
        "numactl_absent",
        "warn",
        "not installed",
        "apt-get install numactl",
    ),
    Case(
        "a noexec /tmp",
        lambda f, p: f["paths"]["/tmp"].update(noexec=True),
        "tmp_noexec",
        "warn",
        "noexec",
        "remount,exec",
    ),
    Case(
        "a container's /dev/shm",
        lambda f, p: f["shm"].update(total_bytes=64 << 20),
        "shm_too_small",
        "warn",
        "64 MiB",
        "--ipc=host",
    ),
    Case("an unknown /dev/shm", lambda f, p: f.update(shm=None), "shm_too_small", "warn", "unknown", "--ipc=host"),
    Case(
        "few open files",
        lambda f, p: f["limits"]["process"]["nofile"].update(hard=1024),
        "nofile_too_low",
        "warn",
        "1024 for this session",
        "limits.conf",
    ),
    Case(
        "memlock on a box with RDMA",
        lambda f, p: f.update(infiniband=["mlx5_0"]),
        "memlock_too_low",
        "warn",
        "8388608 for this session",
        "ulimit -l unlimited",
    ),
    Case(
        "swap",
        lambda f, p: f["memory"].update(swap_total_bytes=GIB),
        "swap_on",
        "info",
        "1.0 GiB of swap",
        "swapoff -a",
    ),
    Case(
        "an ordinary user", lambda f, p: f.update(root=False), "not_root", "info", "an ordinary user", "ansible_become"
    ),
    Case(
        "GPUs that a rehearsal leaves alone",
        lambda f, p: f["gpu"].update(pci_devices=["0000:01:00.0", "0000:02:00.0"]),
        "gpus_unused",
        "info",
        "2 GPUs",
        "have an inventory written for the GPUs: pdlab init -o FOLDER, then: pdlab up -i FOLDER",
    ),
)


MODEL = "/srv/models/DeepSeek-V4-Flash-NVFP4"
ON_THE_REFERENCE_BOX: tuple[Case, ...] = (
    # --- what was tried
    Case(
        "KV memory that takes a detour",
        lambda f, p: f["probes"].update(kv={"ok": False, "why": "UCX uses 'software emulation tcp/lo'"}),
        "kv_path_indirect",
        "veto",
        "software emulation tcp/lo",
        "take UCX_TLS out of pd_server_env",
    ),
    Case(
        "a path that was not tried",
        lambda f, p: f["probes"].pop("kv"),
        "kv_path_indirect",
        "info",
        "unknown: not tried in this run",
        "pdlab deploy",
    ),
    Case(
        "KV memory that moves at a third of the link's speed",
        lambda f, p: f["probes"]["kv"].update(gib_s=19.5),
        "kv_slower_than_link",
        "warn",
        "19.5 GiB/s, 33% of the PCIe link's 58.7 GiB/s",
        "nvidia-smi topo -m",
    ),
    Case(
        "an all-reduce that hangs",
        lambda f, p: f["probes"].update(collectives={"ok": False, "why": "all-reduce among 2 ranks: it hangs"}),
        "collectives_hang",
        "veto",
        "all-reduce among 2 ranks: it hangs",
        "NCCL_P2P_DISABLE=1",
    ),
    Case(
        "collectives that were not tried",
        lambda f, p: f.pop("probes"),
        "collectives_hang",
        "info",
        "unknown: not tried in this run",
        "pdlab deploy",
        also=frozenset({"kv_path_indirect"}),
    ),
    # --- engine
    Case(
        "an old driver",
        lambda f, p: f["gpu"].update(driver="570.86.10", cuda_version="12.8"),
        "driver_too_old",
        "veto",
        "driver 570.86.10, which offers CUDA 12.8",
        "apt-get install nvidia-driver-580",
    ),
    Case(
        "a driver that nvidia-smi does not name",
        lambda f, p: f["gpu"].update(driver=None, cuda_version=None),
        "driver_too_old",
        "warn",
        "unknown",
        "nvidia-driver-580",
    ),
    Case(
        "a lock of one's own",
        lambda f, p: p["hosts"]["gpubox"].update(engine_lock="/srv/my-lock.txt"),
        "driver_too_old",
        "warn",
        "unknown: the engine's lock does not say",
        "nvidia-driver-580",
        frozenset({"gpu_too_old"}),
    ),
    Case(
        "a GPU of the year 2017",
        lambda f, p: gpu_of(f, 5, name="Tesla V100", compute_capability="7.0"),
        "gpu_too_old",
        "veto",
        "GPU 5: Tesla V100, compute capability 7.0",
        "nvidia-smi --query-gpu",
        frozenset({"gpus_differ"}),
    ),
    Case(
        "a capability that is not said",
        lambda f, p: gpu_of(f, 5, compute_capability=None),
        "gpu_too_old",
        "warn",
        "unknown",
        "nvidia-smi --query-gpu",
    ),
    Case(
        "a UCX without CUDA",
        lambda f, p: f.update(engine=engine(ucx_cuda=False)),
        "ucx_without_cuda",
        "veto",
        "has no CUDA module",
        "pdlab rebuild",
    ),
    Case(
        "a UCX that cannot be found",
        lambda f, p: f.update(engine=engine(ucx_cuda=None)),
        "ucx_without_cuda",
        "warn",
        "unknown",
        "pdlab rebuild",
    ),
    Case("no compiler", lambda f, p: f["tools"].update(gcc=None), "compiler_absent", "warn", "not installed", "gcc"),
    Case(
        "no Python headers",
        lambda f, p: [found.update(headers=False) for found in f["pythons"]],
        "python_headers_absent",
        "warn",
        "missing for",
        "python3-dev",
    ),
    # --- model and disk
    Case(
        "no checkpoint",
        lambda f, p: absent(f["paths"][MODEL]),
        "model_absent",
        "veto",
        f"{MODEL} does not exist",
        "pd_model.path",
    ),
    Case(
        "a missing shard",
        lambda f, p: f["checkpoint"].update(faults=["model-2.safetensors is missing"]),
        "checkpoint_incomplete",
        "veto",
        "model-2.safetensors is missing",
        "fetch the missing files",
    ),
    Case(
        "a checkpoint that was not looked at",
        lambda f, p: f.update(checkpoint=None),
        "checkpoint_incomplete",
        "warn",
        "unknown",
        "fetch the missing files",
    ),
    Case(
        "a model to be fetched, of unknown size",
        lambda f, p: (absent(f["paths"][MODEL]), hub(p)),
        "model_size_unknown",
        "info",
        "unknown: the inventory does not say how large owner/flash is",
        "pd_model.size_gib",
    ),
    Case(
        "no room for the model that is to be fetched",
        lambda f, p: (absent(f["paths"][MODEL]), hub(p, size_gib=90000)),
        "disk_too_small",
        "veto",
        "free at",
        "pd_root",
    ),
    # --- GPUs
    Case(
        "no driver",
        lambda f, p: f["gpu"].update(gpus=None, error="nvidia-smi is not installed"),
        "gpu_absent",
        "veto",
        "8 NVIDIA devices on the PCI bus, nvidia-smi is not installed",
        "NVIDIA driver",
    ),
    Case(
        "fewer GPUs than declared",
        lambda f, p: f["gpu"]["gpus"].pop(),
        "gpus_fewer_than_declared",
        "veto",
        "no GPU 7; this box has GPUs 0-6",
        "correct gpus",
    ),
    Case(
        "a GPU in use",
        lambda f, p: gpu_of(
            f, 1, memory_used_mib=4623, processes=[{"pid": 490, "command": "python3", "memory_mib": 4614, "own": False}]
        ),
        "gpu_busy",
        "veto",
        "GPU 1: 4623 MiB used by PID 490 (python3)",
        "kill 490",
    ),
    Case(
        "a GPU in use by an unseen process",
        lambda f, p: gpu_of(f, 0, memory_used_mib=9000),
        "gpu_busy",
        "veto",
        "a process that cannot be seen",
        "stop what runs there",
    ),
    Case(
        "processes that nvidia-smi does not list",
        lambda f, p: every_gpu(f, processes=None),
        "gpu_busy",
        "warn",
        "unknown",
        "choose other gpus",
    ),
    Case(
        "a GPU in pieces", lambda f, p: gpu_of(f, 3, mig=True), "mig_on", "veto", "GPU 3: MIG", "nvidia-smi -i 3 -mig 0"
    ),
    Case("boards without MIG", lambda f, p: every_gpu(f, mig=None), "mig_on", "info", "unknown", "nvidia-smi -q"),
    Case(
        "a forbidden GPU",
        lambda f, p: gpu_of(f, 6, compute_mode="Prohibited"),
        "compute_mode_prohibited",
        "veto",
        "GPU 6: Prohibited",
        "nvidia-smi -c DEFAULT",
    ),
    Case(
        "a GPU for one process",
        lambda f, p: gpu_of(f, 6, compute_mode="Exclusive_Process"),
        "compute_mode_exclusive",
        "warn",
        "GPU 6: Exclusive_Process",
        "nvidia-smi -c DEFAULT",
    ),
    Case("MPS", lambda f, p: f["gpu"].update(mps=True), "mps_running", "warn", "it runs", "nvidia-cuda-mps-control"),
    Case("MPS that cannot be seen", lambda f, p: f["gpu"].update(mps=None), "mps_running", "warn", "unknown", "quit"),
    Case(
        "two kinds of GPU",
        lambda f, p: gpu_of(f, 2, name="NVIDIA L40S", memory_total_mib=46068),
        "gpus_differ",
        "warn",
        "GPU 2 NVIDIA L40S with 46068 MiB",
        "nvidia-smi -L",
    ),
    Case(
        "a hot GPU",
        lambda f, p: gpu_of(f, 4, throttle_reasons=["hw_slowdown", "hw_thermal_slowdown"], temperature_c=94),
        "gpu_throttled",
        "warn",
        "GPU 4: hw_slowdown, hw_thermal_slowdown at 94 °C",
        "nvidia-smi -q -d PERFORMANCE",
    ),
    Case(
        "clocks without a reason",
        lambda f, p: every_gpu(f, throttle_reasons=None),
        "gpu_throttled",
        "info",
        "unknown",
        "PERFORMANCE",
    ),
    Case(
        "no persistence",
        lambda f, p: every_gpu(f, persistence=False),
        "persistence_off",
        "warn",
        "GPUs 0-7: off",
        "nvidia-smi -pm 1",
    ),
    Case(
        "a power limit",
        lambda f, p: gpu_of(f, 0, power_limit_w=300.0, power_default_w=600.0),
        "power_capped",
        "info",
        "GPU 0: 300 of 600 W",
        "nvidia-smi -i 0 -pl 600",
    ),
    Case("no ECC", lambda f, p: every_gpu(f, ecc=False), "ecc_off", "info", "GPUs 0-7: off", "-e 1"),
    # --- links
    Case(
        "half the lanes",
        lambda f, p: link_of(f, 2, width=8),
        "link_width_low",
        "warn",
        "GPU 2: x8 of x16",
        "nvidia-smi -q -d PCIE",
    ),
    Case("an unknown width", lambda f, p: link_of(f, 2, width=None), "link_width_low", "warn", "unknown", "PCIE"),
    Case(
        "a low generation at work",
        lambda f, p: (at_work(f, 5), link_of(f, 5, generation=4, generation_max=5)),
        "link_generation_low",
        "warn",
        "GPU 5: generation 4 of 5, at work",
        "nvidia-smi -q -d PCIE",
    ),
    Case(
        "P2P refused in a server",
        lambda f, p: p2p_of(f, "read", "0-1", "CNS"),
        "p2p_refused",
        "veto",
        "CNS between GPUs 0 and 1",
        "NCCL_P2P_DISABLE",
    ),
    Case(
        "P2P that is not said",
        lambda f, p: f["gpu"].update(p2p=None),
        "p2p_refused",
        "warn",
        "unknown",
        "nvidia-smi topo -p2p r",
        frozenset({"kv_p2p_refused"}),
    ),
    Case(
        "P2P refused on the KV path",
        lambda f, p: p2p_of(f, "write", "3-4", "TNS"),
        "kv_p2p_refused",
        "veto",
        "TNS between GPUs 3 and 4",
        "UCX_TLS",
    ),
    Case(
        "ACS on a root port",
        lambda f, p: redirect(f, 1),
        "acs_redirects_p2p",
        "warn",
        "SrcValid, ReqRedir on ",
        "setpci -s $bridge ECAP_ACS+6.w=0000",
    ),
    Case(
        "ACS that this user cannot read",
        lambda f, p: unreadable_bridges(f),
        "acs_redirects_p2p",
        "warn",
        "unknown",
        "lspci -vvv",
    ),
    Case(
        "an IOMMU that translates",
        lambda f, p: f["iommu"].update(enabled=True, mode="translated"),
        "iommu_translates",
        "veto",
        "the IOMMU translates",
        "iommu=pt",
    ),
    Case(
        "an IOMMU of which nothing is known",
        lambda f, p: f.update(iommu={"enabled": None, "mode": None, "groups": 0}),
        "iommu_translates",
        "warn",
        "unknown",
        "iommu=pt",
    ),
    Case(
        "a guest's IOMMU",
        lambda f, p: (f["iommu"].update(enabled=True, mode="translated"), f["cpu"]["flags"].update(hypervisor=True)),
        "iommu_translates",
        "warn",
        "unknown: the guest's IOMMU translates",
        "iommu=pt",
    ),
    Case(
        "a small BAR1",
        lambda f, p: gpu_of(f, 0, bar1_total_mib=256),
        "bar1_small",
        "info",
        "GPU 0: BAR1 256 of",
        "Resizable BAR",
    ),
    # --- NUMA
    Case(
        "a NUMA node that is not there",
        lambda f, p: bind(p, 0, 3),
        "numa_node_absent",
        "veto",
        "no node 3; this box has node 0, 1",
        "numactl --hardware",
        frozenset({"gpu_at_another_node", "numa_node_memory_small"}),
    ),
    Case(
        "a server bound away from its GPUs",
        lambda f, p: bind(p, 1, 1),
        "gpu_at_another_node",
        "veto",
        "prefill-0 is bound to node 1, GPUs 0-3 at node 0",
        "nvidia-smi topo -m",
    ),
    Case(
        "a server across nodes, not said",
        lambda f, p: (leave_open(p), gpus_of(p, 0, 0, 1), gpus_of(p, 1, 2, 3, 4, 5)),
        "gpus_across_numa_nodes",
        "veto",
        "decode-0: GPUs 2-3 at node 0, GPUs 4-5 at node 1",
        "numa_node: unbound",
    ),
    Case(
        "a server across nodes, on purpose",
        lambda f, p: (bind(p, None, None), gpus_of(p, 0, 0, 1), gpus_of(p, 1, 2, 3, 4, 5)),
        "gpus_across_numa_nodes",
        "warn",
        "decode-0: GPUs 2-3 at node 0, GPUs 4-5 at node 1",
        "nvidia-smi topo -m",
    ),
    Case(
        "a GPU without a node, not said",
        lambda f, p: (leave_open(p), gpu_of(f, 0, numa_node=-1)),
        "gpu_without_numa_node",
        "veto",
        "GPU 0: NUMA node -1",
        "numa_node in pd_servers",
    ),
    Case(
        "a GPU without a node, on purpose",
        lambda f, p: (bind(p, None, None), gpu_of(f, 0, numa_node=-1)),
        "gpu_without_numa_node",
        "warn",
        "GPU 0: NUMA node -1",
        "numactl --hardware",
    ),
    Case(
        "a GPU of which no node is known",
        lambda f, p: (bind(p, None, None), gpu_of(f, 0, numa_node=None)),
        "gpu_without_numa_node",
        "warn",
        "unknown",
        "numactl --hardware",
    ),
    Case(
        "a machine with one node",
        lambda f, p: (bind(p, None, None), f["numa"].pop(), every_gpu(f, numa_node=-1)),
        "gpu_without_numa_node",
        "info",
        "GPUs 0-7: NUMA node -1",
        "numactl --hardware",
    ),
    Case(
        "numactl missing for an ordinary user",
        lambda f, p: (bind(p, 0, 1), f.update(numactl={"path": None, "nodes": {}}, root=False)),
        "numactl_absent",
        "veto",
        "not installed",
        "apt-get install numactl",
        frozenset({"not_root"}),
    ),
    Case(
        "numactl refused",
        lambda f, p: (
            bind(p, 0, 1),
            f["numactl"]["nodes"].update({"0": {"ok": False, "said": "set_mempolicy: Operation not permitted"}}),
        ),
        "numactl_refused",
        "veto",
        "node 0: set_mempolicy: Operation not permitted",
        "SYS_NICE",
    ),
    Case(
        "a numactl that did not answer",
        lambda f, p: (bind(p, 0, 1), f["numactl"]["nodes"].update({"0": {"ok": None, "said": "no answer in 10 s"}})),
        "numactl_refused",
        "warn",
        "unknown: node 0: no answer",
        "SYS_NICE",
    ),
    Case(
        "numactl refused where SGLang would bind",
        lambda f, p: (
            bind(p, None, None),
            f["numactl"]["nodes"].update({"0": {"ok": False, "said": "set_mempolicy: Operation not permitted"}}),
        ),
        "numactl_refused",
        "warn",
        "node 0: set_mempolicy",
        "SYS_NICE",
    ),
    Case(
        "a noexec /tmp",
        lambda f, p: f["paths"]["/tmp"].update(noexec=True),
        "tmp_noexec",
        "veto",
        "noexec",
        "remount,exec",
    ),
    Case(
        "NUMA balancing",
        lambda f, p: f["memory"].update(numa_balancing=True),
        "numa_balancing_on",
        "warn",
        "on",
        "sysctl -w kernel.numa_balancing=0",
    ),
    # --- memory and limits
    Case(
        "a node with little memory",
        lambda f, p: (bind(p, 0, 1), f["numa"][1].update(memory_total_bytes=4 * GIB)),
        "numa_node_memory_small",
        "warn",
        "node 1 has 4.0 GiB",
        "numactl --hardware",
    ),
    Case(
        "a small memlock of a session",
        lambda f, p: (
            f.update(init="tini", container="docker"),
            f["limits"]["process"]["memlock_bytes"].update(hard=65536),
        ),
        "memlock_too_low",
        "warn",
        "65536 for this session, under which supervisor runs the servers",
        "ulimit -l unlimited",
    ),
    Case(
        "a small memlock of a container with systemd",
        lambda f, p: (
            f.update(container="systemd-nspawn"),
            f["limits"].update(services={"memlock_bytes": 8388608, "nofile": 524288}),
            f["limits"]["process"]["memlock_bytes"].update(hard=65536),
        ),
        "memlock_too_low",
        "warn",
        "8388608 for a unit in this systemd-nspawn container",
        "--ulimit memlock=-1",
    ),
    Case(
        "huge pages for everybody",
        lambda f, p: f["memory"].update(thp="always"),
        "huge_pages_always",
        "info",
        "always",
        "transparent_hugepage/enabled",
    ),
    # --- ports and host
    Case(
        "an NCCL port at random",
        lambda f, p: p["servers"][1].update(nccl_port=None),
        "port_in_sglang_range",
        "warn",
        "29001 (the Prometheus port of router) inside, and decode-0 takes one",
        "nccl_port",
    ),
    Case(
        "a wide ephemeral range",
        lambda f, p: f.update(ephemeral_ports=[10000, 65535], reserved_ports=[30000]),
        "port_in_ephemeral_range",
        "warn",
        "21000 (the NCCL port of prefill-0), 21001",
        "sysctl -w net.ipv4.ip_local_reserved_ports=21000,21001,21009,29001,30000,30001,30009",
    ),
    Case(
        "an unknown ephemeral range",
        lambda f, p: f.update(ephemeral_ports=None),
        "port_in_ephemeral_range",
        "warn",
        "unknown",
        "ip_local_reserved_ports",
    ),
    Case(
        "a governor that saves power",
        lambda f, p: f["cpu"].update(governor={"powersave": 126, "performance": 2}),
        "governor_saves_power",
        "warn",
        "2 CPUs performance, 126 CPUs powersave",
        "cpupower frequency-set",
    ),
    Case(
        "no governor",
        lambda f, p: f["cpu"].update(governor=None),
        "governor_saves_power",
        "info",
        "unknown",
        "cpupower",
    ),
)


# On one of two hosts.
IN_A_FLEET: tuple[Case, ...] = (
    Case(
        "a host name on loopback",
        lambda f, p: f.update(hostname={"name": "box1", "addresses": ["127.0.1.1"]}),
        "hostname_is_loopback",
        "warn",
        "box1 resolves to 127.0.1.1",
        "/etc/hosts",
    ),
    Case(
        "a host name that nobody knows",
        lambda f, p: f["hostname"].update(addresses=None),
        "hostname_is_loopback",
        "warn",
        "unknown: ",
        "/etc/hosts",
    ),
    Case(
        "a clock of its own",
        lambda f, p: f.update(clock_synchronised=False),
        "clock_not_synchronised",
        "info",
        "not synchronised",
        "timedatectl set-ntp true",
    ),
    Case(
        "two networks and no choice",
        lambda f, p: f.update(nics=[nic("eno1"), nic("ens2f0np0", rdma="mlx5_0")]),
        "network_device_not_chosen",
        "warn",
        "eno1, mlx5_0 are up",
        "UCX_NET_DEVICES",
    ),
    Case(
        "networks that cannot be listed",
        lambda f, p: f.update(nics=None),
        "network_device_not_chosen",
        "warn",
        "unknown",
        "ip -br addr",
    ),
)
EVERY_CASE = (*ON_A_CPU_BOX, *ON_THE_REFERENCE_BOX, *IN_A_FLEET)
