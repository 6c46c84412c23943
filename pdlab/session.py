# SPDX-License-Identifier: Apache-2.0
"""One run of a chain of stages from the command line: its folder, its playbook, its end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from pdlab import __version__
from pdlab.exit_codes import BY_STAGE, Exit
from pdlab.failures import first_line
from pdlab.loose import as_mapping
from pdlab.progress import Progress
from pdlab.runner import Cancellation, Listener, Outcome, PlaybookOptions, run_playbook
from pdlab.store import CANCELLED, FAILED, OK, RunFolder, StoreError

CANCEL_PLAYBOOK = "cancel"
LET_GO_PLAYBOOK = "let_go"
# Failures that the servers' own words may explain. The report stage keeps them of a run that came so far.
KEEPS_LOGS = (Exit.DEPLOY_FAILED, Exit.WRONG_ANSWER, Exit.BENCHMARK_FAILED)


@contextmanager
def cancelled_by_signals(cancellation: Cancellation, console: Console) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for an orderly end, and say so at once; a second one does not wait."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        if not cancellation.requested:
            console.print("\ncancelling: ending what this run started (again to stop waiting) ...", highlight=False)
        cancellation.request()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@dataclass(frozen=True)
class Step:
    """One playbook of a run, with its variables and the tags that it is limited to."""

    playbook: str
    variables: Mapping[str, Any]
    tags: str | None = None


class Session:
    """A run with a folder: `run()` plays the stages and returns the exit status.

    `folder`: one that is made already, of a leg; whoever made it lets go of the hosts when all legs are over. `above`: what the display says over the stages, asked for again and
    again. `meanwhile` is called beside the first stage, as the runner says.
    """

    def __init__(
        self,
        console: Console,
        options: PlaybookOptions,
        runs_dir: Path,
        *,
        folder: RunFolder | None = None,
        above: Callable[[], str] | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self.console = console
        self.options = options
        self.runs_dir = runs_dir
        self.cancellation = Cancellation()
        self.folder = folder
        self.is_part = folder is not None
        self.above = above
        self.meanwhile = meanwhile
        self.outcome = Outcome()

    def run(
        self,
        playbook: str,
        variables: Mapping[str, Any] | None = None,
        then: Callable[[RunFolder], Iterator[Step]] | None = None,
    ) -> Exit:
        """Play one playbook as a run. In check mode nothing is kept. Raises StoreError when no folder can be made.

        `then` says what more to play, one step after the other, each after the one before is through. It is asked when
        nothing failed, or nothing but points.
        """
        if not self.options.check and self.folder is None:
            self.folder = RunFolder.create(
                self.runs_dir,
                command=["pdlab", *sys.argv[1:]],
                inventory=str(self.options.inventory),
                rehearsal=None,
                pdlab_version=__version__,
            )
        details = self.options.check or self.options.diff
        with (
            cancelled_by_signals(self.cancellation, self.console),
            Progress(self.console, details=details, diff=self.options.diff, above=self.above) as progress,
        ):
            try:
                self.outcome = self._play(Step(playbook, variables or {}, self.options.tags), progress)
                if then and self.folder:
                    self._go_on(then(self.folder), progress, variables or {})
            except OSError as error:
                where = self.folder.path if self.folder else self.runs_dir
                raise StoreError(
                    f"the run cannot be kept in {where}: {error}. Free space, or use --runs-dir."
                ) from error
            stage = progress.stages[-1].name if progress.stages else None
            if self.outcome.status == "cancelled":
                self._end_jobs()
            code = self._exit(stage)
            if code in KEEPS_LOGS:
                self._keep_logs()
            if self.holds_other_machines and not self.is_part and self.cancellation.signals_sent < 2:
                let_go(self._same_hosts())
        if self.folder:
            why = None if code is Exit.OK else first_line(self.outcome)
            status = {Exit.OK: OK, Exit.CANCELLED: CANCELLED}.get(code, FAILED)
            self.folder.finish(status, int(code), why)
        return code

    def _go_on(self, steps: Iterator[Step], listener: Listener, variables: Mapping[str, Any]) -> None:
        """Play further steps, as long as nothing but points fails."""
        for number, step in enumerate(steps, start=1) if self._may_go_on() else ():
            further = Step(step.playbook, {**variables, **step.variables}, step.tags)
            self.outcome.add(self._play(further, listener, ident=f"{step.playbook}-{number}"))
            if not self._may_go_on():
                return

    def _may_go_on(self) -> bool:
        return self.outcome.ok or (self.outcome.status == "failed" and self.outcome.only_points_failed)

    def _play(self, step: Step, listener: Listener, ident: str | None = None) -> Outcome:
        own = {
            "pdlab_owner_pid": os.getpid(),
            **({"pdlab_run_dir": str(self.folder.path)} if self.folder else {}),
            **step.variables,
        }
        private = self.folder.ansible_path if self.folder else Path(tempfile.mkdtemp(prefix="pdlab-"))
        try:
            return run_playbook(
                step.playbook,
                replace(self.options, tags=step.tags),
                private,
                variables=own,
                listener=listener,
                cancellation=self.cancellation,
                ident=ident,
                meanwhile=self.meanwhile,
            )
        finally:
            if not self.folder:
                shutil.rmtree(private, ignore_errors=True)

    def _end_jobs(self) -> None:
        """After a cancel: end the long jobs that live on a target under its service manager."""
        if not self.options.check and self.outcome.of_action("topology"):
            end_jobs(self._same_hosts())

    @property
    def holds_other_machines(self) -> bool:
        """Whether this run may hold a host that is not this machine, and so cannot see that the run has ended."""
        plans = [as_mapping(result.result.get("plan")) for result in self.outcome.of_action("topology")]
        hosts = [as_mapping(host) for plan in plans for host in as_mapping(plan.get("hosts")).values()]
        return not self.options.check and any(host.get("local") is False for host in hosts)

    def _keep_logs(self) -> None:
        """After a failure: what the servers said last belongs to the run."""
        if self.folder:
            with tempfile.TemporaryDirectory(prefix="pdlab-logs-") as private:
                variables = {"pdlab_run_dir": str(self.folder.path)}
                run_playbook("logs", self._same_hosts(), Path(private), variables=variables)

    def _same_hosts(self) -> PlaybookOptions:
        """Options for another playbook on the hosts of this run."""
        return PlaybookOptions(self.options.inventory, limit=self.options.limit, extra_vars=self.options.extra_vars)

    def _exit(self, stage: str | None) -> Exit:
        if self.outcome.status == "cancelled":
            return Exit.CANCELLED
        if self.outcome.ok:
            return Exit.OK
        actions = {failure.action.removeprefix("pdlab.pdlab.") for failure in self.outcome.failures}
        if "topology" in actions or (not stage and not self.outcome.unreachable):
            return Exit.USAGE
        if self.outcome.refused_by_a_run:
            return Exit.BUSY
        if any(failure.result.get("failed_points") for failure in self.outcome.failures):
            return Exit.BENCHMARK_FAILED
        if "pd_answers" in actions:
            # Also the one that is asked again after the benchmark, in the report stage.
            return Exit.WRONG_ANSWER
        return BY_STAGE.get(stage or "", Exit.ERROR)


def end_jobs(options: PlaybookOptions) -> None:
    """End the long jobs that live on under a target's service manager. `options` name the hosts."""
    with tempfile.TemporaryDirectory(prefix="pdlab-cancel-") as private:
        run_playbook(CANCEL_PLAYBOOK, options, Path(private), variables={"pdlab_owner_pid": os.getpid()})


def let_go(options: PlaybookOptions) -> None:
    """Let go of hosts that this process holds. `options` name them."""
    with tempfile.TemporaryDirectory(prefix="pdlab-let-go-") as private:
        run_playbook(LET_GO_PLAYBOOK, options, Path(private), variables={"pdlab_owner_pid": os.getpid()})


def play_quietly(
    playbook: str, options: PlaybookOptions, console: Console, variables: Mapping[str, Any] | None = None
) -> Outcome:
    """Play a playbook that leaves no run behind (plan, status, logs, down)."""
    cancellation = Cancellation()
    with (
        cancelled_by_signals(cancellation, console),
        tempfile.TemporaryDirectory(prefix="pdlab-") as private,
    ):
        return run_playbook(
            playbook,
            options,
            Path(private),
            variables={"pdlab_owner_pid": os.getpid(), **(variables or {})},
            cancellation=cancellation,
        )
