# SPDX-License-Identifier: Apache-2.0
"""`pdlab down` and `pdlab undo` beside a run that is on: refused, forced, and not kept back by a dead run."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock, processes
from rich.console import Console

from pdlab import session
from pdlab.exit_codes import Exit
from pdlab.runner import Outcome, PlaybookOptions, TaskResult

CHECKOUT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
FORCED = {"down": "--force", "undo": "--during-run"}
PLAYBOOKS = {"down": "down", "undo": "host_undo", "cancel": "cancel"}
# What touches a host in these playbooks: a refusal must come before each of them.
WORK = ("pd_bench", "pd_server", "prometheus", "host_settings", "model_files")


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["/bin/sleep", "120"], start_new_session=True)
    yield child
    child.kill()
    child.wait()


def held_by(root: Path, pid: int) -> Path:
    """Let a process hold a root, as a run does."""
    here = host_lock.this_machine()
    holder = {**here, "pid": pid, "pid_started": processes.started_at(pid)}
    path = Path(host_lock.lock_path(str(root)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(host_lock.new_lock(holder, None, 7200, 0.0)))
    return path


def pdlab(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "pdlab"), *arguments, "-e", "pd_service_manager=supervisor"],
        cwd=root.parent,
        env={**os.environ, "PDLAB_ROOT": str(root), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_neither_services_nor_settings_are_taken_from_under_a_run_unless_that_is_said(
    tmp_path: Path, other: Any
) -> None:
    root = tmp_path / "root"
    lock = held_by(root, other.pid)
    for command, how in FORCED.items():
        refused = pdlab(root, command)
        assert refused.returncode == Exit.BUSY, refused.stderr
        assert f"another pdlab run (PID {other.pid} on " in refused.stderr
        assert f"pdlab {command} {how}" in refused.stderr
        assert refused.stderr.count("holds this host") == 1, "it is told once"
    checked = pdlab(root, "undo", "--check")
    assert (checked.returncode, "this would be refused" in checked.stderr) == (Exit.OK, True), checked.stderr
    forced = pdlab(root, "down", FORCED["down"])
    assert forced.returncode == Exit.OK, forced.stderr
    assert f"PID {other.pid}" in forced.stderr and "going on all the same" in forced.stderr
    assert json.loads(lock.read_text())["holder"]["pid"] == other.pid, "the run's hold is the run's"


def test_a_dead_run_does_not_stand_in_the_way_and_nothing_holds_the_host_afterwards(tmp_path: Path, other: Any) -> None:
    lock = held_by(tmp_path / "root", other.pid)
    other.kill()
    other.wait()
    done = pdlab(tmp_path / "root", "down")
    assert done.returncode == Exit.OK, done.stderr
    assert not lock.exists()


def test_a_box_without_anything_of_pdlabs_gets_nothing(tmp_path: Path) -> None:
    done = pdlab(tmp_path / "root", "down")
    assert (done.returncode, done.stdout.strip()) == (Exit.OK, "nothing was running")
    assert not (tmp_path / "root").exists()


def test_a_run_on_one_host_keeps_the_other_hosts_of_the_fleet_as_they_are(tmp_path: Path, other: Any) -> None:
    hosts = {
        f"box{number}": {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "pd_root": str(tmp_path / f"root{number}"),
            "pd_address": f"192.0.2.{number}",
        }
        for number in (1, 2)
    }
    shared = {
        "pd_device": "cpu",
        "pd_service_manager": "supervisor",
        "pd_model": {"source": "canary"},
        "pd_servers": [
            {"name": "prefill-0", "role": "prefill", "host": "box1"},
            {"name": "decode-0", "role": "decode", "host": "box2"},
        ],
        "pd_router": {"port": 8000},
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"pdlab": {"hosts": hosts, "vars": shared}}))
    held_by(tmp_path / "root1", other.pid)
    free = Path(host_lock.lock_path(str(tmp_path / "root2")))
    free.parent.mkdir(parents=True)
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", str(tmp_path / "hosts.yml"), "pdlab.pdlab.down"],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert f"PID {other.pid}" in done.stdout
    told = done.stdout.split("TASK [Remove the services]")[1].split("TASK")[0]
    assert "skipping: [box2]" in told and "ok: [" not in told and "changed: [" not in told, told
    assert not free.exists(), "the host that was free is let go"


@pytest.mark.parametrize(
    ("local", "status"), [(False, "successful"), (False, "failed"), (False, "cancelled"), (True, "failed")]
)
def test_a_run_on_another_machine_lets_go_of_it_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool, status: str
) -> None:
    played = []

    def stand_in(playbook: str, *_args: Any, **_rest: Any) -> Outcome:
        played.append(playbook)
        plan = {"hosts": {"here": {"local": True}, "box1": {"local": local}}}
        result = TaskResult("box1", "t", "pdlab.pdlab.topology", {"plan": plan})
        return Outcome(status=status, results=[result])

    monkeypatch.setattr(session, "run_playbook", stand_in)
    console = Console(file=io.StringIO(), width=80)
    session.Session(console, PlaybookOptions(tmp_path), tmp_path / "runs").run("site")
    assert (played[-1] == "let_go") is not local
    assert played.count("let_go") == (0 if local else 1)
    played.clear()
    session.Session(console, PlaybookOptions(tmp_path, check=True), tmp_path / "runs").run("site")
    assert "let_go" not in played, "in check mode nothing was held"


def flat(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tasks in their order, those of blocks among them."""
    for task in tasks:
        yield task
        yield from flat(task.get("block", []))


@pytest.mark.parametrize("playbook", sorted(PLAYBOOKS.values()))
def test_a_playbook_that_stops_or_changes_something_outside_of_a_run_holds_the_host_first(playbook: str) -> None:
    (play,) = yaml.safe_load((CHECKOUT / "playbooks" / f"{playbook}.yml").read_text())
    tasks = list(flat(play["tasks"]))
    held = [number for number, task in enumerate(tasks) if task.get("ansible.builtin.import_tasks") == "tasks/hold.yml"]
    work = [number for number, task in enumerate(tasks) if any(f"pdlab.pdlab.{name}" in task for name in WORK)]
    assert len(held) == 1 and work and held[0] < min(work)
