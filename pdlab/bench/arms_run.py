# SPDX-License-Identifier: Apache-2.0
"""A run of arms: each leg deploys one arm, afresh or beside the others (resident), and measures the sweep on it; at the
end the first arm is back, alone.

A leg that fails does not end the others. What was measured stays, and a run that was cut goes on where it stopped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pdlab import __version__
from pdlab.bench.arms_document import ArmsDocument, ArmsError, changes
from pdlab.bench.schedule import PlannedLeg, minutes, remaining, seconds_left
from pdlab.bench.search import search
from pdlab.exit_codes import Exit
from pdlab.failures import failure_lines
from pdlab.moments import seconds_between
from pdlab.runner import Cancellation, PlaybookOptions, end_playbooks
from pdlab.session import Session, Step, cancelled_by_signals, end_jobs, let_go
from pdlab.store import CANCELLED, FAILED, OK, RunFolder

LEG_TAGS = "preflight,deploy,ready,verify,benchmark,report"
RESTORE_TAGS = "preflight,deploy,ready"
# After these no other leg can go better: somebody else holds the host, or the inventory is not what it was.
ENDS_ALL = (Exit.BUSY, Exit.USAGE, Exit.CANCELLED)


class ArmsRun:
    """The legs of one run of arms, one after the other. `folder`: the run's, with its arms.json."""

    def __init__(self, console: Console, options: PlaybookOptions, folder: RunFolder, document: ArmsDocument) -> None:
        self.console = console
        self.options = options
        self.folder = folder
        self.document = document
        self.cancellation = Cancellation()
        self.statuses: dict[str, Exit] = {}
        self.whole, self.took = legs_so_far(folder)
        # What runs on the box: nothing of this run yet (None), nobody knows (""), or an arm.
        self.deployed: str | None = "" if folder.leg_folders() else None
        self.holds_other_machines = False

    def run(self) -> Exit:
        """Measure what is missing, put the first arm back, and return the run's exit status. Raises StoreError."""
        with cancelled_by_signals(self.cancellation, self.console):
            self._legs()
            restored = self._restore()
            if self.holds_other_machines and self.cancellation.signals_sent < 2:
                let_go(self.options)
        code = combined([*self.statuses.values(), restored])
        why = "; ".join(
            f"{leg}: {status.name.lower()}" for leg, status in self.statuses.items() if status is not Exit.OK
        )
        if restored is not Exit.OK:
            why = "; ".join(part for part in (why, f"{self.document.restore} could not be deployed again") if part)
        self.folder.finish({Exit.OK: OK, Exit.CANCELLED: CANCELLED}.get(code, FAILED), int(code), why or None)
        return code

    def _legs(self) -> None:
        rest = remaining(self.document.planned, self.whole)
        total = len(self.document.planned)
        if not rest:
            self.console.print("all legs are whole: nothing is measured again")
        for index, leg in enumerate(rest):
            if self.cancellation.requested:
                self.statuses[leg.id] = Exit.CANCELLED
                return
            place = f"leg {total - len(rest) + index + 1} of {total}: {leg.arm}, repeat {leg.repeat} of {self.document.repeats}"
            code = self._leg(leg, place, rest[index:])
            self.statuses[leg.id] = code
            if code in ENDS_ALL:
                return

    def _leg(self, leg: PlannedLeg, place: str, rest: tuple[PlannedLeg, ...]) -> Exit:
        """Deploy one arm afresh and measure it, in a run folder of its own."""
        folder = self.folder.create_leg(leg.id, command=["pdlab", *sys.argv[1:]], pdlab_version=__version__)
        began = time.monotonic()

        def above() -> str:
            return f"{place}; {minutes(seconds_left(rest, self.took, time.monotonic() - began))}"

        self.console.print(f"\n[bold]{above()}[/]", soft_wrap=True)
        variables: dict[str, Any] = {
            "pdlab_leg": True,
            "pdlab_fresh": not self.document.resident,
            "pdlab_resident": self.document.resident,
            "pdlab_seed_offset": leg.seed - self.document.seed,
        }
        if any(done.rpartition("-r")[0] == leg.arm for done in self.whole):
            # The same arm has been held against the reference in this run already; its answers and counters are asked again.
            variables["verify_oracle"] = {"enabled": False}
        earlier = self._whole_legs_of(leg.arm)
        code = self._play(
            leg.arm, LEG_TAGS, folder, above, variables, lambda own: search(own, self.document.search, earlier)
        )
        if code is Exit.OK:
            code = self._still_the_same(folder)
        if code is Exit.OK:
            self.whole.add(leg.id)
        if code in (Exit.OK, Exit.BENCHMARK_FAILED):
            self.took.setdefault(leg.arm, []).append(time.monotonic() - began)
        if code in (Exit.OK, Exit.BENCHMARK_FAILED):
            self.deployed = leg.arm
        elif code is not Exit.VETO:
            self.deployed = ""
        return code

    def _whole_legs_of(self, arm: str) -> list[RunFolder]:
        """The legs of one arm that are through and whole, oldest first."""
        parts = [part for part in self.folder.leg_folders() if part.run_document().get("status") == OK]
        return [part for part in parts if (part.leg_id() or "").rpartition("-r")[0] == arm]

    def _play(
        self,
        arm: str,
        tags: str,
        folder: RunFolder,
        above: Callable[[], str] | None,
        variables: Mapping[str, Any],
        then: Callable[[RunFolder], Iterator[Step]] | None = None,
    ) -> Exit:
        # Among the user's own, so that it holds for whatever is played after a failure, too: the logs are this arm's.
        options = replace(self.options, tags=tags, extra_vars=(*self.options.extra_vars, f"pd_arm={arm}"))
        session = Session(self.console, options, folder.path.parent, folder=folder, above=above)
        session.cancellation = self.cancellation
        benchmark = {"pd_benchmark": self.document.benchmark} if self.document.benchmark else {}
        code = session.run("site", {**benchmark, **variables}, then)
        self.holds_other_machines |= session.holds_other_machines
        for line in failure_lines(session.outcome):
            self.console.print(line, style="red", soft_wrap=True, markup=False)
        return code

    def _still_the_same(self, folder: RunFolder) -> Exit:
        """An inventory that was edited while the run went on makes another run of it."""
        found = changes(self.document, folder.plan_document())
        if not found:
            return Exit.OK
        why = f"the inventory changed while the run went on: {', '.join(found)}"
        folder.finish(FAILED, int(Exit.USAGE), why)
        self.console.print(f"{why}; put it back and use --resume, or start anew", style="red", soft_wrap=True)
        return Exit.USAGE

    def _restore(self) -> Exit:
        """Deploy the first arm again, unless it is there; another Ctrl-C leaves the box as it is."""
        first = self.document.restore
        # Of resident arms the others go now.
        there = self.deployed is None or (self.deployed == first and not self.document.resident)
        if there or Exit.BUSY in self.statuses.values() or self.cancellation.signals_sent > 1:
            return Exit.OK
        again = " (Ctrl-C leaves the box as it is)" if self.cancellation.requested else ""
        self.console.print(f"\n[bold]putting {first} back[/]{again}", soft_wrap=True)
        self.cancellation = Cancellation()
        folder = self.folder.create_restore(command=["pdlab", *sys.argv[1:]], pdlab_version=__version__)
        code = self._play(first, RESTORE_TAGS, folder, None, {"pdlab_leg": True})
        return Exit.OK if code is Exit.CANCELLED else code


