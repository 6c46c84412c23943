# SPDX-License-Identifier: Apache-2.0
"""Commands about runs that are over."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pdlab.cli.app import RUNS, AsJson, Runs, app, err, fail, out, print_json
from pdlab.exit_codes import Exit
from pdlab.store import RunFolder, StoreError

if TYPE_CHECKING:
    from pdlab.analysis.goodput import Limits


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="A run's name, its id, a path, or `latest`.")] = "latest",
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Build a run's report again from its folder."""
    try:
        folder = RunFolder.find(runs_dir, run)
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    if as_json:
        from pdlab.run_document import run_document

        print_json(run_document(folder))
    else:
        from pdlab.arms_closing import show_arms_results
        from pdlab.closing import show_results
        from pdlab.report import write_report

        if folder.arms_document():
            page = show_arms_results(out, folder)
        else:
            _report, page = write_report(folder)
            show_results(out, folder.read())
        out.print(f"report:   {page}\nfindings: {folder.findings_path}", soft_wrap=True)
    raise typer.Exit(int(Exit.OK))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Two runs or more: names, ids, or paths.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write. Default: comparison.html.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also runs of unlike models, engines, GPUs or workloads.")
    ] = False,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Lay runs side by side on one page, as arms of one run. Unlike runs are refused."""
    from pdlab.report.compare import PAGE, write_comparison
    from pdlab.report.compare import compare as compared

    try:
        folders = [RunFolder.find(runs_dir, run) for run in runs]
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    if len({folder.path.resolve() for folder in folders}) < 2:
        fail("name two runs or more; of one run, `pdlab report` makes the page", Exit.USAGE)
    page = output or PAGE
    legs, evidence = compared(folders, page, anyway=anyway)
    if as_json:
        print_json(evidence.model_dump(mode="json"))
    if evidence.refused:
        for reason in evidence.refused:
            err.print(reason, style="red", soft_wrap=True, markup=False)
        fail("these runs are unlike; --anyway lays them side by side all the same", Exit.USAGE)
    if output or not as_json:
        write_comparison(page, legs, evidence)
    if not as_json:
        for row in evidence.verdicts:
            out.print(f"{row.workload}: {row.sentence}", markup=False, soft_wrap=True)
        out.print(f"comparison: {page}", markup=False, soft_wrap=True)


@app.command()
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN|ID", help="Runs by name, id or path (default: the latest); a figure's id."),
    ] = None,
    ttft_ms: Annotated[float | None, typer.Option("--ttft-ms", min=0, help="Limit: time to the first token.")] = None,
    tpot_ms: Annotated[float | None, typer.Option("--tpot-ms", min=0, help="Limit: time per output token.")] = None,
    e2e_ms: Annotated[float | None, typer.Option("--e2e-ms", min=0, help="Limit: time of a whole request.")] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(help="A change to predict, as in prefill=2 or output_len=512,concurrency=32; may be repeated."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Another run, whose points are held against what this one predicts."),
    ] = None,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """What a run's numbers mean: verdicts, who wins where, what binds each load, what they support.

    Limits given here replace those that workloads state; no new measurement is needed.
    With the id of a figure (they are in every report): where that one number comes from, down to the raw lines.
    """
    from dataclasses import replace

    from pdlab.analysis.goodput import Limits
    from pdlab.evidence.against import against as held_against
    from pdlab.evidence.figure_ids import looks_like_id
    from pdlab.evidence.legs import legs_of
    from pdlab.explain import explain as explained
    from pdlab.explain import lines
    from pdlab.explanation import explanation

    limits = Limits(ttft_ms, tpot_ms, e2e_ms)
    endless = [f"--{name.replace('_', '-')}" for name, value in vars(limits).items() if value == math.inf]
    if endless:
        fail(f"{', '.join(endless)}: give a number of ms, or leave it out for no limit", Exit.USAGE)
    asked = None if limits == Limits() else limits
    ids = [word for word in words or () if looks_like_id(word)]
    runs = [word for word in words or () if not looks_like_id(word)] or ["latest"]
    if len(ids) > 1 or (not ids and len(runs) > 1):
        fail(f"explain takes one run, or the id of one figure; given are {len(runs)} runs, {len(ids)} ids", Exit.USAGE)
    if ids:
        explain_figure(runs_dir, runs, ids[0], asked, as_json)
    try:
        folder = RunFolder.find(runs_dir, runs[0])
        other = RunFolder.find(runs_dir, against) if against else None
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    if other and other.path.resolve() == folder.path.resolve():
        fail("--against: a run meets its own points; name another run", Exit.USAGE)
    try:
        legs = legs_of(folder)
        found = explained(legs, folder.run_name, asked, what_if or ())
        if other:
            held = held_against(legs, legs_of(other))
            found = replace(found, held=tuple(held), held_against=other.run_name)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    if as_json:
        print_json(explanation(folder.run_name, found).model_dump(mode="json"))
    else:
        for line in lines(found, min(out.width, 100)):
            out.print(line, markup=False, soft_wrap=True)


def explain_figure(runs_dir: Path, runs: list[str], id: str, limits: Limits | None, as_json: bool) -> NoReturn:
    """Where one figure comes from. Ends the program: status 9 when it does not follow from its raw lines."""
    from pdlab.evidence.figure_ids import FigureIdError
    from pdlab.ledger.explained import lines
    from pdlab.ledger.figures import FigureError, Ledger

    try:
        found = Ledger([RunFolder.find(runs_dir, run) for run in runs], limits).explain(id)
    except (StoreError, FigureIdError, FigureError) as error:
        fail(str(error), Exit.USAGE)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        for line in lines(found, min(out.width, 100)):
            out.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(int(Exit.OK if found.agrees and found.intact else Exit.ALTERED))


class ExportFormat(StrEnum):
    """What `pdlab export` writes."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    LLM_D = "llm-d"


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="A run's name, its id, a path, or `latest`.")] = "latest",
    format: Annotated[ExportFormat, typer.Option("--format", "-f", help="What to write.")] = ExportFormat.CSV,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; for llm-d a folder. Default: print it.")
    ] = None,
    runs_dir: Runs = RUNS,
) -> None:
    """All points of a run for other programs: a table, or llm-d benchmark reports (docs/exports.md)."""
    from pdlab.export.files import export_run
    from pdlab.export.table import ExportError

    try:
        folder = RunFolder.find(runs_dir, run)
        written = export_run(folder, format.value, output)
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    except ExportError as error:
        fail(str(error), Exit.ERROR)
    if written:
        err.print(f"export: {written}", soft_wrap=True, markup=False)


@app.command("verify-run")
def verify_run(
    run: Annotated[str, typer.Argument(help="A run's name, its id, a path, or `latest`.")] = "latest",
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Hold a run folder against its manifest, byte for byte, and its report against one made again."""
    from pdlab.ledger.verify import lines, verify
    from pdlab.report import page

    try:
        folder = RunFolder.find(runs_dir, run)
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    found = verify(folder, page)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        for line in lines(found):
            out.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(int(Exit.OK if found.ok else Exit.ALTERED))
