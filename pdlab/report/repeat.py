# SPDX-License-Identifier: Apache-2.0
"""The exact commands that repeat a run: pdlab's own, and the benchmark client's for each point. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.evidence.legs import Leg
from pdlab.loose import as_list, as_mapping
from pdlab.report import formatting
from pdlab.results.model import Report


@dataclass(frozen=True)
class Command:
    """A command to type and what it does."""

    title: str
    text: str


def run_commands(own: Report | None, legs: Sequence[Leg]) -> list[Command]:
    """What was typed: the command of the whole run, or of each run that is compared."""
    found: dict[str, list[str]] = {}
    reports = [own] if own else [leg.report for leg in legs]
    for report in reports:
        if report.command:
            found.setdefault(formatting.shell_line(report.command), []).append(report.run)
    return [Command(f"What was typed for {', '.join(dict.fromkeys(runs))}", text) for text, runs in found.items()]


def explain_command(own: Leg | None, legs: Sequence[Leg]) -> str:
    """The command that follows a figure of the page, without the figure's id: it names the run, or all that are compared."""
    runs = [own.report.run] if own else list(dict.fromkeys(leg.run for leg in legs))
    return formatting.shell_line(["pdlab", "explain", *runs])


def arm_commands(legs: Sequence[Leg]) -> list[Command]:
    """How each arm is deployed alone; none where no leg names an arm of its inventory."""
    made: dict[str, Command] = {}
    for leg in legs:
        name = as_mapping(leg.contents.plan).get("arm")
        if name is None or leg.arm in made:
            continue
        argv = ["pdlab", "deploy", *(["-i", leg.report.inventory] if leg.report.inventory else [])]
        text = formatting.shell_line([*argv, "-e", f"pd_arm={name}"])
        made[leg.arm] = Command(f"Deploy the arm {leg.arm}", text)
    return list(made.values())


def client_commands(leg: Leg) -> list[Command]:
    """The benchmark client's command line of each point whose record kept it."""
    commands = []
    for files in leg.contents.points:
        client = as_mapping(as_mapping(files.record).get("client"))
        argv = [str(item) for item in as_list(client.get("argv"))]
        if argv:
            commands.append(Command(files.label, formatting.shell_block(argv)))
    return commands
