# SPDX-License-Identifier: Apache-2.0
"""A dry run of every shipped GPU inventory, and of its arms, on the box that it is for. Renew: scripts/golden_plans.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import engines_of

from pdlab.dry_run import dry_run, facts_of
from pdlab.preflight import BoxError
from scripts import golden_plans

from .test_init import pdlab

BOX = golden_plans.box_of("gpu")
EIGHT = "eight-nvlink-gpus"


def test_what_a_dry_run_prints_is_what_is_kept() -> None:
    assert golden_plans.stale() == [], "run: .venv/bin/python scripts/golden_plans.py, and read the difference"


def test_the_command_prints_what_is_kept(tmp_path: Path) -> None:
    done = pdlab("plan", "-i", "gpu", "--box", str(BOX), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = (golden_plans.FOLDER / "gpu.txt").read_text()
    assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in kept.splitlines()]


def test_a_plan_as_json_is_bound_too(tmp_path: Path) -> None:
    done = pdlab("plan", "-i", "gpu", "--box", f"gpubox={BOX}", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert [(server["numa_node"], server["numa_pending"]) for server in document["servers"]] == [(0, False), (1, False)]


def facts() -> dict[str, Any]:
    return facts_of({"gpubox": BOX})["gpubox"]


@pytest.mark.parametrize(("name", "arm"), golden_plans.cases().values(), ids=golden_plans.cases())
def test_every_server_of_a_shape_is_bound_to_the_one_node_of_its_gpus(name: str, arm: str | None) -> None:
    """On a box with GPUs 0-3 at one node and 4-7 at the other: so lie those of the reference box, and of an HGX board."""
    run = dry_run(golden_plans.plan_of(name, arm), {"gpubox": facts()})
    assert list(run.faults) == []
    for server in engines_of(run.plan):
        node = None if len(server["gpus"]) == 8 else 0 if max(server["gpus"]) < 4 else 1
        assert server["numa_node"] == node
        assert ("--membind=" in run.units[server["name"]].text) is (node is not None)
        assert node is None or f"--membind={node}" in run.units[server["name"]].text


# By the flags that the engine gets: name, role, TP, first GPU, port, bootstrap port.
EIGHT_ARMS = {
    None: [("prefill-0", "prefill", 4, 0, 30000, 8998), ("decode-0", "decode", 4, 4, 30001, None)],
    "tp8": [("colocated-tp8", None, 8, 0, 30000, None)],
    "dp2-tp4": [("colocated-0", None, 4, 0, 30000, None), ("colocated-1", None, 4, 4, 30010, None)],
    "pd-2-6": [
        ("prefill-tp2-0", "prefill", 2, 0, 30000, 8998),
        ("decode-tp2-1", "decode", 2, 2, 30001, None),
        ("decode-tp2-2", "decode", 2, 4, 30011, None),
        ("decode-tp2-3", "decode", 2, 6, 30021, None),
    ],
    "pd-6-2": [
        ("prefill-tp2-0", "prefill", 2, 0, 30000, 8998),
        ("prefill-tp2-1", "prefill", 2, 2, 30010, 8999),
        ("prefill-tp2-2", "prefill", 2, 4, 30020, 9000),
        ("decode-tp2-3", "decode", 2, 6, 30001, None),
    ],
}


def flag(argv: list[str], name: str) -> str | None:
    return argv[argv.index(name) + 1] if name in argv else None


@pytest.mark.parametrize(("arm", "servers"), EIGHT_ARMS.items(), ids=str)
def test_every_arm_for_eight_gpus_starts_these_servers_and_a_router_that_knows_each(
    arm: str | None, servers: list[tuple[Any, ...]]
) -> None:
    plan = golden_plans.plan_of(EIGHT, arm)
    run = dry_run(plan, {"gpubox": facts_of({"gpubox": golden_plans.box_of(EIGHT)})["gpubox"]})
    started = []
    for server in run.plan["servers"]:
        argv = server["argv"]
        bootstrap = flag(argv, "--disaggregation-bootstrap-port")
        numbers = [int(flag(argv, name) or -1) for name in ("--tp-size", "--base-gpu-id", "--port")]
        mode = flag(argv, "--disaggregation-mode")
        started.append((server["name"], mode, *numbers, bootstrap and int(bootstrap)))
        # One node on this box: nothing to bind to. NCCL's reasons are wanted wherever there are several ranks.
        assert argv[0].endswith("python") and server["environment"]["NCCL_DEBUG"] == "WARN"
    assert started == servers
    assert sorted(gpu for server in run.plan["servers"] for gpu in server["gpus"]) == list(range(8))
    listening = [server[key] for server in run.plan["servers"] for key in ("port", "nccl_port", "bootstrap_port")]
    taken = [port for port in [*listening, plan["router"]["port"], plan["router"]["prometheus_port"]] if port]
    assert len(taken) == len(set(taken))
    router = " ".join(run.plan["router"]["argv"])
    for _name, role, _tp, _gpu, port, bootstrap_port in servers:
        way = f"--{role} http://127.0.0.1:{port}" if role else f" http://127.0.0.1:{port}"
        assert (f"{way} {bootstrap_port}" if bootstrap_port else way) in router
    assert ("--pd-disaggregation" in router) is (servers[0][1] is not None)


def test_where_systemd_is_not_pid_1_the_unit_is_supervisors_unless_the_inventory_says_otherwise() -> None:
    plan = golden_plans.plan_of("gpu")
    container = {**facts(), "init": "tini"}
    assert dry_run(plan, {"gpubox": container}).units["router"].path == "/opt/pdlab/supervisor/conf.d/pdlab-router.conf"
    plan["router"]["user"] = "pdlab-nobody-has-this"
    assert "user=pdlab-nobody-has-this" in dry_run(plan, {"gpubox": container}).units["router"].text
    plan["hosts"]["gpubox"]["service_manager"] = "systemd"
    assert dry_run(plan, {"gpubox": container}).units["router"].manager == "systemd"


def test_a_box_that_contradicts_the_inventory_is_a_fault_and_shows_no_plan(tmp_path: Path) -> None:
    crossed = tmp_path / "crossed"
    shutil.copytree(BOX, crossed)
    last = facts()["gpu"]["gpus"][3]["pci"]
    (crossed / "root" / "sys" / "bus" / "pci" / "devices" / last / "numa_node").write_text("1\n")
    done = pdlab("plan", "-i", "gpu", "--box", str(crossed), cwd=tmp_path)
    assert done.returncode == 2
    assert "pd_servers[0].gpus: the GPUs lie across NUMA nodes: 0, 1, 2 at node 0, 3 at node 1" in done.stderr
    assert "prefill-0" not in done.stdout
    with pytest.raises(BoxError, match="is no recording of a box"):
        facts_of({"gpubox": tmp_path})


def test_the_unit_of_prometheus_is_shown_where_one_is_asked_for_and_systemd_runs() -> None:
    plan = golden_plans.plan_of("gpu")
    path = "/etc/systemd/system/pdlab_prometheus.service"
    assert path not in dry_run(plan, {"gpubox": facts()}).shared["gpubox"]
    plan["monitoring"] = {**plan["monitoring"], "install": True}
    text = dry_run(plan, {"gpubox": facts()}).shared["gpubox"][path]
    assert '"--web.listen-address=127.0.0.1:9090"' in text
    assert "gpubox" not in dry_run(plan, {"gpubox": {**facts(), "init": "tini"}}).shared
