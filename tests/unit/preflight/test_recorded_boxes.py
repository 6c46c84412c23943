# SPDX-License-Identifier: Apache-2.0
"""`pdlab preflight --box`: a recording is judged, no host is touched, and the exit status says veto."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdlab.preflight import BoxError, boxes_of, judge_recordings
from scripts import golden_plans

from .conftest import BOXES, shipped_plan

Edit = Callable[[Path], Any]
PDLAB = Path(sys.executable).with_name("pdlab")
REFERENCE = BOXES / "rtx-pro-6000-x8"
# The recorded machines, and the inventories that are meant for such.
RECORDED = sorted(path.parent for path in BOXES.glob("*/box.yml"))


def preflight(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PDLAB, "preflight", *arguments],
        cwd=tmp_path, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_the_reference_box_has_no_veto_and_nothing_is_kept(tmp_path: Path) -> None:
    # The inventory's host is an address of documentation: nobody answers there.
    done = preflight(tmp_path, "-i", "gpu", "--box", str(REFERENCE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VETO" not in done.stdout
    assert "gpubox: " in done.stdout.splitlines()[-1]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


def test_a_box_with_a_fault_has_a_veto_in_table_and_document(tmp_path: Path) -> None:
    box = tmp_path / "box"
    shutil.copytree(REFERENCE, box)
    for group in (box / "root/sys/kernel/iommu_groups").glob("*/type"):
        group.write_text("DMA-FQ\n")
    done = preflight(tmp_path, "-i", "gpu", "--box", f"gpubox={box}")
    assert done.returncode == 3
    assert "VETO    iommu_translates" in done.stdout
    assert "-> sed -i" in done.stdout
    as_json = preflight(tmp_path, "-i", "gpu", "--box", str(box), "--json")
    assert as_json.returncode == 3
    document = json.loads(as_json.stdout)
    assert document["ok"] is False
    failed = [verdict for verdict in document["hosts"][0]["verdicts"] if not verdict["ok"]]
    assert ("iommu_translates", "veto") in [(verdict["id"], verdict["severity"]) for verdict in failed]


def rewrite(name: str, old: str, new: str, count: int = 1) -> Edit:
    """An edit of a recording: these words in its files of this name, which must hold them."""

    def edit(box: Path) -> None:
        for path in sorted(box.glob(name)):
            text = path.read_text()
            assert old in text, path
            path.write_text(text.replace(old, new, count))

    return edit


DEVICES = "root/sys/bus/pci/devices"
SMI = "commands/nvidia-smi-q-x.out"


@pytest.mark.parametrize(
    ("edit", "rule", "severity", "seen"),
    [
        (rewrite(SMI, ">580.95.05<", ">570.86.10<"), None, None, None),
        (
            lambda box: (rewrite(SMI, ">580.95.05<", ">570.86.10<")(box), rewrite(SMI, ">13.0<", ">12.8<")(box)),
            "driver_too_old", "veto", "driver 570.86.10, which offers CUDA 12.8",
        ),
        (rewrite("root/sys/kernel/iommu_groups/*/type", "identity", "DMA-FQ"), "iommu_translates", "veto", "translates"),
        (rewrite(f"{DEVICES}/0000:82:01.0/config.hex", "5f 00 00 00", "5f 00 1d 00"), "acs_redirects_p2p", "warn",
         "SrcValid, ReqRedir, CmpltRedir on 0000:82:01.0"),
        (lambda box: (box / DEVICES / "0000:82:01.0/config.hex").unlink(), "acs_redirects_p2p", "warn", "unknown: "),
        (rewrite("commands/nvidia-smi-topo-p2p-r.out", " GPU1\tOK", " GPU1\tCNS"), "p2p_refused", "veto",
         "CNS between GPUs 0 and 1"),
        (rewrite("commands/nvidia-smi-topo-p2p-w.out", " GPU7\tOK", " GPU7\tTNS"), "kv_p2p_refused", "veto",
         "TNS between GPUs 0 and 7"),
        (rewrite(SMI, "16x</current_link_width>", "8x</current_link_width>"), "link_width_low", "warn", "GPU 0: x8 of x16"),
        (rewrite(f"{DEVICES}/0000:03:00.0/numa_node", "0", "-1"), "gpu_without_numa_node", "veto", "GPU 0: NUMA node -1"),
        (rewrite(f"{DEVICES}/0000:03:00.0/numa_node", "0", "1"), "gpus_across_numa_nodes", "veto",
         "prefill-0: GPUs 1-3 at node 0, GPU 0 at node 1"),
        (rewrite(SMI, "<persistence_mode>Enabled", "<persistence_mode>Disabled", 8), "persistence_off", "warn",
         "GPUs 0-7: off"),
        (rewrite(SMI, "<current_mig>Disabled", "<current_mig>Enabled"), "mig_on", "veto", "GPU 0: MIG"),
        (rewrite("answers.json", '"nvidia-cuda-mps-server": false', '"nvidia-cuda-mps-server": true'), "mps_running",
         "warn", "it runs"),
        (rewrite("answers.json", '"nvidia-smi": "/usr/bin/nvidia-smi"', '"nvidia-smi": null'), "gpu_absent", "veto",
         "8 NVIDIA devices on the PCI bus"),
        (rewrite("answers.json", '"port": 22', '"port": 8000'), "port_taken", "veto", "8000 (router) is held by PID"),
    ],
)  # fmt: skip
def test_a_small_edit_of_a_recording_gets_its_verdict(
    tmp_path: Path, edit: Edit, rule: str | None, severity: str, seen: str
) -> None:
    box = tmp_path / "box"
    shutil.copytree(REFERENCE, box)
    edit(box)
    plan = shipped_plan("gpu")
    (record,) = judge_recordings(plan, {"gpubox": box})
    failed = {verdict["id"]: verdict for verdict in record["verdicts"] if not verdict["ok"]}
    # A recording holds no models, an idle GPU's link generation proves nothing, and nothing can be tried on it.
    usual = {"checkpoint_incomplete", "link_generation_low", "kv_path_indirect", "collectives_hang"}
    assert set(failed) - usual <= {rule}
    if rule:
        assert failed[rule]["severity"] == severity
        assert seen in failed[rule]["seen"]


def test_what_passed_is_shown_when_it_is_asked_for(tmp_path: Path) -> None:
    done = preflight(tmp_path, "-i", "gpu", "--box", str(REFERENCE), "--all")
    assert "ok      driver_too_old: driver " in done.stdout


def test_a_folder_that_is_no_recording_is_said_so(tmp_path: Path) -> None:
    done = preflight(tmp_path, "-i", "gpu", "--box", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} is no recording of a box" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("written", "hosts", "said"),
    [
        (["DIR"], ["a", "b"], "--box DIR: the plan has 2 hosts; write HOST=DIR for each of a, b"),
        (["c=DIR"], ["a"], "--box c=DIR: the plan has no host c, it has a"),
        (["a=X", "a=Y"], ["a"], "--box a=Y: a has a recording already, X"),
        (["a=X"], ["a", "b"], "--box: no recording for b; write HOST=DIR for each"),
    ],
)
def test_a_recording_that_fits_no_host_is_refused(written: list[str], hosts: list[str], said: str) -> None:
    with pytest.raises(BoxError) as error:
        boxes_of(written, hosts)
    assert str(error.value) == said


def test_each_host_of_a_fleet_gets_its_recording() -> None:
    assert boxes_of(["DIR"], ["a"]) == {"a": Path("DIR")}
    assert boxes_of(["b=Y", "a=X=1"], ["a", "b"]) == {"a": Path("X=1"), "b": Path("Y")}


@pytest.mark.parametrize("box", RECORDED, ids=lambda box: box.name)
def test_every_recorded_box_gets_verdicts_and_none_that_a_rule_did_not_mean(box: Path) -> None:
    (record,) = judge_recordings(shipped_plan("gpu"), {"gpubox": box})
    assert json.loads(json.dumps(record)) == record
    for verdict in record["verdicts"]:
        assert verdict["seen"] and verdict["wanted"] and verdict["why"], verdict["id"]
        assert bool(verdict["cure"]) is not verdict["ok"], verdict["id"]
        if verdict["seen"].startswith("unknown: "):
            assert verdict["severity"] != "veto", verdict["id"]


@pytest.mark.parametrize(
    ("inventory", "arm", "box"),
    [
        *((name, arm, golden_plans.box_of(name).name) for name, arm in golden_plans.cases().values()),
        ("gpu-one-shared", None, "h200-x1"),
        ("two-gpus", None, "h200-x2"),
        ("four-gpus", None, "h200-x8"),
    ],
)
def test_a_shipped_inventory_has_no_veto_on_a_box_that_it_is_for(inventory: str, arm: str | None, box: str) -> None:
    (record,) = judge_recordings(golden_plans.plan_of(inventory, arm), {"gpubox": BOXES / box})
    assert [
        verdict["id"] for verdict in record["verdicts"] if verdict["severity"] == "veto" and not verdict["ok"]
    ] == []


@pytest.mark.parametrize(("arm", "moves"), [("pd", True), ("tp8", False)])
def test_an_arm_that_moves_no_kv_cache_is_not_told_that_its_path_was_not_tried(arm: str, moves: bool) -> None:
    (record,) = judge_recordings(golden_plans.plan_of("gpu", arm), {"gpubox": REFERENCE})
    assert ("kv_path_indirect" in {verdict["id"] for verdict in record["verdicts"]}) is moves


def test_a_model_that_no_recording_holds_is_unknown_not_absent() -> None:
    plan = shipped_plan("gpu")
    for server in plan["servers"]:
        server["model_path"] = "/data/models/other"
    (record,) = judge_recordings(plan, {"gpubox": REFERENCE})
    (verdict,) = [verdict for verdict in record["verdicts"] if verdict["id"] == "model_absent"]
    assert (verdict["severity"], verdict["ok"]) == ("warn", False)
    assert verdict["seen"] == "unknown: /data/models/other was not looked at"
