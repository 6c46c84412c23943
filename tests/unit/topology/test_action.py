# SPDX-License-Identifier: Apache-2.0
"""The action plug-in through the real ansible-playbook: templating, line numbers, check mode."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
ROOT = Path(__file__).resolve().parents[3]
PLAY = """
- hosts: pdlab
  gather_facts: false
  tasks:
    - pdlab.pdlab.topology:
      register: pd_registered
    - pdlab.pdlab.topology:
        look: "{{ look | default(false) }}"
      register: again
    - ansible.builtin.copy:
        content: "{{ again | to_json }}"
        dest: "{{ out }}/{{ inventory_hostname }}.json"
      delegate_to: localhost
      check_mode: false
"""
HOSTS: dict[str, Any] = {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
RIGHT = """
pd_device: cpu
pd_root: "~/{{ 'pd' ~ 'root' }}"
pd_model: {source: canary}
base_port: 31000
pd_servers:
  - {name: prefill-0, role: prefill, port: "{{ base_port }}"}
  - name: decode-0
    role: decode
    env: {ODD: "100% $HOME 'é'"}
pd_router: {}
"""


@pytest.fixture
def play(tmp_path: Path) -> Any:
    def run(group_vars: str, *arguments: str, hosts: dict[str, Any] | None = None) -> tuple[int, str]:
        inventory = tmp_path / "inventory"
        (inventory / "group_vars").mkdir(parents=True)
        (inventory / "hosts.yml").write_text(
            yaml.safe_dump({"all": {"children": {"pdlab": {"hosts": hosts or HOSTS}}}})
        )
        (inventory / "group_vars" / "pdlab.yml").write_text(group_vars)
        (tmp_path / "play.yml").write_text(PLAY)
        done = subprocess.run(
            [PLAYBOOK, "play.yml", "-i", "inventory", "-e", json.dumps({"out": str(tmp_path)}), *arguments],
            cwd=tmp_path,
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("mode", [[], ["--check", "--diff"]])
def test_a_right_inventory_gives_the_plan_and_this_hosts_part(play: Any, tmp_path: Path, mode: list[str]) -> None:
    rc, output = play(RIGHT, *mode)
    assert rc == 0, output
    result = json.loads((tmp_path / "localhost.json").read_text())
    assert result["changed"] is False
    prefill, decode = result["plan"]["servers"]
    assert prefill["port"] == 31000
    assert decode["environment"]["ODD"] == "100% $HOME 'é'"
    assert result["plan"]["hosts"]["localhost"]["root"] == os.path.expanduser("~/pdroot")
    assert result["me"]["gate"] is True
    assert [server["name"] for server in result["me"]["servers"]] == ["prefill-0", "decode-0"]


def test_every_fault_is_a_line_with_file_line_key_problem_and_cure(play: Any) -> None:
    wrong = RIGHT.replace("role: decode", "rol: decode").replace("pd_router: {}", "pd_ruoter: {}\npd_answers: 5")
    rc, output = play(wrong)
    assert rc == 2
    lines = [line for line in output.splitlines() if line.startswith("inventory/")]
    assert lines == [
        "inventory/group_vars/pdlab.yml:8 pd_servers[1].role: is missing; write for example `role: prefill`",
        "inventory/group_vars/pdlab.yml:9 pd_servers[1].rol: is an unknown key; did you mean role?",
        "inventory/group_vars/pdlab.yml:11 pd_ruoter: is an unknown variable; did you mean pd_router?",
        "inventory/group_vars/pdlab.yml:12 pd_answers: is the number 5, not a list; "
        "write a list of answers, each with `prompt` and `expected`",
    ]
    assert "pd_router: is missing" in output


def test_a_variable_that_cannot_be_templated_is_one_fault_among_the_others(play: Any) -> None:
    rc, output = play(RIGHT.replace("pd_model: {source: canary}", 'pd_model: "{{ nothing }}"\npd_oracle: 1'))
    assert rc == 2
    assert "group_vars/pdlab.yml:4 pd_model: cannot be read: 'nothing' is undefined" in output
    assert "pd_model: is missing" not in output
    assert "pd_oracle: is the number 1, not a mapping" in output


def test_an_extra_variable_overrides_the_inventory_and_is_checked(play: Any) -> None:
    rc, output = play(RIGHT, "-e", '{"pd_router": {"port": "x"}}')
    assert rc == 2
    assert "pd_router.port: is the text 'x', not a whole number" in output


def test_a_fleet_gives_each_host_its_own_part(play: Any, tmp_path: Path) -> None:
    servers = RIGHT.replace("~/{{ 'pd' ~ 'root' }}", "/opt/pdlab").replace("role: prefill,", "role: prefill, host: a,")
    servers = servers.replace("role: decode", "role: decode\n    host: b")
    hosts = {name: {"ansible_host": f"192.0.2.{number}"} for number, name in enumerate("ab", start=1)}
    rc, output = play(servers, hosts=hosts)
    assert rc == 0, output
    parts = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in "ab"}
    assert parts["a"]["plan"] == parts["b"]["plan"]
    assert [parts[name]["me"]["gate"] for name in "ab"] == [False, True]
    assert parts["a"]["me"]["servers"][0]["url"] == "http://192.0.2.1:31000"
    assert parts["b"]["me"]["router"]["url"] == "http://192.0.2.2:8000"


def test_a_variable_of_one_host_only_is_refused_when_it_holds_for_all(play: Any) -> None:
    hosts = {"a": {"ansible_host": "192.0.2.1", "pd_device": "cuda"}, "b": {"ansible_host": "192.0.2.2"}}
    rc, output = play(RIGHT, hosts=hosts)
    assert rc == 2
    assert "pd_device: b and a have different values, and it holds for all hosts" in output


# --- NUMA nodes that the inventory leaves to the GPUs ----------------------------------------------------------------

GPUS = """
pd_root: /opt/pdlab
pd_model: {path: /srv/models/flash}
pd_servers:
  - {name: prefill-0, role: prefill, gpus: [0, 1]}
  - {name: decode-0, role: decode, gpus: [2, 3]}
