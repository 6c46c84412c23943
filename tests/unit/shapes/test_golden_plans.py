# SPDX-License-Identifier: Apache-2.0
"""A dry run of every shipped GPU inventory on the reference box, to the letter. Renew: scripts/golden_plans.py."""

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

BOX = golden_plans.BOX


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


@pytest.mark.parametrize("name", golden_plans.names())
def test_every_server_of_a_shape_is_bound_to_the_one_node_of_its_gpus(name: str) -> None:
    run = dry_run(golden_plans.plan_of(name), {"gpubox": facts()})
    assert list(run.faults) == []
    for server in engines_of(run.plan):
        assert server["numa_node"] == (0 if max(server["gpus"]) < 4 else 1)
        assert f"--membind={server['numa_node']}" in run.units[server["name"]].text


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
