# SPDX-License-Identifier: Apache-2.0
"""One run at a time on a host, and no dead run in the way."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock, processes
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.host_hold import is_gone, when_gone

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "plugins" / "modules" / "run_lock.py"
AWAY = {"controller": "laptop", "machine_id": "f" * 32, "pid": 1234, "pid_started": 1700000000.0}


def holder_of(pid: int) -> dict[str, Any]:
    here = host_lock.this_machine()
    started = processes.started_at(pid)
    return {"controller": here["controller"], "machine_id": here["machine_id"], "pid": pid, "pid_started": started}


@pytest.fixture
def me() -> dict[str, Any]:
    return holder_of(os.getpid())


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    yield child
    child.kill()
    child.wait()


def ask(root: Path, holder: dict[str, Any], check: bool = False, **options: Any) -> dict[str, Any]:
    """Run the module as Ansible does: its own process, arguments as JSON."""
    arguments = {"root": str(root), "holder": holder, **options, "_ansible_check_mode": check}
    done = subprocess.run(
        [sys.executable, str(MODULE)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        env={**os.environ, "PYTHONPATH": str(ROOT / ".collections")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def lock_of(root: Path) -> dict[str, Any]:
    lock: dict[str, Any] = json.loads((root / "state" / "run.lock").read_text())
    return lock


def age(root: Path, seconds: float) -> None:
    """Make a lock look as old as that."""
    lock = lock_of(root)
    lock["refreshed"] -= seconds
    (root / "state" / "run.lock").write_text(json.dumps(lock))


def test_a_free_host_is_taken_without_a_change_being_reported(tmp_path: Path, me: dict[str, Any]) -> None:
    answer = ask(tmp_path / "root", me)
    assert (answer["held"], answer["changed"], answer["held_by"], answer["took_over"]) == (True, False, None, None)
    assert lock_of(tmp_path / "root")["holder"]["pid"] == os.getpid()


def test_the_same_run_takes_it_again_and_refreshes_its_lease(tmp_path: Path, me: dict[str, Any]) -> None:
    ask(tmp_path, me)
    age(tmp_path, 100)
    before = lock_of(tmp_path)
    assert ask(tmp_path, me)["held"] is True
    after = lock_of(tmp_path)
    assert after["taken"] == before["taken"]
    assert after["refreshed"] > before["refreshed"] + 99


def test_a_second_run_is_refused_with_the_pid_of_the_first(tmp_path: Path, me: dict[str, Any], neighbour: Any) -> None:
    ask(tmp_path, holder_of(neighbour.pid))
    answer = ask(tmp_path, me)
    assert answer["failed"] is True
    assert answer["held_by"]["pid"] == neighbour.pid
    assert f"another pdlab run (PID {neighbour.pid} on " in answer["msg"]
    assert answer["msg"].endswith(f"wait for it or stop it: kill {neighbour.pid}")
    assert lock_of(tmp_path)["holder"]["pid"] == neighbour.pid


def test_a_run_that_died_is_taken_over(tmp_path: Path, me: dict[str, Any], neighbour: Any) -> None:
    dead = holder_of(neighbour.pid)
    ask(tmp_path, dead)
    neighbour.kill()
    neighbour.wait()
    answer = ask(tmp_path, me)
    assert answer["held"] is True
    assert answer["took_over"]["pid"] == dead["pid"]


def test_another_process_with_the_pid_of_a_dead_run_is_not_taken_for_it(
    tmp_path: Path, me: Any, neighbour: Any
) -> None:
    reused = {**holder_of(neighbour.pid), "pid_started": time.time() - 86400}
    ask(tmp_path, reused)
    assert ask(tmp_path, me)["took_over"]["pid"] == neighbour.pid


def test_a_run_from_before_a_reboot_is_taken_over(tmp_path: Path, me: dict[str, Any], neighbour: Any) -> None:
    ask(tmp_path, holder_of(neighbour.pid))
    (tmp_path / "state" / "run.lock").write_text(json.dumps({**lock_of(tmp_path), "boot_id": "another"}))
    assert ask(tmp_path, me)["held"] is True


def test_a_run_of_another_machine_is_believed_until_its_lease_ends(tmp_path: Path, me: dict[str, Any]) -> None:
    ask(tmp_path, AWAY, lease_s=60)
    refused = ask(tmp_path, me)
    assert "PID 1234 on laptop, started 2023-11-14 22:13:20Z" in refused["msg"]
    assert "stop it on laptop: kill 1234 (its hold ends by itself at " in refused["msg"]
    age(tmp_path, 61)
    assert ask(tmp_path, me)["took_over"]["pid"] == 1234


def test_a_controller_that_knows_its_run_is_gone_takes_over_at_once(tmp_path: Path) -> None:
    ask(tmp_path, AWAY)
    answer = ask(tmp_path, {**AWAY, "pid": 99}, gone=AWAY)
    assert answer["took_over"]["pid"] == 1234
    assert ask(tmp_path, {**AWAY, "pid": 100}, gone=AWAY)["failed"] is True, "the word is about one holder only"


def test_a_forced_caller_leaves_the_runs_hold_as_it_is(tmp_path: Path, me: dict[str, Any], neighbour: Any) -> None:
    ask(tmp_path, holder_of(neighbour.pid))
    before = lock_of(tmp_path)
    answer = ask(tmp_path, me, force=True)
    assert (answer.get("failed", False), answer["held"], answer["held_by"]["pid"]) == (False, False, neighbour.pid)
    assert any(f"PID {neighbour.pid}" in str(warning) for warning in answer["warnings"])
    assert lock_of(tmp_path) == before
    assert ask(tmp_path / "free", me, force=True)["held"] is True, "a free host is held as ever"


def test_a_refusal_says_how_to_go_on_all_the_same_where_there_is_a_way(
    tmp_path: Path, me: dict[str, Any], neighbour: Any
) -> None:
    ask(tmp_path, holder_of(neighbour.pid))
    assert ask(tmp_path, me, anyway="say --force")["msg"].endswith(f"kill {neighbour.pid}; or say --force")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "state").write_text("a file in the way")
    assert ask(tmp_path / "other", me, anyway="say --force")["msg"].endswith("; or say --force")
    assert not ask(tmp_path / "other", me, force=True).get("failed"), "a disk that is full can be cleared of its stack"


def test_a_host_without_a_folder_for_locks_needs_none_when_nothing_is_to_be_made(tmp_path: Path, me: Any) -> None:
    answer = ask(tmp_path / "root", me, make=False)
    assert (answer.get("failed", False), answer["held"], answer["held_by"]) == (False, False, None)
    assert not (tmp_path / "root").exists()


def test_a_dead_run_of_this_controller_is_asked_about_again_also_where_nothing_failed(neighbour: Any) -> None:
    dead = holder_of(neighbour.pid)
    neighbour.kill()
    neighbour.wait()
    asked: list[dict[str, Any]] = []

    def answers(more: dict[str, Any]) -> dict[str, Any]:
        asked.append(more)
        return {"held": False, "held_by": None if more else dead}

    assert when_gone(answers)["held_by"] is None
    assert asked == [{}, {"gone": dead}]


def test_the_controller_knows_the_dead_of_its_own_machine_only(me: dict[str, Any], neighbour: Any) -> None:
    mine = holder_of(neighbour.pid)
    assert not is_gone(mine)
    neighbour.kill()
    neighbour.wait()
    assert is_gone(mine)
    assert not is_gone(AWAY)


def test_letting_go_removes_the_own_lock_and_no_other(tmp_path: Path, me: dict[str, Any], neighbour: Any) -> None:
    assert ask(tmp_path, me, state="absent")["held"] is False
    ask(tmp_path, holder_of(neighbour.pid))
    answer = ask(tmp_path, me, state="absent")
    assert answer["held_by"]["pid"] == neighbour.pid
    assert lock_of(tmp_path)["holder"]["pid"] == neighbour.pid
    ask(tmp_path, holder_of(neighbour.pid), state="absent")
    assert not (tmp_path / "state" / "run.lock").exists()


def test_check_mode_tells_who_is_there_and_takes_nothing(tmp_path: Path, me: dict[str, Any], neighbour: Any) -> None:
    answer = ask(tmp_path / "root", me, check=True)
    assert (answer["held"], answer.get("failed", False)) == (False, False)
    assert not (tmp_path / "root").exists()
    ask(tmp_path, holder_of(neighbour.pid))
    answer = ask(tmp_path, me, check=True)
    assert answer["held_by"]["pid"] == neighbour.pid
    assert not answer.get("failed")


def test_of_many_runs_at_once_one_gets_the_host(tmp_path: Path) -> None:
    children = [subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) for _ in range(6)]
    try:
        with ThreadPoolExecutor(len(children)) as pool:
            answers = list(pool.map(lambda child: ask(tmp_path, holder_of(child.pid)), children))
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert sum(answer.get("held", False) for answer in answers) == 1
    winner = lock_of(tmp_path)["holder"]["pid"]
    assert {answer["held_by"]["pid"] for answer in answers if answer.get("failed")} == {winner}


def test_a_lock_that_makes_no_sense_is_replaced(tmp_path: Path, me: dict[str, Any]) -> None:
    (tmp_path / "state").mkdir()
    for nonsense in ("", "{}", "[]", '{"holder": 5, "taken": 1, "refreshed": 1, "lease_s": 1}'):
        (tmp_path / "state" / "run.lock").write_text(nonsense)
        assert ask(tmp_path, me)["held"] is True


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path, me: dict[str, Any]) -> None:
    (tmp_path / "state").write_text("a file in the way")
    answer = ask(tmp_path, me)
    assert answer["failed"] is True
    assert f"the lock {tmp_path}/state/run.lock cannot be written: " in answer["msg"]
    assert "set another pd_root" in answer["msg"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_state_folder_is_named(
    tmp_path: Path, me: dict[str, Any], number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ansible.module_utils.testing import patch_module_args
    from ansible_collections.pdlab.pdlab.plugins.modules import run_lock

    def refuse(path: str, data: Any) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(host_lock, "write_json", refuse)
    with patch_module_args({"root": str(tmp_path), "holder": me}), pytest.raises(SystemExit):
        run_lock.main()
    answer = json.loads(capsys.readouterr().out)
    assert os.strerror(number) in answer["msg"]
    assert str(tmp_path / "state") in answer["msg"]
