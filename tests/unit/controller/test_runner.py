# SPDX-License-Identifier: Apache-2.0
"""Playing the collection's playbooks from the controller, and what is made of their events."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from pdlab import runner
from pdlab.collection import resolve_extra_vars, resolve_inventory
from pdlab.failures import failure_lines, first_line
from pdlab.runner import Cancellation, Outcome, PlaybookOptions, TaskResult


class Listening:
    def __init__(self) -> None:
        self.started: list[str] = []
        self.done: list[TaskResult] = []
        self.failed: list[TaskResult] = []
        self.words: list[str] = []

    def task_started(self, play: str, task: str) -> None:
        self.started.append(task)

    def task_done(self, result: TaskResult) -> None:
        self.done.append(result)

    def task_failed(self, result: TaskResult) -> None:
        self.failed.append(result)

    def said(self, text: str) -> None:
        self.words.append(text)


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": data}


def test_the_users_options_survive_with_blanks_quotes_and_dollars(tmp_path: Path) -> None:
    extra = '{"pd_server_env": {"A": "b c $HOME \'q\'"}}'
    options = PlaybookOptions(tmp_path, tags="deploy,ready", extra_vars=[extra, "x=1"], check=True, diff=True)
    words = ["--tags", "deploy,ready", "-e", extra, "-e", "x=1", "--check", "--diff"]
    assert shlex.split(options.command_line()) == words


def test_a_real_playbook_gives_its_results_to_the_outcome_and_the_listener(tmp_path: Path) -> None:
    listener = Listening()
    outcome = runner.run_playbook("plan", PlaybookOptions(resolve_inventory("local")), tmp_path, listener=listener)
    assert outcome.ok, outcome.output
    (result,) = outcome.of_action("topology")
    assert [server["name"] for server in result.result["plan"]["servers"]] == ["prefill-0", "decode-0"]
    assert listener.started == ["Read and check the topology"]
    assert outcome.changed == 0


def test_an_inventory_that_ansible_cannot_read_fails_with_what_ansible_said(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {children: {pdlab: {hosts: [}}}\n")
    outcome = runner.run_playbook("plan", PlaybookOptions(tmp_path / "hosts.yml"), tmp_path / "private")
    assert not outcome.ok
    assert "hosts.yml" in outcome.output or "hosts.yml" in "\n".join(failure_lines(outcome))


def test_an_inventory_without_the_group_pdlab_is_not_an_empty_success(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {box: {}}}\n")
    outcome = runner.run_playbook("plan", PlaybookOptions(tmp_path / "hosts.yml"), tmp_path / "private")
    assert not outcome.ok
    assert "pdlab" in "\n".join(failure_lines(outcome))


def test_a_failed_task_is_a_failure_and_an_ignored_one_is_not() -> None:
    outcome = Outcome()
    events = runner._Events(outcome, None)
    events(event("runner_on_failed", host="h", task="a", task_action="x", res={"msg": "no"}))
    events(event("runner_on_failed", host="h", task="b", task_action="x", res={"msg": "so what"}, ignore_errors=True))
    assert [failure.task for failure in outcome.failures] == ["a"]
    assert failure_lines(outcome) == ["h: a", "  no"]
    assert first_line(outcome) == "no"


def test_a_failed_loop_says_what_each_failed_item_said() -> None:
    items = [{"msg": "fine"}, {"msg": "port taken", "failed": True}, {"msg": "no model", "failed": True}]
    result = TaskResult("h", "servers", "x", {"msg": "One or more items failed", "results": items})
    assert result.message == "port taken\nno model"


def test_an_unreachable_host_is_named() -> None:
    outcome = Outcome()
    runner._Events(outcome, None)(event("runner_on_unreachable", host="box2", task="t", res={"msg": "no route"}))
    assert failure_lines(outcome) == ["box2: unreachable", "  no route"]


def test_a_cancel_interrupts_ansible_first_and_kills_only_after_the_grace_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(runner, "_children", lambda _pid, _name: [4711])
    monkeypatch.setattr(runner.os, "kill", lambda pid, number: sent.append((pid, number)))
    cancellation = Cancellation()
    callback = runner._Cancel(cancellation)
    assert callback() is False and not sent
    cancellation.request()
    assert callback() is False
    assert callback() is False
    assert sent == [(4711, runner.signal.SIGINT)]
    cancellation.requested_at -= runner.GRACE_S + 1
    assert callback() is True


def test_a_second_request_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_children", lambda _pid, _name: [])
    cancellation = Cancellation()
    cancellation.request()
    cancellation.request()
    assert runner._Cancel(cancellation)() is True


def test_an_inventory_is_found_by_path_and_by_the_name_of_a_shipped_one(tmp_path: Path) -> None:
    assert resolve_inventory(None).name == "local"
    assert resolve_inventory("inventory/local") == resolve_inventory("local").resolve()
    assert resolve_inventory(str(tmp_path)) == tmp_path
    with pytest.raises(FileNotFoundError, match=r"pdlab ships: .*local"):
        resolve_inventory("nowhere")


def test_a_file_of_variables_is_found_from_where_the_user_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layer.yml").write_text("pd_rehearsal: true\n")
    monkeypatch.chdir(tmp_path)
    assert resolve_extra_vars(["@layer.yml", "a=b"]) == (f"@{tmp_path}/layer.yml", "a=b")
    with pytest.raises(FileNotFoundError, match=r"-e @other\.yml: no such file"):
        resolve_extra_vars(["@other.yml"])