def legs_so_far(folder: RunFolder) -> tuple[set[str], dict[str, list[float]]]:
    """Ids of the legs that are whole, and the seconds that they took, by arm."""
    whole: set[str] = set()
    took: dict[str, list[float]] = {}
    for part in folder.leg_folders():
        run, leg = part.run_document(), part.leg_id()
        if leg is None or run.get("status") != OK:
            continue
        whole.add(leg)
        seconds = seconds_between(run.get("started"), run.get("ended"))
        if seconds is not None:
            took.setdefault(leg.rpartition("-r")[0], []).append(seconds)
    return whole, took


def combined(statuses: list[Exit]) -> Exit:
    """The status of a run of arms: cancelled before all; then what was worse than a failed point; then that."""
    bad = [status for status in statuses if status is not Exit.OK]
    for wanted in (Exit.CANCELLED, Exit.BUSY, Exit.USAGE):
        if wanted in bad:
            return wanted
    worse = [status for status in bad if status is not Exit.BENCHMARK_FAILED]
    return (worse or bad or [Exit.OK])[0]


def begin(runs_dir: Path, document: ArmsDocument, rehearsal: bool | None = None) -> RunFolder:
    """A new run of arms. Raises StoreError."""
    folder = RunFolder.create(
        runs_dir,
        command=["pdlab", *sys.argv[1:]],
        inventory=document.inventory,
        rehearsal=rehearsal,
        pdlab_version=__version__,
    )
    folder.write_arms(document.model_dump(mode="json"))
    return folder


def go_on(folder: RunFolder, document: ArmsDocument, plan: Mapping[str, Any], options: PlaybookOptions) -> None:
    """Take over a run that stopped. Raises ArmsError when the inventory is another one now.

    When its pdlab was killed, an ansible-playbook of it may still be at work, and a benchmark: both are ended first.
    """
    found = changes(document, plan)
    if found:
        raise ArmsError(
            f"{folder.name} cannot go on: {', '.join(found)}. Put the inventory back as it was, or start a new run."
        )
    end_playbooks(folder.path)
    end_jobs(options)
    folder.take_over(command=["pdlab", *sys.argv[1:]])