pd_router: {}
"""


def seen(*nodes: int) -> dict[str, Any]:
    """A host on which preflight has been in the same run."""
    gpus = [{"index": index, "numa_node": node} for index, node in enumerate(nodes)]
    facts = {"gpu": {"gpus": gpus, "error": None}, "numa": [{"node": 0}, {"node": 1}]}
    return {"localhost": {**HOSTS["localhost"], "pdlab_box": {"facts": facts}}}


def test_what_preflight_saw_decides_the_nodes_and_nobody_looks_again(play: Any, tmp_path: Path) -> None:
    rc, output = play(GPUS, "-e", '{"look": true}', hosts=seen(0, 0, 1, 1))
    assert rc == 0, output
    result = json.loads((tmp_path / "localhost.json").read_text())
    assert [server["numa_node"] for server in result["me"]["servers"]] == [0, 1]
    assert result["me"]["servers"][1]["argv"][0] == "numactl"
    assert set(result["box"]) == {"gpu", "numa"}


def test_gpus_across_nodes_are_refused_with_their_line(play: Any) -> None:
    rc, output = play(GPUS, "-e", '{"look": true}', hosts=seen(0, 1, 1, 1))
    assert rc != 0
    assert "pdlab.yml:5 pd_servers[0].gpus: the GPUs lie across NUMA nodes: 0 at node 0, 1 at node 1" in output


def test_without_a_look_the_nodes_stay_open_and_the_box_is_not_asked(play: Any, tmp_path: Path) -> None:
    rc, output = play(GPUS, hosts=seen(0, 0, 1, 1))
    assert rc == 0, output
    result = json.loads((tmp_path / "localhost.json").read_text())
    assert [server["numa_pending"] for server in result["plan"]["servers"]] == [True, True]
    assert "box" not in result


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has GPUs")
def test_a_look_at_a_box_without_a_driver_says_so(play: Any) -> None:
    rc, output = play(GPUS, "-e", '{"look": true}')
    assert rc != 0
    assert "nvidia-smi is not installed" in output
