# SPDX-License-Identifier: Apache-2.0
"""Every rule sees its fault on a recorded box, says what to do, and is content with a sound one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_rule_table
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules as rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules import public_cases
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.links import turning_bridges
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import View, ranges
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import HOST, KNOWN

from .cases import (
    EVERY_CASE,
    GIB,
    IN_A_FLEET,
    ON_A_CPU_BOX,
    ON_THE_REFERENCE_BOX,
    Case,
    at_work,
    bind,
    engine,
    every_gpu,
    link_of,
    listener,
    p2p_of,
    redirect,
)
from .conftest import CHECKOUT

Judge = Callable[..., dict[str, dict[str, Any]]]
# An idle GPU's link generation proves nothing, which is said of every idle box.
ALWAYS_SAID = {"link_generation_low"}
# What a cure is made of: a command that one can type, or a variable of the inventory.
COMMANDS = [
    "apt-get",
    "cpupower",
    "docker",
    "du",
    "echo",
    "hf",
    "ip",
    "kill",
    "lspci",
    "mount",
    "numactl",
    "nvidia-smi",
    "pdlab",
    "ps",
    "sed",
    "setpci",
    "swapoff",
    "sysctl",
    "timedatectl",
    "ulimit",
]


def named(case: Case) -> str:
    return case.name


def check(found: dict[str, dict[str, Any]], case: Case) -> None:
    assert set(found) - ALWAYS_SAID | {case.rule} & set(found) == {case.rule, *case.also}
    verdict = found[case.rule]
    assert (verdict["severity"], verdict["ok"]) == (case.severity, False)
    assert case.seen in verdict["seen"]
    assert case.cure in verdict["cure"]


@pytest.mark.parametrize("case", ON_A_CPU_BOX, ids=named)
def test_is_seen_on_a_cpu_box(cpu_facts: Any, cpu_plan: Any, judge: Judge, case: Case) -> None:
    case.change(cpu_facts, cpu_plan)
    check(judge(cpu_facts, cpu_plan), case)


@pytest.mark.parametrize("case", ON_THE_REFERENCE_BOX, ids=named)
def test_is_seen_on_the_reference_box(reference_facts: Any, reference_plan: Any, judge: Judge, case: Case) -> None:
    case.change(reference_facts, reference_plan)
    check(judge(reference_facts, reference_plan), case)


@pytest.mark.parametrize("case", IN_A_FLEET, ids=named)
def test_is_seen_in_a_fleet(cpu_facts: Any, fleet_plan: Any, judge: Judge, case: Case) -> None:
    sound_in_a_fleet(cpu_facts)
    case.change(cpu_facts, fleet_plan)
    check(judge(cpu_facts, fleet_plan), case)


def sound_in_a_fleet(facts: dict[str, Any]) -> None:
    facts.update(hostname={"name": "box1", "addresses": ["192.0.2.1"]}, clock_synchronised=True, nics=[])


# --- the table as a whole ----------------------------------------------------------------------------------------------


def test_a_recorded_cpu_box_is_fit_for_the_rehearsal(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    assert judge(cpu_facts, cpu_plan) == {}


def test_the_reference_box_is_fit_for_the_reference_inventory(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID
    bind(reference_plan, 0, 1)
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_every_rule_is_seen_failing_and_content(
    cpu_facts: Any, cpu_plan: Any, fleet_plan: Any, reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    content = {id for id, verdict in judge(cpu_facts, cpu_plan, every=True).items() if verdict["ok"]}
    sound_in_a_fleet(cpu_facts)
    bind(reference_plan, 0, 1)
    reference_facts["engine"] = engine()
    for gpu in range(8):
        at_work(reference_facts, gpu)
        link_of(reference_facts, gpu, generation=5, generation_max=5)
    for facts, plan in ((cpu_facts, fleet_plan), (reference_facts, reference_plan)):
        content |= {id for id, verdict in judge(facts, plan, every=True).items() if verdict["ok"]}
    # These are asked only where their fault is there, or may be.
    asked_of_a_suspect = {"compute_mode_prohibited", "model_size_unknown"}
    table = {rule.id for rule in rules.RULES}
    assert {case.rule for case in EVERY_CASE} == table - ALWAYS_SAID | {"link_generation_low"}
    assert content == table - asked_of_a_suspect


def test_every_severity_of_a_rule_is_seen_by_a_test() -> None:
    tested = {(case.rule, case.severity) for case in EVERY_CASE}
    # Tested with others, below.
    tested |= {("numactl_absent", "warn"), ("tmp_noexec", "warn"), ("link_generation_low", "info")}
    assert not {(rule.id, rule.severity) for rule in rules.RULES} - tested


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: f"{rule.id}-{rule.severity}")
def test_a_rule_says_why_and_its_cure_is_something_to_type_or_to_write(rule: rules.Rule) -> None:
    assert rule.why.endswith(".")
    assert rule.finds and not rule.finds.endswith(".")
    cure = rule.documented_cure
    words = re.findall(r"[a-z_-]+", cure)
    typed = [word for word in COMMANDS if word in words]
    variables = re.findall(r"\bpd_\w+", cure)
    assert set(variables) <= set(KNOWN)
    for setting in re.findall(r"pd_host: (\{(?:[^{}]|\{[^{}]*\})*\})", cure):
        faults = Faults()
        HOST(faults, "pd_host", yaml.safe_load(setting))
        assert not list(faults), cure
    written = variables or "ansible_become" in cure or re.search(r"/etc/\S+", cure)
    assert typed or written, cure


def test_an_unknown_fact_is_never_fine(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    every_gpu(
        reference_facts,
        **dict.fromkeys(
            [
                "processes",
                "compute_capability",
                "mig",
                "compute_mode",
                "throttle_reasons",
                "persistence",
                "power_limit_w",
                "bar1_total_mib",
                "numa_node",
                "bridges",
            ]
        ),
        pcie=dict.fromkeys(("generation", "generation_max", "width", "width_max")),
    )
    reference_facts["gpu"].update(driver=None, cuda_version=None, mps=None, p2p=None, topology=None)
    reference_facts.update(
        iommu={"enabled": None, "mode": None, "groups": 0},
        pci_bridges={},
        ephemeral_ports=None,
        shm=None,
        checkpoint=None,
    )
    reference_facts["memory"].update(thp=None, numa_balancing=None, swap_total_bytes=None, available_bytes=None)
    reference_facts["cpu"]["governor"] = None
    found = judge(reference_facts, reference_plan)
    assert len(found) > 20
    for id, verdict in found.items():
        assert verdict["seen"].startswith("unknown: "), id
        assert verdict["severity"] != "veto", id


def test_every_public_report_has_a_rule_or_a_reason() -> None:
    # The rows of the list that the project began with.
    assert len(public_cases.CASES) == 22
    table = {rule.id for rule in rules.RULES}
    for case in public_cases.CASES:
        assert set(case.rules) <= table, case.threads
        assert case.rules or case.otherwise.startswith("No rule"), case.threads
        assert set(re.findall(r"engine rule (\w+)", case.otherwise)) <= {rule.id for rule in engine_rule_table.RULES}
        assert all((CHECKOUT / page).is_file() for page in re.findall(r"docs/[\w/-]+\.md", case.otherwise))
    assert len({case.threads for case in public_cases.CASES}) == 22


def test_no_file_of_rules_is_left_out_of_the_table() -> None:
    folder = Path(rules.__file__).parent
    with_rules = [path.stem for path in folder.glob("*.py") if re.search(r"^RULES:", path.read_text(), re.M)]
    assert len(with_rules) == len(rules.GROUPS) + 1  # verdicts.py has the whole


def test_a_port_of_pdlabs_own_service_is_fine(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_facts["ports"] = [listener(30000, own=True), listener(8998, own=True, address="127.0.0.1")]
    assert judge(cpu_facts, cpu_plan) == {}
    assert (
        judge(cpu_facts, cpu_plan, every=True)["port_taken"]["seen"] == "5 ports free, 2 held by pdlab's own services"
    )


def test_a_listener_on_another_address_does_not_take_a_port(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_facts["ports"] = [listener(30000, address="192.0.2.7")]
    assert judge(cpu_facts, cpu_plan) == {}


def test_memory_that_pdlabs_own_services_hold_counts_as_available(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_facts["memory"] |= {"available_bytes": GIB, "own_bytes": 5 * GIB}
    assert judge(cpu_facts, cpu_plan) == {}


def test_an_engine_that_is_there_needs_no_room_for_another(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_facts["paths"]["/opt/pdlab"]["free_bytes"] = 2 * GIB
    assert list(judge(cpu_facts, cpu_plan)) == ["disk_too_small"]
    cpu_facts["paths"]["/opt/pdlab/engine/bin/python"]["exists"] = True
    assert judge(cpu_facts, cpu_plan) == {}


def test_a_gpu_that_runs_pdlabs_own_server_is_not_busy(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    own = {"pid": 9, "command": "sglang::scheduler", "memory_mib": 90000, "own": True}
    reference_facts["gpu"]["gpus"][0] |= {"memory_used_mib": 90000, "processes": [own]}
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_a_gpu_that_no_server_uses_may_be_in_any_state(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    reference_plan["servers"][1]["gpus"] = [4, 5, 6]
    gpu = reference_facts["gpu"]["gpus"][7]
    gpu.update(mig=True, persistence=False, numa_node=-1, name="NVIDIA T400", compute_capability="7.0")
    gpu.update(processes=[{"pid": 490, "command": "Xorg", "memory_mib": 400, "own": False}])
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_numactl_is_a_veto_only_where_a_node_is_asked_for_and_nobody_can_install_it(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    bind(reference_plan, 0, 1)
    reference_facts["numactl"] = {"path": None, "nodes": {}}
    assert judge(reference_facts, reference_plan)["numactl_absent"]["severity"] == "warn"
    reference_facts["root"] = False
    assert judge(reference_facts, reference_plan)["numactl_absent"]["severity"] == "veto"


def test_noexec_tmp_forbids_gpus_on_two_numa_nodes_only(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_facts["paths"]["/tmp"]["noexec"] = True
    assert judge(cpu_facts, cpu_plan)["tmp_noexec"]["severity"] == "warn"


def test_a_host_name_on_loopback_matters_in_a_fleet_only(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_facts["hostname"] = {"name": "box1", "addresses": ["127.0.1.1"]}
    assert judge(cpu_facts, cpu_plan) == {}


def test_an_idle_gpus_low_generation_is_a_note_and_a_busy_ones_a_warning(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    for gpu in range(8):
        link_of(reference_facts, gpu, generation=1, generation_max=5)
    idle = judge(reference_facts, reference_plan)["link_generation_low"]
    assert idle["severity"] == "info"
    assert idle["seen"] == "unknown: GPUs 0-7: generation 1 of 5, but idle, when a GPU saves power"
    for gpu in range(8):
        at_work(reference_facts, gpu)
    assert judge(reference_facts, reference_plan)["link_generation_low"]["severity"] == "warn"
    for gpu in range(8):
        link_of(reference_facts, gpu, generation=5)
    assert "link_generation_low" not in judge(reference_facts, reference_plan)


def test_a_driver_with_the_forward_compatibility_package_is_new_enough(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    reference_facts["gpu"].update(driver="570.86.10", cuda_version="13.0")
    assert "driver_too_old" not in judge(reference_facts, reference_plan)


def test_an_engine_that_is_there_says_for_which_cuda_it_is(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    reference_facts["gpu"].update(driver="570.86.10", cuda_version="12.8")
    reference_facts["engine"] = engine(cuda_build="cu128")
    assert "driver_too_old" not in judge(reference_facts, reference_plan)


def test_who_declines_p2p_is_not_asked_for_it(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    p2p_of(reference_facts, "read", "0-1", "CNS")
    p2p_of(reference_facts, "write", "0-4", "CNS")
    reference_facts["iommu"].update(enabled=True, mode="translated")
    redirect(reference_facts, 0)
    assert set(judge(reference_facts, reference_plan)) - ALWAYS_SAID == {
        "p2p_refused",
        "kv_p2p_refused",
        "iommu_translates",
        "acs_redirects_p2p",
    }
    for server in reference_plan["servers"]:
        server["environment"].update(NCCL_P2P_DISABLE="1", UCX_TLS="tcp,cuda_copy,sm,self")
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


@pytest.mark.parametrize(
    ("transports", "uses"),
    [("all", True), ("cuda_ipc,cuda_copy,tcp", True), ("cuda,tcp", True), ("tcp,cuda_copy", False), ("^cuda_ipc", False),
     ("^mm", True)],
)  # fmt: skip
def test_ucx_transports_tell_whether_kv_needs_p2p(
    reference_facts: Any, reference_plan: Any, judge: Judge, transports: str, uses: bool
) -> None:
    p2p_of(reference_facts, "write", "0-4", "CNS")
    for server in reference_plan["servers"]:
        server["environment"]["UCX_TLS"] = transports
    assert ("kv_p2p_refused" in judge(reference_facts, reference_plan)) is uses


def test_nvlink_goes_around_iommu_and_bridges(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    reference_facts["gpu"]["topology"] = dict.fromkeys(reference_facts["gpu"]["topology"], "NV18")
    reference_facts["iommu"].update(enabled=True, mode="translated")
    redirect(reference_facts, 0)
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_the_bridges_that_matter_are_those_below_the_point_where_two_ways_part(
    reference_facts: Any, reference_plan: Any
) -> None:
    one, two, three, *_ = reference_facts["gpu"]["gpus"]
    one["bridges"] = ["root-0", "switch-up", "port-a"]
    two["bridges"] = ["root-0", "switch-up", "port-b"]
    three["bridges"] = ["root-1"]
    view = View(reference_facts, reference_plan, "gpubox")
    assert turning_bridges(view, (0, 1)) == ["port-a", "port-b"]
    assert turning_bridges(view, (0, 2)) == ["root-0", "switch-up", "port-a", "root-1"]
    one["bridges"] = None
    assert turning_bridges(view, (0, 1)) is None


def test_pdlabs_units_give_their_servers_the_limits_that_they_need(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    reference_facts["limits"] = {
        "process": {"memlock_bytes": {"soft": 65536, "hard": 65536}, "nofile": {"soft": 1024, "hard": 1024}},
        "services": {"memlock_bytes": 8388608, "nofile": 524288},
    }
    found = judge(reference_facts, reference_plan, every=True)
    assert found["memlock_too_low"]["seen"] == "unlimited, as pdlab's systemd units ask for"
    assert found["nofile_too_low"]["seen"] == "1048576, as pdlab's systemd units ask for"
    reference_facts["root"] = False
    assert judge(reference_facts, reference_plan)["memlock_too_low"]["seen"].startswith("65536 for this session")


def test_reserved_ports_are_safe_from_the_kernel(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    reference_facts.update(
        ephemeral_ports=[10000, 65535], reserved_ports=[21000, 21001, 21009, 29001, 30000, 30001, 30009]
    )
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_what_lies_on_one_file_system_is_added_up(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    reference_plan["model"].update(source="hub", repo="owner/flash", size_gib=100)
    model = reference_plan["servers"][0]["model_path"]
    disk = {"total_bytes": 500 * GIB, "free_bytes": 120 * GIB}
    reference_facts["paths"][model] = {**reference_facts["paths"]["/opt/pdlab"], **disk, "exists": False}
    reference_facts["paths"]["/opt/pdlab"].update(disk)
    found = judge(reference_facts, reference_plan)["disk_too_small"]
    assert found["wanted"].startswith("129.6 GiB free at /opt/pdlab (logs and results, the engine, compiled kernels")
    reference_facts["paths"]["/opt/pdlab"].update(total_bytes=100 * GIB, free_bytes=90 * GIB)
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_uvs_cache_takes_room_where_it_lies_elsewhere(reference_facts: Any, reference_plan: Any, judge: Judge) -> None:
    cache = {**reference_facts["paths"]["/opt/pdlab"], "total_bytes": 20 * GIB, "free_bytes": 5 * GIB}
    reference_facts["paths"]["~/.cache/uv"] = cache
    assert (
        "11.8 GiB free at ~/.cache/uv (uv's cache)"
        in judge(reference_facts, reference_plan)["disk_too_small"]["wanted"]
    )
    reference_facts["paths"]["/opt/pdlab/engine/bin/python"]["exists"] = True
    assert set(judge(reference_facts, reference_plan)) == ALWAYS_SAID


def test_ports_beside_the_main_one_are_asked_for_with_dp_attention(reference_plan: Any) -> None:
    reference_plan["servers"][0]["args"]["enable-dp-attention"] = True
    assert rules.wanted_ports(reference_plan, "gpubox")[30233] == "port + 233 of prefill-0, for DP attention"


def test_two_gpus_decline_p2p_only_without_sglangs_own_all_reduce(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    reference_facts["gpu"]["p2p"]["read"].update({"0-1": "CNS", "1-0": "CNS"})
    server = reference_plan["servers"][0]
    server.update(gpus=[0, 1])
    server["environment"]["NCCL_P2P_DISABLE"] = "1"
    assert "p2p_refused" in judge(reference_facts, reference_plan)
    server["args"]["disable-custom-all-reduce"] = True
    assert "p2p_refused" not in judge(reference_facts, reference_plan)
    server["environment"]["SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"] = "1"
    assert "p2p_refused" in judge(reference_facts, reference_plan)


def test_who_chooses_a_network_device_is_not_asked_again(cpu_facts: Any, fleet_plan: Any, judge: Judge) -> None:
    case = next(case for case in IN_A_FLEET if case.name == "two networks and no choice")
    sound_in_a_fleet(cpu_facts)
    case.change(cpu_facts, fleet_plan)
    fleet_plan["servers"][0]["environment"]["UCX_NET_DEVICES"] = "mlx5_0:1"
    assert judge(cpu_facts, fleet_plan) == {}


def test_a_host_that_runs_nothing_is_judged_by_what_concerns_it(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    cpu_plan["hosts"]["spare"] = cpu_plan["hosts"]["box1"]
    found = judge(cpu_facts, cpu_plan, every=True, host="spare")
    assert "python_too_old" in found
    assert not {"port_taken", "memory_too_small", "shm_too_small"} & set(found)


def test_of_an_existing_engine_its_own_python_is_looked_at_and_no_other(
    reference_facts: Any, reference_plan: Any, judge: Judge
) -> None:
    own = "/opt/torch/bin/python3"
    reference_plan["hosts"]["gpubox"].update(engine_existing=True, engine_python=own)
    assert rules.facts_options(reference_plan, "gpubox")["pythons"] == [own]
    system = {"path": "/usr/bin/python3", "version": "3.9.2", "headers": True, "asked": False}
    found = {"path": own, "version": "3.10.12", "headers": False, "asked": True}
    reference_facts["pythons"] = [found, system]
    said = judge(reference_facts, reference_plan, every=True)
    assert "python_too_old" not in said, "nothing is built on a Python"
    headers = said["python_headers_absent"]
    assert (headers["ok"], headers["seen"]) == (False, f"missing for {own}")
    assert "python3-dev" not in headers["cure"], "the distribution's headers may be of another Python"
    found.update(headers=True)
    assert judge(reference_facts, reference_plan, every=True)["python_headers_absent"]["ok"] is True
    found.update(version=None, headers=None)
    unknown = judge(reference_facts, reference_plan, every=True)["python_headers_absent"]
    assert (unknown["ok"], unknown["seen"]) == (False, f"unknown: {own} does not answer")


def test_the_ports_and_paths_that_are_asked_for_are_those_of_the_plan(reference_plan: Any) -> None:
    model = "/srv/models/DeepSeek-V4-Flash-NVFP4"
    assert rules.wanted_ports(reference_plan, "gpubox") == {
        30000: "prefill-0",
        8998: "the bootstrap port of prefill-0",
        21000: "the NCCL port of prefill-0",
        30001: "decode-0",
        21001: "the NCCL port of decode-0",
        8000: "router",
        29001: "the Prometheus port of router",
        30009: "reference",
        21009: "the NCCL port of reference",
    }
    asked = rules.facts_options(reference_plan, "gpubox", ["/opt/python"])
    assert asked["ports"] == [8000, 8998, 21000, 21001, 21009, 29001, 30000, 30001, 30009]
    assert asked["paths"] == ["/opt/pdlab", "/opt/pdlab/engine/bin/python", "~/.cache/uv", model]
    assert (asked["root"], asked["engine"]) == ("/opt/pdlab", "/opt/pdlab/engine/bin/python")
    assert (asked["checkpoint"], asked["pythons"]) == (model, ["/opt/python"])
    assert {0, 1} <= set(asked["numa_nodes"])


@pytest.mark.parametrize(
    ("numbers", "said"), [([], ""), ([3], "3"), ([0, 1], "0-1"), ([3, 0, 1, 2, 5], "0-3, 5"), ([0, 2, 4], "0, 2, 4")]
)
def test_numbers_are_said_as_people_say_them(numbers: list[int], said: str) -> None:
    assert ranges(numbers) == said


def test_a_verdict_that_is_well_has_no_cure(cpu_facts: Any, cpu_plan: Any, judge: Judge) -> None:
    verdicts = judge(cpu_facts, cpu_plan, every=True)
    assert {verdict["cure"] for verdict in verdicts.values()} == {None}
    assert set(verdicts["python_too_old"]) == {"id", "severity", "ok", "seen", "wanted", "why", "cure"}
