# SPDX-License-Identifier: Apache-2.0
"""What a person sees when a run is over: the results, where the report is, and what to type next."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from pdlab.exit_codes import Exit
from pdlab.report import write_report
from pdlab.report.next_steps import next_steps
from pdlab.results.build import build_report
from pdlab.results.outcome import verdict
from pdlab.store import RunContents, RunFolder
from pdlab.tables import results_table, stage_table


def show_results(console: Console, contents: RunContents) -> None:
    """The stages' times and the table of points, as far as the run got."""
    report = build_report(contents)
    console.print(stage_table(report, console.width))
    if report.points:
        console.print(results_table(report, console.width))


def show_closing(console: Console, folder: RunFolder, code: Exit) -> None:
    """Build the report, then show the results, the verdict and the next steps."""
    report, page = write_report(folder)
    contents = folder.read()
    console.print()
    show_results(console, contents)
    style = "bold green" if code is Exit.OK else "bold red"
    console.print(f"[{style}]{escape(verdict(report))}[/]", soft_wrap=True)
    console.print(f"report: {page}\nrun:    {folder.path}", soft_wrap=True, markup=False)
    for step in next_steps(contents, report):
        console.print(f"\n{step.text}", soft_wrap=True, markup=False)
        if step.command:
            console.print(f"  {step.command}", soft_wrap=True, markup=False)
