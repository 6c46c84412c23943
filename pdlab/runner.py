# SPDX-License-Identifier: Apache-2.0
"""Run one of the collection's playbooks through ansible-runner and tell a listener what happens.

ansible-runner's own cancelling leaves Ansible's workers and whatever they run behind (ansible-runner issue 973):
workers have sessions of their own, and the runner kills one process group only. So a cancel first sends SIGINT to
ansible-playbook, which ends its workers itself, and only after a grace time lets the runner kill what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pdlab.collection import ansible_config

COLLECTION = "pdlab.pdlab"
INTERRUPTED = 99
GRACE_S = 5.0
POLL_S = 0.3


@dataclass(frozen=True)
class PlaybookOptions:
    """What a user may pass through to ansible-playbook, under its own names."""

    inventory: Path
    limit: str | None = None
    tags: str | None = None
    skip_tags: str | None = None
    extra_vars: Sequence[str] = ()
    check: bool = False
    diff: bool = False
    verbosity: int = 0

    def command_line(self) -> str:
        """The options as one string, quoted for ansible-runner, which splits it with shlex."""
        argv: list[str] = []
        for flag, value in (("--tags", self.tags), ("--skip-tags", self.skip_tags)):
            if value:
                argv += [flag, value]
        for item in self.extra_vars:
            argv += ["-e", item]
        argv += ["--check"] * self.check + ["--diff"] * self.diff
        return shlex.join(argv)


@dataclass(frozen=True)
class TaskResult:
    """The result of one task on one host."""

    host: str
    task: str
    action: str
    result: Mapping[str, Any]

    def each(self) -> list[Mapping[str, Any]]:
        """The results of a loop's items, or the one result of a task without a loop."""
        return list(self.result.get("results") or [self.result])

    @property
    def message(self) -> str:
        """What went wrong, in the module's own words."""
        failed = [item for item in self.each() if item.get("failed")]
        if "results" in self.result and failed:
            return "\n".join(str(item.get("msg") or "no message").strip() for item in failed)
        text = self.result.get("msg") or self.result.get("stderr") or self.result.get("exception") or "no message"
        return str(text).strip()


@dataclass
class Outcome:
    """How a playbook ended. `status` is successful, failed or cancelled."""

    status: str = "failed"
    return_code: int = 1
    failures: list[TaskResult] = field(default_factory=list)
    unreachable: list[TaskResult] = field(default_factory=list)
    results: list[TaskResult] = field(default_factory=list)
    changed: int = 0
    output: str = ""

    @property
    def ok(self) -> bool:
        """Whether every task on every host went through."""
        return self.status == "successful"

    def add(self, later: Outcome) -> None:
        """What another playbook of the same run came to. It is good only when both are."""
        if not later.ok:
            self.status, self.return_code = later.status, later.return_code
        self.failures += later.failures
        self.unreachable += later.unreachable
        self.results += later.results
        self.changed += later.changed
        self.output += later.output

    @property
    def only_points_failed(self) -> bool:
        """Whether nothing went wrong but points of the benchmark."""
        failures = [*self.failures, *self.unreachable]
        return bool(failures) and all(failure.result.get("failed_points") for failure in failures)

    @property
    def refused_by_a_run(self) -> bool:
        """Whether another run holds a host that this one wanted."""
        return any(failure.result.get("held_by") for failure in self.failures)

    def of_action(self, action: str) -> list[TaskResult]:
        """Results of the collection's plug-in `action`, in order."""
        return [result for result in self.results if result.action == f"{COLLECTION}.{action}"]


class Listener(Protocol):
    """What wants to know about a run while it goes on."""

    def task_started(self, play: str, task: str) -> None: ...

    def task_done(self, result: TaskResult) -> None: ...

    def task_failed(self, result: TaskResult) -> None: ...

    def said(self, text: str) -> None: ...


class Cancellation:
    """Set by a signal handler; asked by the runner about three times a second."""

    def __init__(self) -> None:
        self.requested_at: float | None = None
        self.signals_sent = 0

    def request(self) -> None:
        """Ask the run to end. A second request ends it at once."""
        self.requested_at = self.requested_at or time.monotonic()
        self.signals_sent += 1

    @property
    def requested(self) -> bool:
        """Whether somebody asked."""
        return self.requested_at is not None


class _Cancel:
    """The two steps of a cancel, as a callback of ansible-runner: True lets the runner kill."""

    def __init__(self, cancellation: Cancellation) -> None:
        self.cancellation = cancellation
        self.interrupted = False

    def __call__(self) -> bool:
        asked = self.cancellation.requested_at
        if asked is None:
            return False
        if not self.interrupted:
            self.interrupted = True
            for pid in _children(os.getpid(), "ansible-playbook"):
                os.kill(pid, signal.SIGINT)
        return time.monotonic() - asked > GRACE_S or self.cancellation.signals_sent > 1


def _children(pid: int, name: str) -> list[int]:
    """Child processes of this one whose command line names `name` (psutil-free; Linux and macOS)."""
    import subprocess

    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=False)  # noqa: S607
    found = []
    for line in listing.stdout.splitlines():
        match = re.match(r"\s*(\d+)\s+(\d+)\s+(.*)", line)
        if match and int(match[2]) == pid and name in match[3]:
            found.append(int(match[1]))
    return found


