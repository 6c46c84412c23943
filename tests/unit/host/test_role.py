# SPDX-License-Identifier: Apache-2.0
"""The role host as the playbooks call it: what the inventory's pd_host becomes, and when nothing is done at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
NAMES = ("result", "root", "commands", "settings", "gpus")
GIVEN_ON = "{{ {" + ", ".join(f"'{name}': host_{name}" for name in NAMES) + "} | to_json }}"
TASKS = [
    {"ansible.builtin.import_role": {"name": "pdlab.pdlab.host", "rolespec_validate": False}},
    {
        "ansible.builtin.copy": {"content": GIVEN_ON, "dest": "{{ result_file }}"},
        "check_mode": False,
    },
]
PLAYBOOK = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(CHECKOUT / "playbooks" / "vars" / "wiring.yml")],
        "tasks": TASKS,
    }
]
FOUND = {"facts": {"numactl": {"path": "/usr/bin/numactl"}}}


def play(folder: Path, **variables: Any) -> dict[str, Any]:
    """Play the role in check mode; what it was given, and the result of its one task."""
    (folder / "play.yml").write_text(json.dumps(PLAYBOOK))
    servers = [{"gpus": [0, 1]}, {"gpus": [1]}]
    topology = {"plan": {}, "me": {"host": {"root": str(folder / "root")}, "servers": servers}}
    result = folder / "result.json"
    given = {
        "pdlab_topology": topology,
        "ansible_python_interpreter": sys.executable,
        "result_file": str(result),
        **variables,
    }
    program = str(Path(sys.executable).parent / "ansible-playbook")
    done = subprocess.run(
        [program, "--check", "play.yml", "-i", "localhost,", "-e", json.dumps(given)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".collections"),
        },
    )
    assert result.exists(), done.stdout + done.stderr
    return dict(json.loads(result.read_text()))


@pytest.mark.parametrize(
    "variables",
    [
        {"pdlab_box": FOUND, "pd_host": {"packages": None, "swap": None, "limits": None}},
        {"pd_host": {"packages": {}}},
    ],
    ids=["preflight found numactl, only nulls", "no packages wanted"],
)
def test_when_nothing_is_asked_for_no_task_reaches_the_host(tmp_path: Path, variables: dict[str, Any]) -> None:
    assert play(tmp_path, **variables)["result"].get("skipped") is True


def test_what_pd_host_asks_for_reaches_the_module(tmp_path: Path) -> None:
    asked = {"swap": None, "packages": {"gcc": "gcc"}, "limits": {"memlock_gib": 64, "nofile": None}}
    played = play(tmp_path, pdlab_box=FOUND, pd_host={**asked, "sysctl": {"vm.swappiness": 9}})
    assert played["settings"] == {"limits": asked["limits"], "sysctl": {"vm.swappiness": 9}}
    assert (played["commands"], played["gpus"]) == ({"gcc": "gcc"}, [0, 1])
    assert played["root"] == str(tmp_path / "root")
    assert set(played["result"]["commands"]) == {"gcc"}
    assert played["result"]["failed"] is False
