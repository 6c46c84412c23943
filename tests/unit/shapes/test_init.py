# SPDX-License-Identifier: Apache-2.0
"""`pdlab init`: on this machine, and on every recorded box; what it writes is an inventory that fits the box."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import PER_HOST

from pdlab.dry_run import dry_run
from pdlab.init_box import look_at_recording, make_inventory
from pdlab.preflight import judge_recordings

CHECKOUT = Path(__file__).resolve().parents[3]
WORKLOADS = yaml.safe_load((CHECKOUT / "roles" / "benchmark" / "vars" / "workloads.yml").read_text())[
    "benchmark_workloads"
]

PDLAB = Path(sys.executable).with_name("pdlab")
MODEL = "/srv/models/DeepSeek-V4-Flash-NVFP4"
# Faults of a box that no inventory can mend.
BEYOND_AN_INVENTORY = {"laptop": {"driver_too_old"}}
RECORDED = sorted(path.parent for path in (CHECKOUT / "tests" / "boxes").glob("*/box.yml"))


def pdlab(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PDLAB, *arguments],
        cwd=cwd, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def plan_in(folder: Path, arm: str | None = None) -> tuple[str, dict[str, Any]]:
    """(the host's name, the plan) of a written inventory, or of one of its arms; the one template in it is that of the rehearsal's uv."""
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())["all"]["children"]["pdlab"]["hosts"]
    ((name, reached),) = hosts.items()
    text = (folder / "group_vars" / "pdlab.yml").read_text()
    given = yaml.safe_load(text.replace("{{ ansible_playbook_python | dirname }}", "/venv/bin"))
    own = {key: value for key, value in given.items() if key in PER_HOST}
    shared = {key: value for key, value in given.items() if key not in PER_HOST}
    host = HostVars(name, local="ansible_connection" in reached, home="/home/user", variables=own)
    plan, faults = resolve({**shared, **({"pd_arm": arm} if arm else {})}, [host], WORKLOADS)
    assert plan, list(map(str, faults))
    return name, plan


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.name)
@pytest.mark.parametrize("host", [None, "root@box.example"])
def test_what_is_written_for_a_recorded_box_resolves_and_fits_it(
    recording: Path, host: str | None, tmp_path: Path
) -> None:
    facts = look_at_recording(recording)
    shape = make_inventory(facts, host, tmp_path / "box", MODEL, recording=recording)
    name, plan = plan_in(tmp_path / "box")
    assert name == ("box" if host else "this-machine")
    assert plan["rehearsal"] is (shape.device == "cpu")
    run = dry_run(plan, {name: read_facts(Recording(recording), {})})
    assert list(run.faults) == []
    assert not any(server["numa_pending"] for server in run.plan["servers"])
    (record,) = judge_recordings(plan, {name: recording})
    vetoes = {
        verdict["id"]: verdict["seen"]
        for verdict in record["verdicts"]
        if verdict["severity"] == "veto" and not verdict["ok"]
    }
    assert set(vetoes) == BEYOND_AN_INVENTORY.get(recording.name, set()), vetoes


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.name)
def test_every_arm_that_is_written_resolves_on_the_same_gpus(recording: Path, tmp_path: Path) -> None:
    shape = make_inventory(look_at_recording(recording), None, tmp_path / "box", MODEL, recording=recording)
    gpus = sorted(gpu for server in shape.servers for gpu in server.gpus)
    for arm in ["pd", *shape.arms] if shape.arms else []:
        name, plan = plan_in(tmp_path / "box", arm)
        assert plan["arm"] == arm
        run = dry_run(plan, {name: read_facts(Recording(recording), {})})
        assert list(run.faults) == []
        assert not any(server["numa_pending"] for server in run.plan["servers"])
        if shape.device == "cuda":
            assert sorted(gpu for server in plan["servers"] for gpu in server["gpus"]) == gpus
    # One GPU for both roles: figures mean nothing, so there is nothing to compare.
    assert bool(shape.arms) is not shape.shared


def test_the_reference_box_gets_the_reference_topology(tmp_path: Path) -> None:
    recording = CHECKOUT / "tests" / "boxes" / "rtx-pro-6000-x8"
    done = pdlab("init", "root@192.0.2.11", "--box", str(recording), "--model", "/srv/models/M", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TP4 each" in done.stdout
    assert "pdlab preflight -i 192.0.2.11" in done.stdout
    _name, plan = plan_in(tmp_path / "192.0.2.11")
    assert [(server["name"], server["gpus"], server["port"]) for server in plan["servers"]] == [
        ("prefill-0", [0, 1, 2, 3], 30000),
        ("decode-0", [4, 5, 6, 7], 30001),
    ]
    again = pdlab("init", "root@192.0.2.11", "--box", str(recording), cwd=tmp_path)
    assert again.returncode == 2
    assert "overwrites nothing" in again.stderr


def test_this_machine_is_looked_at_and_its_inventory_resolves(tmp_path: Path) -> None:
    done = pdlab("init", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    planned = pdlab("plan", "-i", "this-machine", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "prefill-0" in planned.stdout


def test_a_host_that_cannot_be_reached_and_a_folder_that_is_no_recording_are_said(tmp_path: Path) -> None:
    lost = pdlab("init", "nobody@192.0.2.1.invalid", cwd=tmp_path)
    assert lost.returncode == 1
    assert "cannot be looked at, and nothing was written" in lost.stderr
    wrong = pdlab("init", "--box", str(tmp_path), "-o", "x", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "is no recording of a box" in " ".join(wrong.stderr.split())
    assert list(tmp_path.iterdir()) == []
