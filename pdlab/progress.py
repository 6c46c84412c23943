# SPDX-License-Identifier: Apache-2.0
"""Live progress of a run: a rich display on a terminal, plain lines everywhere else.

Stages are announced by the collection's `stage` action, so that both doors name them alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pdlab.runner import COLLECTION, TaskResult

# The benchmark's action plug-in marks its progress lines so; everything else that is said is Ansible's.
PROGRESS_PREFIX = "pdlab-progress: "
PLAIN_EVERY_S = 15.0


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
    """A Listener (see runner.py) that shows stages. Use it as a context manager."""

    def __init__(self, console: Console, *, details: bool = False) -> None:
        self.console = console
        self.details = details
        self.stages: list[StageProgress] = []
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._spinner = Spinner("dots")
        self._last_plain = 0.0

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
            self._refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self.close_stage(ok=None)
        if self._live:
            self._live.stop()

    # --- Listener ----------------------------------------------------------------------------------------------

    def task_started(self, play: str, task: str) -> None:
        if self.stages:
            # "role : task" is Ansible's spelling; the role's name is what a reader looks for.
            self.stages[-1].task = task.replace("pdlab.pdlab.", "")
            self.stages[-1].note = ""
        self._refresh()
        self._plain_heartbeat()

    def task_done(self, result: TaskResult) -> None:
        if result.action == f"{COLLECTION}.stage":
            if result.result.get("state") == "finished":
                self.close_stage(ok=bool(result.result.get("stage_ok", True)))
            else:
                self._open_stage(str(result.result.get("stage")))
        elif self.details and result.result.get("changed"):
            self._print(Text(f"    changed: {result.task.replace('pdlab.pdlab.', '')} ({result.host})", style="yellow"))
        for warning in result.result.get("warnings") or ():
            self._print(Text(f"  warning: {warning}", style="yellow"))

    def task_failed(self, result: TaskResult) -> None:
        self.close_stage(ok=False)

    def said(self, text: str) -> None:
        for line in text.splitlines():
            if line.startswith(PROGRESS_PREFIX) and self.stages:
                self.stages[-1].note = line.removeprefix(PROGRESS_PREFIX).strip()
                self._refresh()
                self._plain_heartbeat(say=self.stages[-1].note)

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

    def _plain_heartbeat(self, say: str | None = None) -> None:
        """Without a terminal, say now and then what goes on, so that a log shows life."""
        now = time.monotonic()
        if self._live or not self.stages or self.stages[-1].seconds is not None:
            return
        if now - self._last_plain >= PLAIN_EVERY_S or say:
            self._last_plain = now
            stage = self.stages[-1]
            self._print(Text(f"{stage.name:<12}{say or stage.task}  ({now - stage.started:.0f} s)"))

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
        return line


class _Now:
    """Asks for the current line at every refresh, so that the seconds run."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def __rich__(self) -> RenderableType:
        return self.progress.current()