def end_playbooks(run_dir: Path, wait_s: float = 20.0) -> int:
    """End every ansible-playbook that still writes below `run_dir`: its pdlab was killed, and nobody else would.

    Returns how many there were. They are interrupted first, so that they end their own workers, and killed after
    `wait_s` seconds.
    """
    found = _writers(run_dir)
    for number, patience in ((signal.SIGINT, wait_s), (signal.SIGKILL, 5.0)):
        left = _writers(run_dir)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience if left else 0.0
        while time.monotonic() < deadline and _writers(run_dir):
            time.sleep(POLL_S)
    return len(found)


def _writers(run_dir: Path) -> list[int]:
    """PIDs of ansible-playbook processes that were started for a run folder below `run_dir`."""
    import subprocess

    listing = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=False)  # noqa: S607
    rows = (line.split(None, 1) for line in listing.stdout.splitlines())
    # As the variables stand on its command line: ansible-runner hands them over as JSON.
    below = json.dumps(f"{run_dir}/")[:-1]
    return [int(row[0]) for row in rows if len(row) == 2 and "ansible-playbook" in row[1] and below in row[1]]


class _Events:
    """Turns ansible-runner's events into an Outcome and a listener's calls."""

    def __init__(
        self, outcome: Outcome, listener: Listener | None, meanwhile: Callable[[], object] | None = None
    ) -> None:
        self.outcome = outcome
        self.listener = listener
        self.meanwhile = meanwhile

    def __call__(self, event: dict[str, Any]) -> bool:
        data = event.get("event_data") or {}
        kind = event.get("event", "")
        if kind == "playbook_on_start" and self.meanwhile:
            threading.Thread(target=self.meanwhile, daemon=True).start()
        if kind == "playbook_on_task_start" and self.listener:
            self.listener.task_started(data.get("play", ""), data.get("task", ""))
        elif kind in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable"):
            self._task_ended(kind, data)
        elif kind == "playbook_on_stats":
            self.outcome.changed = sum((data.get("changed") or {}).values())
        elif kind in ("verbose", "warning", "error", "system_warning", "deprecated") and event.get("stdout"):
            self.outcome.output += event["stdout"] + "\n"
            if self.listener:
                self.listener.said(event["stdout"])
        return True

    def _task_ended(self, kind: str, data: Mapping[str, Any]) -> None:
        action = data.get("resolved_action") or data.get("task_action") or ""
        result = TaskResult(data.get("host", ""), data.get("task", ""), action, data.get("res") or {})
        if kind == "runner_on_ok" or data.get("ignore_errors"):
            self.outcome.results.append(result)
            if self.listener:
                self.listener.task_done(result)
            return
        (self.outcome.failures if kind == "runner_on_failed" else self.outcome.unreachable).append(result)
        self.outcome.results.append(result)
        if self.listener:
            self.listener.task_failed(result)


def environment() -> dict[str, str]:
    """What ansible-playbook gets on top of the user's environment."""
    return {
        # `pdlab` works without an activated virtual environment: ansible-playbook lies beside its Python.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "ANSIBLE_CONFIG": str(ansible_config()),
        # ansible-runner would switch host key checking off.
        "ANSIBLE_HOST_KEY_CHECKING": os.environ.get("ANSIBLE_HOST_KEY_CHECKING", "True"),
        "ANSIBLE_NOCOLOR": "1",
    }


def run_playbook(
    playbook: str,
    options: PlaybookOptions,
    private_dir: Path,
    *,
    variables: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    cancellation: Cancellation | None = None,
    ident: str | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Outcome:
    """Run playbook `pdlab.pdlab.<playbook>` to its end and say how it ended.

    `ident` names its artifacts; the playbook's name unless given. `private_dir` keeps ansible-runner's artifacts; it is
    made when missing. `variables` win over the user's. `meanwhile` is called in a thread of its own when ansible-playbook
    has begun to play: from then on this process mostly waits.
    """
    # Imported here: it costs 0.3 s, and `pdlab --help` does without.
    import ansible_runner
    import pexpect

    private_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    outcome = Outcome()
    cancellation = cancellation or Cancellation()
    ident = ident or playbook
    try:
        runner = ansible_runner.run(
            private_data_dir=str(private_dir),
            ident=ident,
            playbook=f"{COLLECTION}.{playbook}",
            inventory=str(options.inventory),
            limit=options.limit,
            verbosity=options.verbosity or None,
            cmdline=options.command_line() or None,
            extravars=dict(variables or {}),
            envvars=environment(),
            settings={"pexpect_timeout": POLL_S},
            suppress_env_files=True,
            event_handler=_Events(outcome, listener, meanwhile),
            cancel_callback=_Cancel(cancellation),
            quiet=True,
        )
    except pexpect.TIMEOUT:
        # ansible-runner issue 1343: something still holds the terminal after ansible-playbook ended.
        outcome.status = "cancelled" if cancellation.requested else "failed"
        return outcome
    outcome.return_code = runner.rc
    if cancellation.requested:
        outcome.status = "cancelled"
    else:
        # A run without a single task has not succeeded in anything, whatever Ansible says.
        outcome.status = "successful" if runner.rc == 0 and outcome.results else "failed"
    if not outcome.ok and not outcome.failures:
        outcome.output += _stdout(private_dir / "artifacts" / ident)
    return outcome


def _stdout(artifacts: Path) -> str:
    """What ansible-playbook printed, for failures that are no task's: a syntax error, a missing inventory."""
    text = ""
    for name in ("stdout", "stderr"):
        path = artifacts / name
        if path.is_file():
            text += path.read_text(encoding="utf-8", errors="replace")
    return text
