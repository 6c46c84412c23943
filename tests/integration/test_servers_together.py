# SPDX-License-Identifier: Apache-2.0
"""The module pd_servers on a real supervisord: all servers of a host are checked, started and waited for in one call."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import OF_THEM_ALL

from .conftest import BIN, CHECKOUT, Answer, Target, ansible_environment

CRASH = "ValueError: no such layer"


def server(target: Target, name: str, port: int, **options: Any) -> dict[str, Any]:
    """One server's own options."""
    every = target.arguments(name=name, port=port, **options)
    return {key: value for key, value in every.items() if key not in OF_THEM_ALL}


def reach(target: Target, servers: list[dict[str, Any]], *flags: str, **common: Any) -> Answer:
    shared = {key: value for key, value in {"root": target.root, **target.options}.items() if key in OF_THEM_ALL}
    return target.run("pdlab.pdlab.pd_servers", {"servers": servers, **shared, **common}, *flags)


def test_all_start_at_once_are_waited_for_together_and_a_second_call_changes_nothing(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    late = {"STANDIN_READY_AFTER_S": "3"}
    wanted = [server(supervisor_target, name, next(ports), env=late) for name in ("a", "b", "c")]
    first = reach(supervisor_target, wanted)
    assert not first.failed, first.data
    assert first["changed"]
    assert [(one["name"], one["state"], one["changed"]) for one in first["servers"]] == [
        (name, "running", True) for name in ("a", "b", "c")
    ]
    # Each takes 3 s: one after the other they would take 9.
    seconds = [one["seconds_to_ready"] for one in first["servers"]]
    assert min(seconds) >= 3 and max(seconds) < 9, seconds
    for one, asked in zip(first["servers"], wanted, strict=True):
        assert supervisor_target.echo(asked["port"])["argv"] == one["argv"]
    second = reach(supervisor_target, wanted)
    assert not second["changed"]
    assert [one["pid"] for one in second["servers"]] == [one["pid"] for one in first["servers"]]


def test_what_pd_server_says_of_each_is_what_pd_servers_says(supervisor_target: Target, ports: Iterator[int]) -> None:
    wanted = [server(supervisor_target, name, next(ports)) for name in ("a", "b")]
    together = reach(supervisor_target, wanted)
    assert not together.failed, together.data
    added = {"output", "invocation", "warnings", "diff", "reasons", "changed", "live_environment"}
    for one, asked in zip(together["servers"], wanted, strict=True):
        alone = supervisor_target.pd_server(**asked)
        assert not alone["changed"]
        assert {k: v for k, v in alone.data.items() if k not in added | {"failed"}} == {
            k: v for k, v in one.items() if k not in added
        }


def test_only_what_differs_is_started_anew(supervisor_target: Target, ports: Iterator[int]) -> None:
    wanted = [server(supervisor_target, name, next(ports)) for name in ("a", "b")]
    before = reach(supervisor_target, wanted)
    wanted[1]["args"] = {"x": "1"}
    preview = reach(supervisor_target, wanted, "--check", "--diff")
    assert (preview["changed"], "+" in preview["output"]) == (True, True)
    after = reach(supervisor_target, wanted)
    assert [one["changed"] for one in after["servers"]] == [False, True]
    pids = [[one["pid"] for one in answer["servers"]] for answer in (before, after)]
    assert pids[0][0] == pids[1][0] and pids[0][1] != pids[1][1]


def test_every_fault_of_every_server_is_listed_before_any_is_touched(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    wanted = [server(supervisor_target, name, next(ports)) for name in ("a", "b")]
    before = reach(supervisor_target, wanted)
    taken = next(ports)
    changed = [
        {**wanted[0], "args": {"x": "1"}},
        {**wanted[1], "python": "/no/python", "nccl_port": taken},
    ]
    with socket.create_server(("127.0.0.1", taken)):
        answer = reach(supervisor_target, changed)
    assert answer.failed
    assert [fault.split(": ")[:2] for fault in answer["faults"]] == [["b", "python"], ["b", "nccl_port"]]
    assert answer["msg"].startswith("nothing was touched, because:\n- b: python: /no/python")
    # The first had no fault and was to change: it still runs as it did.
    assert [one["pid"] for one in reach(supervisor_target, wanted)["servers"]] == [
        one["pid"] for one in before["servers"]
    ]


def test_options_that_are_no_servers_are_refused_all_at_once(supervisor_target: Target, ports: Iterator[int]) -> None:
    wrong = [
        {**server(supervisor_target, "a", next(ports)), "wait": False},
        {**server(supervisor_target, "b", next(ports)), "port": "many", "colour": "red"},
    ]
    answer = reach(supervisor_target, wrong)
    assert answer.failed
    text = answer["msg"]
    assert "a: wait: counts for all servers; say it beside servers" in text
    assert "b: " in text and "many" in text and "colour" in text


def test_one_that_dies_ends_the_wait_with_its_own_words_and_the_others_stay(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    port = next(ports)
    wanted = [
        server(supervisor_target, "slow", port, env={"STANDIN_READY_AFTER_S": "40"}),
        server(supervisor_target, "dies", next(ports), env={"STANDIN_CRASH": CRASH, "STANDIN_CRASH_AFTER_S": "2"}),
    ]
    began = time.monotonic()
    answer = reach(supervisor_target, wanted)
    assert answer.failed
    assert time.monotonic() - began < 25
    assert answer["name"] == "dies"
    assert answer["msg"].startswith("dies died before it was ready: ")
    assert answer["error_lines"][0].startswith(CRASH)
    assert [(one["name"], one["state"]) for one in answer["servers"]] == [("slow", "running"), ("dies", "stopped")]
    assert supervisor_target.echo(port)["pid"] == answer["servers"][0]["pid"]


def test_a_router_is_started_beside_its_servers_not_waited_for_and_told_when_they_are_ready(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    engine = server(supervisor_target, "a", next(ports), env={"STANDIN_READY_AFTER_S": "2"})
    router = {
        **{key: value for key, value in engine.items() if key in ("python", "host")},
        "name": "router", "role": "router", "port": next(ports), "prometheus_port": next(ports),
        "env": {**engine["env"], "STANDIN_READY_AFTER_S": "600"},
        "workers": [{"role": "colocated", "url": f"http://127.0.0.1:{engine['port']}", "name": "a"}],
    }  # fmt: skip
    answer = reach(supervisor_target, [engine, router], timeout_s=60)
    assert not answer.failed, answer.data
    assert [(one["state"], one["seconds_to_ready"] is None) for one in answer["servers"]] == [
        ("running", False), ("running", True),
    ]  # fmt: skip
    # It was told of the one that is ready; a second call finds it known.
    again = reach(supervisor_target, [engine, router], timeout_s=60)
    assert not again["changed"]
    with urllib.request.urlopen(f"http://127.0.0.1:{router['port']}/workers", timeout=10) as reply:
        assert json.load(reply) == {"workers": [{"url": router["workers"][0]["url"], "worker_type": "regular"}]}


@pytest.mark.parametrize("fails", [False, True])
def test_the_run_folder_keeps_each_servers_result(
    supervisor_target: Target, ports: Iterator[int], tmp_path: Path, fails: bool
) -> None:
    wanted = [server(supervisor_target, name, next(ports)) for name in ("a", "b")]
    if fails:
        wanted[1]["env"] = {**wanted[1]["env"], "STANDIN_CRASH": CRASH}
    answer = reach(supervisor_target, wanted, run_dir=str(tmp_path), record="servers-here")
    records = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "records").iterdir()}
    assert set(records) == {"server-a", "server-b"}
    assert [bool(records[f"server-{name}"].get("failed")) for name in ("a", "b")] == [False, fails]
    assert answer.failed is fails
    if fails:
        assert records["server-b"]["msg"] == answer["msg"]
        assert answer["record"] == str(tmp_path / "records" / "server-b.json")
        refused = reach(supervisor_target, [{**wanted[0], "port": 0}], run_dir=str(tmp_path), record="servers-here")
        kept = json.loads((tmp_path / "records" / "servers-here.json").read_text())
        assert (kept["failed"], kept["msg"]) == (True, refused["msg"])


def test_the_role_starts_the_router_beside_the_servers_only_when_it_is_asked_to(
    supervisor_target: Target, ports: Iterator[int], tmp_path: Path
) -> None:
    port, router_port = next(ports), next(ports)
    engine = {**server(supervisor_target, "a", port), "host": "localhost", "nccl_port": next(ports)}
    worker = {"role": "colocated", "url": f"http://127.0.0.1:{port}", "name": "a"}
    of_both = {key: engine[key] for key in ("python", "env", "host")}
    router = {**of_both, "name": "router", "role": "router", "port": router_port, "workers": [worker]}
    router["prometheus_port"] = next(ports)
    # As in a plan: a description there says where it ends up, too.
    plan = [{**part, "argv": [], "environment": {}, "unit": "pdlab-x", "log": "/x"} for part in (engine, router)]
    # Where the role's other part would have put it.
    programs = Path(supervisor_target.root) / "supervisor" / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "supervisord").symlink_to(BIN / "supervisord")
    for beside in (False, True):
        variables = {
            "servers_root": supervisor_target.root,
            "servers_manager": "supervisor",
            "servers_list": plan[:1],
            "servers_router": plan[1],
            "servers_with_router": beside,
        }
        play = {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [
                {"ansible.builtin.import_role": {"name": "pdlab.pdlab.servers"}, "vars": variables},
                {"ansible.builtin.debug": {"msg": "NAMES={{ servers_result.keys() | sort | join(',') }}"}},
            ],
        }
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
        done = subprocess.run(
            [
                BIN / "ansible-playbook", "-i", "localhost,", "-c", "local",
                "-e", f"ansible_python_interpreter={sys.executable}", tmp_path / "play.yml",
            ],
            cwd=CHECKOUT, env=ansible_environment(), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"NAMES={'a,router' if beside else 'a'}\n" in done.stdout, done.stdout
