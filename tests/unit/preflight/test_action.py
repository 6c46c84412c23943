# SPDX-License-Identifier: Apache-2.0
"""Preflight through the real ansible-playbook: what it keeps, when it fails, what it says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
PLAY = """
- hosts: pdlab
  gather_facts: false
  tasks:
    - pdlab.pdlab.topology:
      register: topology
    - pdlab.pdlab.preflight:
        plan: "{{ topology.plan }}"
        run_dir: "{{ out }}"
"""
INVENTORY = """
all:
  children:
    pdlab:
      hosts:
        box1: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
      vars:
        pd_device: cpu
        pd_root: "{{ out }}/root"
        pd_model: %s
        pd_servers:
          - {name: prefill-0, role: prefill, port: %d, bootstrap_port: %d, nccl_port: %d}
          - {name: decode-0, role: decode, port: %d, nccl_port: %d}
        pd_router: {port: %d, prometheus_port: %d}
"""


@pytest.fixture
def free_ports() -> Iterator[list[int]]:
    sockets = [socket.socket() for _ in range(7)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    yield numbers


def preflight(tmp_path: Path, ports: list[int], model: str, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    (tmp_path / "inventory.yml").write_text(INVENTORY % (model, *ports))
    (tmp_path / "play.yml").write_text(PLAY)
    done = subprocess.run(
        [PLAYBOOK, "play.yml", "-i", "inventory.yml", "-e", json.dumps({"out": str(tmp_path)}), *arguments],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    record: dict[str, Any] = json.loads((tmp_path / "records" / "preflight-box1.json").read_text())
    return done.returncode, done.stdout + done.stderr, record


@pytest.mark.parametrize("mode", [[], ["--check", "--diff"]])
def test_a_fit_box_passes_and_its_facts_and_verdicts_are_kept(
    tmp_path: Path, free_ports: list[int], mode: list[str]
) -> None:
    rc, output, record = preflight(tmp_path, free_ports, "{source: canary}", *mode)
    vetoes = [v for v in record["verdicts"] if v["severity"] == "veto" and not v["ok"]]
    assert rc == (2 if vetoes else 0), output
    assert not {"port_taken", "python_too_old", "root_not_writable"} & {veto["id"] for veto in vetoes}
    assert record["host"] == "box1"
    assert record["facts"]["cpu"]["count"] == os.cpu_count()
    assert not (tmp_path / "root").exists()


def test_a_taken_port_and_a_missing_shard_are_both_named_with_their_cures(
    tmp_path: Path, free_ports: list[int]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-7.safetensors"}}')
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_ports[0]))
        server.listen()
        rc, output, record = preflight(tmp_path, free_ports, f'{{path: "{model}"}}')
    assert rc == 2
    assert record["veto"] is True
    assert f"port_taken: {free_ports[0]} (prefill-0) is held by PID {os.getpid()} (" in output
    assert f"stop it: kill {os.getpid()}" in output
    assert "checkpoint_incomplete: model-7.safetensors is missing" in output
    assert {"port_taken", "checkpoint_incomplete"} <= {v["id"] for v in record["verdicts"] if not v["ok"]}


def test_modules_that_later_tasks_need_are_packed_meanwhile_and_one_that_cannot_be_harms_nothing(
    tmp_path: Path, free_ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # ansible-core keeps what it has packed for the run in this folder, a file for each module.
    monkeypatch.setenv("ANSIBLE_LOCAL_TEMP", str(tmp_path / "local"))
    packed = "{{ lookup('pipe', 'ls ' ~ out ~ '/local/*/ansiballz_cache') | split | join(' ') }}"
    play = (
        PLAY
        + f"""        ahead: [pdlab.pdlab.no_such_module, pdlab.pdlab.pd_ready]
    - ansible.builtin.debug:
        msg: "PACKED {packed}"
"""
    )
    monkeypatch.setattr(sys.modules[__name__], "PLAY", play)
    rc, output, record = preflight(tmp_path, free_ports, "{source: canary}")
    assert not [v for v in record["verdicts"] if v["severity"] == "veto" and not v["ok"]] and rc == 0, output
    # A long line may be folded.
    told = " ".join(output.split()).partition("PACKED")[2]
    for module in ("box_facts", "pd_ready"):
        assert f"ansible_collections.pdlab.pdlab.plugins.modules.{module}-" in told, output
