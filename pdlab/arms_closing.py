# SPDX-License-Identifier: Apache-2.0
"""What a person sees when a run of arms is over: every leg, where the run is, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pdlab.bench.arms_document import ArmsDocument
from pdlab.bench.schedule import PlannedLeg
from pdlab.evidence.legs import Leg, legs_of
from pdlab.exit_codes import Exit
from pdlab.report import formatting
from pdlab.store import OK, RunFolder
from pdlab.tables import BAD, GOOD, SOFT

CHANGE = ("deploy", "ready")
# The rest of a leg's reason stands above, and in its run.json.
WHY_CHARACTERS = 120


def show_arms_closing(console: Console, folder: RunFolder, document: ArmsDocument, code: Exit) -> None:
    """The legs, how many are whole, and how to go on."""
    legs = legs_of(folder)
    console.print()
    console.print(legs_table(document.planned, legs))
    missing = [leg.id for leg in document.planned if leg.id not in {found.id for found in legs if whole(found)}]
    total = len(document.planned)
    style = GOOD if code is Exit.OK else BAD
    console.print(f"{total - len(missing)} of {total} legs are whole", style=style, soft_wrap=True)
    console.print(f"run:    {folder.path}", soft_wrap=True, markup=False)
    if missing:
        console.print(f"\nTo measure what is missing ({', '.join(missing)}):", soft_wrap=True, markup=False)
        console.print(f"  pdlab bench --resume {folder.name}", soft_wrap=True, markup=False)


def whole(leg: Leg) -> bool:
    """Whether a leg came to a good end: it is not measured again."""
    return leg.contents.run.get("status") == OK


def legs_table(planned: Sequence[PlannedLeg], legs: Sequence[Leg]) -> RenderableType:
    """Each leg in the planned order: how long the change of arms took, how long the leg, and what came of it."""
    found = {leg.id: leg for leg in legs}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header, justify in (("leg", "left"), ("deployed in", "right"), ("whole leg", "right")):
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("output tok/s", overflow="fold")
    for plan in planned:
        leg = found.get(plan.id)
        if leg is None:
            table.add_row(plan.id, "", "", Text("not measured", style=SOFT))
            continue
        change = [stage.seconds for stage in leg.report.stages if stage.name in CHANGE and stage.seconds is not None]
        table.add_row(
            plan.id,
            formatting.seconds(sum(change)) if change else "",
            formatting.seconds(leg.report.seconds),
            _result(leg),
        )
    return table


def _result(leg: Leg) -> Text:
    """The rates of its points, and why it is not whole."""
    text = Text()
    for point in leg.report.points:
        rate = formatting.tok_s(point.output_tok_s) if point.ok else "FAILED"
        text.append(f"{point.label} {rate}  ", style="" if point.ok else BAD)
    if not whole(leg):
        why = leg.report.why or leg.report.status
        text.append(f"FAILED: {shorten(why, WHY_CHARACTERS, placeholder=' …')}", style=BAD)
    return text
