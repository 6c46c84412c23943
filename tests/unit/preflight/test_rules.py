# SPDX-License-Identifier: Apache-2.0
"""Every rule sees its fault on a recorded box, and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules as rules

from .conftest import plan_of

Change = Callable[[dict[str, Any]], Any]
GIB = 1024**3


def listener(port: int, **changed: Any) -> dict[str, Any]:
    return {"port": port, "address": "0.0.0.0", "pid": 4711, "command": "nc -l", "own": False, **changed}


def test_a_recorded_cpu_box_is_fit_for_the_rehearsal(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    assert judge(cpu_facts, cpu_plan) == {}


def test_a_recorded_gpu_box_is_fit_for_prefill_and_decode(gpu_facts: Any, gpu_plan: Any, judge: Any) -> None:
    assert judge(gpu_facts, gpu_plan) == {}


# (what is wrong, how, the rule, its severity, words of what was seen, words of the cure)
ON_A_CPU_BOX: list[tuple[str, Change, str, str, str, str]] = [
    (
        "an old Python",
        lambda f: f.update(pythons=[{"path": "/usr/bin/python3", "version": "3.9.2", "headers": True, "asked": False}]),
        "python_too_old",
        "veto",
        "3.9.2 at /usr/bin/python3",
        "pd_engine.python",
    ),
    (
        "a named Python that is not there, beside a good one",
        lambda f: f["pythons"].append({"path": "/opt/python", "version": None, "headers": None, "asked": True}),
        "python_too_old",
        "veto",
        "no Python at /opt/python",
        "pd_engine.python",
    ),
    ("no Python", lambda f: f.update(pythons=[]), "python_too_old", "veto", "no Python", "apt-get install python3"),
    (
        "a full disk",
        lambda f: f["paths"]["/opt/pdlab"].update(free_bytes=GIB),
        "disk_too_small",
        "veto",
        "1.0 GiB free at /opt",
        "free space",
    ),
    (
        "a disk that cannot be asked",
        lambda f: f["paths"]["/opt/pdlab"].update(free_bytes=None),
        "disk_too_small",
        "warn",
        "unknown: ",
        "free space",
    ),
    (
        "a root that cannot be written",
        lambda f: f["paths"]["/opt/pdlab"].update(writable=False),
        "root_not_writable",
        "veto",
        "/opt cannot be written",
        "another pd_root",
    ),
    (
        "a read-only root",
        lambda f: f["paths"]["/opt/pdlab"].update(read_only=True, writable=False),
        "root_not_writable",
        "veto",
        "read-only",
        "another pd_root",
    ),
    (
        "a file where the root should be",
        lambda f: f["paths"]["/opt/pdlab"].update(exists=True, directory=False),
        "root_not_writable",
        "veto",
        "is not a directory",
        "another pd_root",
    ),
    (
        "too little memory",
        lambda f: f["memory"].update(available_bytes=GIB),
        "memory_too_small",
        "veto",
        "1.0 GiB available",
        "ps aux",
    ),
    (
        "a small cgroup",
        lambda f: f["memory"].update(cgroup_limit_bytes=2 * GIB),
        "memory_too_small",
        "veto",
        "cgroup limit 2.0 GiB",
        "fewer servers",
    ),
    (
        "a taken port",
        lambda f: f.update(ports=[listener(30000)]),
        "port_taken",
        "veto",
        "30000 (prefill-0) is held by PID 4711 (nc -l)",
        "kill 4711",
    ),
    (
        "a taken bootstrap port of another user's",
        lambda f: f.update(ports=[listener(8998, pid=None, command="")]),
        "port_taken",
        "veto",
        "8998 (the bootstrap port of prefill-0) is held by a process of another user",
        "choose other ports",
    ),
    (
        "a taken Prometheus port",
        lambda f: f.update(ports=[listener(29001, address="127.0.0.1")]),
        "port_taken",
        "veto",
        "29001 (the Prometheus port of router)",
        "pd_router",
    ),
    (
        "no numactl",
        lambda f: f.update(numactl={"path": None, "nodes": {}}),
        "numactl_absent",
        "warn",
        "not installed",
        "apt-get install numactl",
    ),
    ("a noexec /tmp", lambda f: f["paths"]["/tmp"].update(noexec=True), "tmp_noexec", "warn", "noexec", "remount,exec"),
    (
        "a container's /dev/shm",
        lambda f: f["shm"].update(total_bytes=64 << 20),
        "shm_too_small",
        "warn",
        "64 MiB",
        "--ipc=host",
    ),
    ("an unknown /dev/shm", lambda f: f.update(shm=None), "shm_too_small", "warn", "unknown", "--ipc=host"),
    (
        "few open files",
        lambda f: f["limits"]["process"]["nofile"].update(hard=1024),
        "nofile_too_low",
        "warn",
        "1024 for this session",
        "limits.conf",
    ),
    (
        "memlock on a box with RDMA",
        lambda f: f.update(infiniband=["mlx5_0"]),
        "memlock_too_low",
        "warn",
        "8388608 for this session",
        "ulimit -l unlimited",
    ),
    ("swap", lambda f: f["memory"].update(swap_total_bytes=GIB), "swap_on", "info", "1.0 GiB of swap", "swapoff -a"),
    ("an ordinary user", lambda f: f.update(root=False), "not_root", "info", "an ordinary user", "ansible_become"),
    (
        "GPUs that a rehearsal leaves alone",
        lambda f: f["gpu"].update(pci_devices=["0000:01:00.0", "0000:02:00.0"]),
        "gpus_unused",
        "info",
        "2 GPUs",
        "describe the GPUs in an inventory (docs/inventory.md), then: pdlab up -i INVENTORY",
    ),
]
ON_A_GPU_BOX: list[tuple[str, Change, str, str, str, str]] = [
    (
        "no driver",
        lambda f: f["gpu"].update(gpus=None, error="nvidia-smi is not installed"),
        "gpu_absent",
        "veto",
        "1 NVIDIA devices on the PCI bus, nvidia-smi is not installed",
        "NVIDIA driver",
    ),
    (
        "fewer GPUs than declared",
        lambda f: f["gpu"]["gpus"].pop(),
        "gpus_fewer_than_declared",
        "veto",
        "no GPU 1; this box has GPUs 0",
        "correct gpus",
    ),
    (
        "a GPU in use",
        lambda f: f["gpu"]["gpus"][1].update(
            memory_used_mib=4623, processes=[{"pid": 490, "command": "python3", "memory_mib": 4614, "own": False}]
        ),
        "gpu_busy",
        "veto",
        "GPU 1: 4623 MiB used by PID 490 (python3)",
        "kill 490",
    ),
    (
        "a GPU in use by an unseen process",
        lambda f: f["gpu"]["gpus"][0].update(memory_used_mib=9000),
        "gpu_busy",
        "veto",
        "a process that cannot be seen",
        "stop what runs there",
    ),
    (
        "processes that nvidia-smi does not list",
        lambda f: [gpu.update(processes=None) for gpu in f["gpu"]["gpus"]],
        "gpu_busy",
        "warn",
        "unknown",
        "choose other gpus",
    ),
    ("no compiler", lambda f: f["tools"].update(gcc=None), "compiler_absent", "warn", "not installed", "gcc"),
    (
        "no Python headers",
        lambda f: f["pythons"][0].update(headers=False),
        "python_headers_absent",
        "warn",
        "missing for /usr/bin/python3",
        "python3-dev",
    ),
    (
        "a NUMA node that is not there",
        lambda f: f["numa"][0].update(node=3),
        "numa_node_absent",
        "veto",
        "no node 0; this box has node 3",
        "numactl --hardware",
    ),
    (
        "numactl refused",
        lambda f: f["numactl"]["nodes"].update({"0": {"ok": False, "said": "set_mempolicy: Operation not permitted"}}),
        "numactl_refused",
        "veto",
        "node 0: set_mempolicy: Operation not permitted",
        "SYS_NICE",
    ),
    (
        "a numactl that did not answer",
        lambda f: f["numactl"]["nodes"].update({"0": {"ok": None, "said": "no answer in 10 s"}}),
        "numactl_refused",
        "warn",
        "unknown: node 0: no answer",
        "SYS_NICE",
    ),
    (
        "a small memlock",
        lambda f: f["limits"]["process"]["memlock_bytes"].update(hard=65536),
        "memlock_too_low",
        "warn",
        "65536 for this session",
        "ulimit -l unlimited",
    ),
    (
        "a small memlock of services",
        lambda f: f["limits"].update(services={"memlock_bytes": 65536, "nofile": "unlimited"}),
        "memlock_too_low",
        "warn",
        "65536 for a systemd service",
        "pdlab's units ask for more",
    ),
    (
        "no checkpoint",
        lambda f: f["paths"]["/srv/models/flash"].update(exists=False),
        "model_absent",
        "veto",
        "/srv/models/flash does not exist",
        "pd_model.path",
    ),
    (
        "a missing shard",
        lambda f: f["checkpoint"].update(faults=["model-2.safetensors is missing (the index names it)"]),
        "checkpoint_incomplete",
        "veto",
        "model-2.safetensors is missing",
        "fetch the missing files",
    ),
]


def case(row: tuple[Any, ...]) -> Any:
    return pytest.param(*row[1:], id=row[0])


def check(found: Any, id: str, severity: str, seen: str, cure: str) -> None:
    assert list(found) == [id]
    verdict = found[id]
    assert (verdict["severity"], verdict["ok"]) == (severity, False)
    assert seen in verdict["seen"]
    assert cure in verdict["cure"]
    assert verdict["why"].endswith(".")


@pytest.mark.parametrize(("change", "id", "severity", "seen", "cure"), [case(row) for row in ON_A_CPU_BOX])
def test_is_seen_on_a_cpu_box(
    cpu_facts: Any, cpu_plan: Any, judge: Any, change: Change, id: str, severity: str, seen: str, cure: str
) -> None:
    change(cpu_facts)
    check(judge(cpu_facts, cpu_plan), id, severity, seen, cure)


@pytest.mark.parametrize(("change", "id", "severity", "seen", "cure"), [case(row) for row in ON_A_GPU_BOX])
def test_is_seen_on_a_gpu_box(
    gpu_facts: Any, gpu_plan: Any, judge: Any, change: Change, id: str, severity: str, seen: str, cure: str
) -> None:
    change(gpu_facts)
    check(judge(gpu_facts, gpu_plan), id, severity, seen, cure)


def test_every_rule_of_the_table_is_seen_by_a_test() -> None:
    fleet_only = {"hostname_is_loopback", "clock_not_synchronised"}
    assert {rule.id for rule in rules.RULES} == {row[2] for row in ON_A_CPU_BOX + ON_A_GPU_BOX} | fleet_only


def test_a_port_of_pdlabs_own_service_is_fine(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    cpu_facts["ports"] = [listener(30000, own=True), listener(8998, own=True, address="127.0.0.1")]
    assert judge(cpu_facts, cpu_plan) == {}
    assert (
        judge(cpu_facts, cpu_plan, every=True)["port_taken"]["seen"] == "5 ports free, 2 held by pdlab's own services"
    )


def test_a_listener_on_another_address_does_not_take_a_port(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    cpu_facts["ports"] = [listener(30000, address="192.0.2.7")]
    assert judge(cpu_facts, cpu_plan) == {}


def test_memory_that_pdlabs_own_services_hold_counts_as_available(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    cpu_facts["memory"] |= {"available_bytes": GIB, "own_bytes": 5 * GIB}
    assert judge(cpu_facts, cpu_plan) == {}


def test_an_engine_that_is_there_needs_no_room_for_another(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    cpu_facts["paths"]["/opt/pdlab"]["free_bytes"] = 2 * GIB
    assert list(judge(cpu_facts, cpu_plan)) == ["disk_too_small"]
    cpu_facts["paths"]["/opt/pdlab/engine/bin/python"]["exists"] = True
    assert judge(cpu_facts, cpu_plan) == {}


def test_a_gpu_that_runs_pdlabs_own_server_is_not_busy(gpu_facts: Any, gpu_plan: Any, judge: Any) -> None:
    own = {"pid": 9, "command": "sglang::scheduler", "memory_mib": 120000, "own": True}
    gpu_facts["gpu"]["gpus"][0] |= {"memory_used_mib": 120000, "processes": [own]}
    assert judge(gpu_facts, gpu_plan) == {}


def test_numactl_is_a_veto_only_where_a_node_is_asked_for_and_nobody_can_install_it(
    gpu_facts: Any, gpu_plan: Any, judge: Any
) -> None:
    gpu_facts["numactl"] = {"path": None, "nodes": {}}
    assert judge(gpu_facts, gpu_plan)["numactl_absent"]["severity"] == "warn"
    gpu_facts["root"] = False
    assert judge(gpu_facts, gpu_plan)["numactl_absent"]["severity"] == "veto"


def test_noexec_tmp_forbids_gpus_on_two_numa_nodes(gpu_facts: Any, gpu_plan: Any, judge: Any) -> None:
    gpu_facts["paths"]["/tmp"]["noexec"] = True
    assert judge(gpu_facts, gpu_plan)["tmp_noexec"]["severity"] == "warn"
    gpu_facts["numa"].append({**gpu_facts["numa"][0], "node": 1})
    assert judge(gpu_facts, gpu_plan)["tmp_noexec"]["severity"] == "veto"


def test_a_host_name_on_loopback_matters_in_a_fleet_only(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    cpu_facts["hostname"] = {"name": "box1", "addresses": ["127.0.1.1"]}
    assert judge(cpu_facts, cpu_plan) == {}
    fleet = plan_of(
        {
            "pd_device": "cpu",
            "pd_model": {"source": "canary"},
            "pd_servers": [
                {"name": "prefill-0", "role": "prefill", "host": "box1"},
                {"name": "decode-0", "role": "decode", "host": "box2"},
            ],
            "pd_router": {},
        },
        "box1",
        "box2",
    )
    found = judge(cpu_facts, fleet)
    assert "box1 resolves to 127.0.1.1" in found["hostname_is_loopback"]["seen"]
    assert found["clock_not_synchronised"]["severity"] == "info"
    cpu_facts["hostname"]["addresses"] = None
    assert judge(cpu_facts, fleet)["hostname_is_loopback"]["seen"].startswith("unknown: ")


def test_a_host_that_runs_nothing_is_judged_by_what_concerns_it(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    cpu_plan["hosts"]["spare"] = cpu_plan["hosts"]["box1"]
    found = judge(cpu_facts, cpu_plan, every=True, host="spare")
    assert "python_too_old" in found
    assert not {"port_taken", "memory_too_small", "shm_too_small"} & set(found)


def test_the_ports_and_paths_that_are_asked_for_are_those_of_the_plan(gpu_plan: Any) -> None:
    assert rules.wanted_ports(gpu_plan, "box1") == {
        30000: "prefill-0",
        8998: "the bootstrap port of prefill-0",
        21000: "the NCCL port of prefill-0",
        30001: "decode-0",
        21001: "the NCCL port of decode-0",
        8000: "router",
        29001: "the Prometheus port of router",
    }
    assert rules.wanted_paths(gpu_plan, "box1") == ["/opt/pdlab", "/opt/pdlab/engine/bin/python", "/srv/models/flash"]


def test_a_verdict_that_is_well_has_no_cure(cpu_facts: Any, cpu_plan: Any, judge: Any) -> None:
    verdicts = judge(cpu_facts, cpu_plan, every=True)
    assert {verdict["cure"] for verdict in verdicts.values()} == {None}
    assert set(verdicts["python_too_old"]) == {"id", "severity", "ok", "seen", "wanted", "why", "cure"}
