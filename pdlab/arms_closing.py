# SPDX-License-Identifier: Apache-2.0
"""What a person sees when a run of arms is over: every leg, where the run is, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pdlab.bench.arms_document import ArmsDocument
from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import Leg, legs_of
from pdlab.exit_codes import Exit
from pdlab.explain import compared_lines
from pdlab.loose import as_rows
from pdlab.report import formatting, write_report
from pdlab.store import OK, RunFolder
from pdlab.tables import BAD, GOOD, SOFT, WARNING

CHANGE = ("deploy", "ready")
# The rest of a leg's reason stands above, and in its run.json.
WHY_CHARACTERS = 120
WIDEST = 100


def show_arms_results(console: Console, folder: RunFolder) -> Path:
    """Make the report of a run of arms; show its legs, the verdicts and who wins where. Returns the page's path."""
    _own, page = write_report(folder)
    legs = legs_of(folder)
    planned = [str(leg.get("id")) for leg in as_rows((folder.arms_document() or {}).get("order"))]
    evidence = build_evidence(legs, folder.name)
    console.print(legs_table(planned, legs))
    if any(row.counts for row in evidence.points):
        if evidence.rehearsal:
            console.print(f"REHEARSAL: {evidence.rehearsal_note}", style=WARNING)
        for line in compared_lines(evidence, min(console.width, WIDEST)):
            console.print(line, markup=False, soft_wrap=True)
    return page


def show_arms_closing(console: Console, folder: RunFolder, document: ArmsDocument, code: Exit) -> None:
    """The results, how many legs are whole, and how to go on."""
    console.print()
    page = show_arms_results(console, folder)
    missing = [
        leg.id for leg in document.planned if leg.id not in {found.id for found in legs_of(folder) if whole(found)}
    ]
    total = len(document.planned)
    style = GOOD if code is Exit.OK else BAD
    console.print(f"\n{total - len(missing)} of {total} legs are whole", style=style, soft_wrap=True)
    console.print(f"report: {page}\nrun:    {folder.path}", soft_wrap=True, markup=False)
    steps = {"What binds each load, and what the numbers cannot support:": f"pdlab explain {folder.name}"}
    if missing:
        steps[f"To measure what is missing ({', '.join(missing)}):"] = f"pdlab bench --resume {folder.name}"
    for text, command in steps.items():
        console.print(f"\n{text}\n  {command}", soft_wrap=True, markup=False)


def whole(leg: Leg) -> bool:
    """Whether a leg came to a good end: it is not measured again."""
    return leg.contents.run.get("status") == OK


def legs_table(planned: Sequence[str], legs: Sequence[Leg]) -> RenderableType:
    """Each leg in the planned order: how long the change of arms took, how long the leg, and what came of it."""
    found = {leg.id: leg for leg in legs}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("leg", no_wrap=True)
    for header in ("deployed in", "whole leg"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("output tok/s", overflow="fold")
    for name in planned:
        leg = found.get(name)
        if leg is None:
            table.add_row(name, "", "", Text("not measured", style=SOFT))
            continue
        change = [stage.seconds for stage in leg.report.stages if stage.name in CHANGE and stage.seconds is not None]
        table.add_row(
            name,
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
