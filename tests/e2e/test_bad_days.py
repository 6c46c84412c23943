# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on the real stack, and what pdlab then says and does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes

from .conftest import CHECKOUT, Pdlab, wait_for

LONG = ("-e", json.dumps({"pd_benchmark": {"points": [{"concurrency": 4, "prompts": 400}], "input_len": 256}}))


def orphans(pdlab: Pdlab) -> list[str]:
    """Processes of this root that no service explains, and benchmark clients, which no run has left to wait for."""
    supervisord = int((pdlab.root / "supervisor" / "supervisord.pid").read_text())
    services = set(processes.process_tree(supervisord))
    found = []
    for pid in processes.all_processes():
        line = " ".join(processes.command_line(pid))
        ours = str(pdlab.root) in line and pid not in services
        if ours or ("bench_forkserver" in line and pid in services):
            found.append(f"{pid} {line[:120]}")
    return found


def test_a_port_that_another_process_holds_is_a_veto_that_names_it(standing: Pdlab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = standing("preflight", "-e", json.dumps({"pd_router": {"port": port, "prometheus_port": 29001}}))
    assert done.status == 3, done.text
    assert str(os.getpid()) in done.text


def test_an_unknown_flag_is_refused_before_anything_is_stopped(standing: Pdlab) -> None:
    before = standing.pid_of("decode-0")
    args = {
        "attention-backend": "torch_native",
        "sampling-backend": "pytorch",
        "disable-overlap-schedule": True,
        "max-totel-tokens": 65536,
    }
    done = standing("deploy", "-e", json.dumps({"pd_server_args": args}))
    assert done.status == 4, done.text
    assert "max-totel-tokens" in done.text and "max-total-tokens" in done.text
    assert standing.pid_of("decode-0") == before


def test_a_second_run_on_the_same_host_is_refused_with_the_first_ones_pid(standing: Pdlab) -> None:
    before = standing.latest()
    child = standing.start(standing.command("bench", *LONG))
    try:
        wait_for(lambda: measuring(standing, before), 180, "the benchmark measures")
        done = standing("deploy")
        assert done.status == 7, done.text
        assert str(child.pid) in done.text
    finally:
        os.kill(child.pid, signal.SIGINT)
        child.communicate(timeout=60)


def test_prefill_killed_in_mid_benchmark_fails_the_point_within_seconds(deployed: Pdlab) -> None:
    victim = deployed.pid_of("prefill-0")
    before = deployed.latest()
    child = deployed.start(deployed.command("bench", *LONG))
    wait_for(lambda: measuring(deployed, before), 180, "the benchmark measures")
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    out, err = child.communicate(timeout=120)
    assert time.monotonic() - killed < 30, out
    assert child.returncode == 6, out + err
    document = deployed("report", "--json").json()
    (point,) = document["points"]
    assert not point["ok"]
    assert point["output_tok_s"] is None
    assert any("prefill-0" in reason for reason in point["why"])
    assert "FAILED" in out
    assert {path.name for path in (deployed.latest() / "logs").iterdir()} >= {"prefill-0.log", "decode-0.log"}


def test_ctrl_c_ends_a_benchmark_with_a_clean_message_and_no_orphan(deployed: Pdlab) -> None:
    before = deployed.latest()
    child = deployed.start(deployed.command("bench", *LONG))
    wait_for(lambda: measuring(deployed, before), 180, "the benchmark measures")
    os.kill(child.pid, signal.SIGINT)
    asked = time.monotonic()
    assert child.stdout
    lines = [child.stdout.readline()]
    while "cancelling" not in lines[-1] and lines[-1]:
        lines.append(child.stdout.readline())
    assert "cancelling" in lines[-1], lines
    assert time.monotonic() - asked < 2
    child.communicate(timeout=60)
    assert child.returncode == 130
    wait_for(lambda: not orphans(deployed), 15, "no orphan is left")
    run = json.loads((deployed.latest() / "run.json").read_text())
    assert run["status"] == "cancelled"
    assert deployed("deploy").status == 0


def test_an_unknown_flag_of_the_router_is_refused_before_a_server_is_stopped(deployed: Pdlab) -> None:
    before = {name: deployed.pid_of(name) for name in ("decode-0", "router")}
    router = {"port": 8000, "prometheus_port": 29001, "args": {"retry-max-retrys": 3}}
    changed = {"name": "decode-0", "role": "decode", "port": 30001, "env": {"A_CHANGE": "1"}}
    servers = [{"name": "prefill-0", "role": "prefill", "port": 30000}, changed]
    done = deployed("deploy", "-e", json.dumps({"pd_router": router, "pd_servers": servers}))
    assert done.status == 4, done.text
    assert "router: args retry-max-retrys" in done.text and "--retry-max-retries" in done.text
    assert {name: deployed.pid_of(name) for name in before} == before


def test_every_fault_of_an_inventory_is_listed_at_once_before_a_host_is_touched(pdlab: Pdlab, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory"
    shutil.copytree(CHECKOUT / "inventory" / "local", inventory)
    variables = inventory / "group_vars" / "pdlab.yml"
    text = variables.read_text().replace("port: 30001", "port: 30000").replace("pd_device: cpu", "pd_device: tpu")
    variables.write_text(text + "pd_servars: []\n")
    done = pdlab("up", "-i", str(inventory))
    assert done.status == 2, done.text
    for word in ("pd_servers[1].port", "pd_device", "pd_servars", "pdlab.yml:"):
        assert word in done.text


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_runs_directory_is_a_clear_error(pdlab: Pdlab, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=True)
    try:
        (small / "filler").write_bytes(b"x" * 8192)
        done = pdlab("preflight", "--runs-dir", str(small / "runs"))
        assert done.status == 1, done.text
        assert str(small) in done.text
        assert "Traceback" not in done.text
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_an_engine_that_dies_at_start_is_explained_by_its_own_error(deployed: Pdlab) -> None:
    broken = {"pd_server_env": {"SGLANG_PLATFORM": "no_such_platform"}}
    started = time.monotonic()
    done = deployed("deploy", "-e", json.dumps(broken))
    assert done.status == 4, done.text
    assert "no_such_platform" in done.text
    assert time.monotonic() - started < 120


def measuring(pdlab: Pdlab, before: Path) -> bool:
    """Whether a run younger than `before` has begun to measure its point."""
    run = pdlab.latest()
    logs = list((pdlab.root / "bench" / run.name).glob("*.log"))
    return run != before and any("Starting main benchmark run" in log.read_text(errors="replace") for log in logs)
