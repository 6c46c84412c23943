# SPDX-License-Identifier: Apache-2.0
"""Live progress of a run: a rich display on a terminal, plain lines everywhere else.

Stages are announced by the collection's `stage` action, so that both doors name them alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_progress import PROGRESS_PREFIX
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pdlab.runner import COLLECTION, TaskResult

PLAIN_EVERY_S = 15.0
# Ansible's own tasks in front of each role; nobody waits for them.
UNINTERESTING = "Validating arguments"


@dataclass
class StageProgress:
    """One stage as a person sees it."""

    name: str
    started: float
    seconds: float | None = None
    ok: bool | None = None
    task: str = ""
    note: str = ""


class Progress:
    """A Listener (see runner.py) that shows stages. Use it as a context manager. `above` is the display's first line."""

    def __init__(
        self,
        console: Console,
        *,
        details: bool = False,
        diff: bool = False,
        above: Callable[[], str] | None = None,
    ) -> None:
        self.console = console
        self.above = above
        self.details = details
        self.diff = diff
        self.stages: list[StageProgress] = []
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._spinner = Spinner("dots")
        self._last_plain = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
            self._refresh()
        else:
            threading.Thread(target=self._heartbeat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.close_stage(ok=None)
        if self._live:
            self._live.stop()

    # --- Listener ----------------------------------------------------------------------------------------------

    def task_started(self, play: str, task: str) -> None:
        if self.stages and UNINTERESTING not in task:
            # "role : task" is Ansible's spelling; the role's name is what a reader looks for.
            self.stages[-1].task = task.replace("pdlab.pdlab.", "")
            self.stages[-1].note = ""
        self._refresh()

    def task_done(self, result: TaskResult) -> None:
        if result.action == f"{COLLECTION}.stage":
            if result.result.get("state") == "finished":
                self.close_stage(ok=bool(result.result.get("stage_ok", True)))
            else:
                self._open_stage(str(result.result.get("stage")))
        elif result.action == f"{COLLECTION}.preflight":
            self._verdicts(result.result)
        elif self.details and result.result.get("changed"):
            self._print(Text(f"    changed: {result.task.replace('pdlab.pdlab.', '')} ({result.host})", style="yellow"))
            if self.diff:
                for item in result.each():
                    self._print_diff(item.get("diff"))
        for warning in result.result.get("warnings") or ():
            self._print(Text(f"  warning: {warning}", style="yellow"))

    def task_failed(self, result: TaskResult) -> None:
        self.close_stage(ok=False)

    def said(self, text: str) -> None:
        for line in text.splitlines():
            if line.startswith(PROGRESS_PREFIX) and self.stages:
                self.stages[-1].note = line.removeprefix(PROGRESS_PREFIX).strip()
                self._refresh()
                self._say_plainly(self.stages[-1].note)

    # --- stages ------------------------------------------------------------------------------------------------

    def _open_stage(self, name: str) -> None:
        self.close_stage(ok=True)
        self.stages.append(StageProgress(name, time.monotonic()))
        self._last_plain = time.monotonic()
        if not self._live:
            self._print(Text(f"{name} ..."))
        self._refresh()

    def close_stage(self, ok: bool | None) -> None:
        """End the open stage, if any; `ok` None means that nobody knows how it ended."""
        if not self.stages or self.stages[-1].seconds is not None:
            return
        stage = self.stages[-1]
        stage.seconds, stage.ok = time.monotonic() - stage.started, ok
        word, style = {True: ("ok", "green"), False: ("FAILED", "bold red"), None: ("ended", "yellow")}[ok]
        self._print(Text.assemble(f"{stage.name:<12}", (f"{word:<8}", style), f"{stage.seconds:7.1f} s"))
        self._refresh()

    # --- output ------------------------------------------------------------------------------------------------

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True, highlight=False)

    def _print_diff(self, diff: object) -> None:
        """A module's before and after as a unified diff; a list of them, one after the other."""
        if isinstance(diff, list):
            for part in diff:
                self._print_diff(part)
            return
        if not isinstance(diff, Mapping) or diff.get("before") == diff.get("after"):
            return
        before, after = str(diff.get("before") or ""), str(diff.get("after") or "")
        name = str(diff.get("after_header") or diff.get("before_header") or "")
        for line in unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm=""):
            style = {"+": "green", "-": "red"}.get(line[:1], "dim")
            self._print(Text("    " + line, style=style))

    def _verdicts(self, result: Mapping[str, Any]) -> None:
        """What preflight found and does not forbid a deployment: a person wants to know before it goes on."""
        for verdict in result.get("verdicts") or ():
            if not verdict.get("ok") and verdict.get("severity") != "veto":
                cure = f" -> {verdict['cure']}" if verdict.get("cure") else ""
                self._print(Text(f"  {verdict['severity']}: {verdict['seen']}{cure}", style="yellow"))

    def _heartbeat(self) -> None:
        """Without a terminal, say now and then what goes on, so that a log shows life."""
        while not self._stop.wait(1.0):
            stage = self.stages[-1] if self.stages else None
            if stage and stage.seconds is None and time.monotonic() - self._last_plain >= PLAIN_EVERY_S:
                self._say_plainly(stage.note or stage.task)

    def _say_plainly(self, what: str) -> None:
        if self._live or not self.stages or self.stages[-1].seconds is not None:
            return
        with self._lock:
            self._last_plain = time.monotonic()
            stage = self.stages[-1]
            self._print(Text(f"{stage.name:<12}{what}  ({self._last_plain - stage.started:.0f} s)"))

    def _refresh(self) -> None:
        if self._live:
            self._live.update(_Now(self))

    def current(self) -> RenderableType:
        """The line under the finished stages: what goes on now, and for how long."""
        if not self.stages or self.stages[-1].seconds is not None:
            return Text("")
        stage = self.stages[-1]
        line = Table.grid(padding=(0, 1))
        seconds = time.monotonic() - stage.started
        line.add_row(
            self._spinner, f"{stage.name:<10}", f"{seconds:5.0f} s", Text(stage.note or stage.task, overflow="ellipsis")
        )
        return Group(Text(self.above(), style="dim", overflow="ellipsis"), line) if self.above else line


class _Now:
    """Asks for the current line at every refresh, so that the seconds run."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def __rich__(self) -> RenderableType:
        return self.progress.current()
