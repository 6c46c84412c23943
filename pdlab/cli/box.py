# SPDX-License-Identifier: Apache-2.0
"""Commands about a box and its inventory. None of them changes a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdlab.cli.app import (
    RUNS,
    AsJson,
    Boxes,
    ExtraVars,
    Inventory,
    Limit,
    Runs,
    Verbose,
    app,
    err,
    fail,
    options_of,
    out,
    print_failures,
    print_json,
)
from pdlab.exit_codes import Exit
from pdlab.runner import PlaybookOptions
from pdlab.session import Session, play_quietly

if TYPE_CHECKING:
    from pdlab.dry_run import DryRun


@app.command()
def preflight(
    inventory: Inventory = None,
    limit: Limit = None,
    box: Boxes = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show what passed, too.")] = False,
    extra_vars: ExtraVars = None,
    verbose: Verbose = 0,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Look at the box and judge it. Exit status 3 when something forbids a deployment."""
    options = options_of(inventory, limit=limit, extra_vars=extra_vars, verbose=verbose)
    console = err if as_json else out
    if box:
        records, code = judge_boxes(options, box)
    else:
        session = Session(console, options, runs_dir)
        code = session.run("preflight")
        records = list(session.folder.read().host_records("preflight").values()) if session.folder else []
        if not records:
            print_failures(session.outcome)
    show_verdicts(records, everything, as_json)
    raise typer.Exit(int(code))


def judge_boxes(options: PlaybookOptions, written: list[str]) -> tuple[list[dict[str, Any]], Exit]:
    """Verdicts on recordings instead of hosts. Ends the program when a recording fits no host of the plan."""
    # What comes after is loaded while ansible-playbook reads the inventory.
    with ThreadPoolExecutor(1) as later:
        for name in ("pdlab.preflight", "pdlab.tables"):
            later.submit(import_module, name)
        document = plan_of(options)
    from pdlab.preflight import BoxError, boxes_of, judge_recordings

    try:
        records = judge_recordings(document, boxes_of(written, list(document["hosts"])))
    except BoxError as error:
        fail(str(error), Exit.USAGE)
    return records, Exit.VETO if any(record["veto"] for record in records) else Exit.OK


def show_verdicts(records: Sequence[Mapping[str, Any]], everything: bool, as_json: bool) -> None:
    """One table for each host, or all in one document."""
    if as_json:
        from pdlab.preflight import build_preflight

        print_json(build_preflight(records).model_dump(mode="json"))
        return
    from pdlab.tables import verdict_table

    for record in records:
        out.print(verdict_table(record, out.width, everything))


@app.command()
def init(
    host: Annotated[
        str | None, typer.Argument(help="The box, as [USER@]HOST that ssh reaches. Default: this machine.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write. Default: ./HOST.")] = None,
    box: Annotated[Path | None, typer.Option("--box", help="A recording to look at instead of the box.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="The checkpoint's folder on the box.")] = None,
    become: Annotated[bool, typer.Option("--become", "-b", help="Use sudo on the box.")] = False,
) -> None:
    """Look at a box and write an inventory for it, every choice explained. Overwrites nothing."""
    from pdlab.init_box import (
        InventoryError,
        LookError,
        default_folder,
        look_at,
        look_at_recording,
        make_inventory,
        refuse_folder,
    )

    folder = output or default_folder(host, box)
    try:
        refuse_folder(folder)
        facts = look_at_recording(box) if box else look_at(host, become, err)
        shape = make_inventory(facts, host, folder, model, become=become, recording=box)
    except LookError as error:
        print_failures(error.outcome)
        fail(f"{host or 'this machine'} cannot be looked at, and nothing was written", Exit.ERROR)
    except (InventoryError, ValueError) as error:
        fail(str(error), Exit.USAGE)
    for note in shape.notes:
        out.print(note, soft_wrap=True, markup=False)
    out.print(f"written: {folder}", soft_wrap=True)
    out.print(f"next:    pdlab plan -i {folder}\n         pdlab preflight -i {folder}", soft_wrap=True)


def plan_of(
    options: PlaybookOptions, benchmark: dict[str, Any] | None = None, arm: str | None = None
) -> dict[str, Any]:
    """The resolved topology of an inventory, with another pd_benchmark if there is one, of `arm` if there is one.

    With an arm all arms are held against each other. Ends the program with every fault of the inventory.
    """
    asked = {"pd_benchmark": benchmark, "pd_arm": arm}
    outcome = play_quietly("plan", options, err, {name: value for name, value in asked.items() if value})
    results = outcome.of_action("topology")
    if not outcome.ok or not results:
        print_failures(outcome)
        raise typer.Exit(int(Exit.USAGE))
    return dict(results[0].result["plan"])


@app.command()
def plan(
    inventory: Inventory = None,
    limit: Limit = None,
    box: Boxes = None,
    extra_vars: ExtraVars = None,
    as_json: AsJson = False,
) -> None:
    """Check the inventory and show what would run where: command lines, environment, binding, ports.

    With a recording of the box also what only the box can tell, and the text of every unit.
    """
    from pdlab.tables import plan_details, plan_table
    from pdlab.topology import Plan

    document = plan_of(options_of(inventory, limit=limit, extra_vars=extra_vars))
    run = dry_run_on(document, box) if box else None
    document = run.plan if run else document
    if as_json:
        print_json(Plan.model_validate(document).model_dump(mode="json"))
    else:
        out.print(plan_table(document, out.width))
        out.print(plan_details(document, run), soft_wrap=True, end="")


def dry_run_on(document: dict[str, Any], written: list[str]) -> DryRun:
    """The plan on recorded boxes. Ends the program when a recording fits no host, or the box not the inventory."""
    from pdlab.dry_run import dry_run, facts_of
    from pdlab.preflight import BoxError, boxes_of

    try:
        run = dry_run(document, facts_of(boxes_of(written, list(document["hosts"]))))
    except BoxError as error:
        fail(str(error), Exit.USAGE)
    for fault in run.faults:
        err.print(str(fault), style="red", soft_wrap=True, markup=False)
    if run.faults:
        fail("the box contradicts the inventory", Exit.USAGE)
    return run


@app.command()
def monitoring(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write them to.")],
    inventory: Inventory = None,
    limit: Limit = None,
    extra_vars: ExtraVars = None,
) -> None:
    """Write files for a Prometheus and a Grafana of your own: whom to ask, alerts, a dashboard. Touches no host."""
    from pdlab.monitoring import notes, write_files

    plan = plan_of(options_of(inventory, limit=limit, extra_vars=extra_vars))
    try:
        written = write_files(plan, output)
    except OSError as error:
        fail(f"{error.filename or output}: {error.strerror}; name a folder that you can write to", Exit.USAGE)
    for path, changed in written.items():
        out.print(f"{'written' if changed else 'as it was'}: {path}", soft_wrap=True, markup=False)
    for line in notes(plan, output):
        out.print(line, soft_wrap=True, markup=False)


@app.command("record-box")
def record_box(
    directory: Annotated[Path, typer.Option("--output", "-o", help="A new directory for the recording.")],
    host: Annotated[str | None, typer.Argument(help="A host of the inventory. Default: this machine.")] = None,
    inventory: Inventory = None,
    extra_vars: ExtraVars = None,
) -> None:
    """Write down what a box shows to preflight, without personal details, so that others can look at it."""
    from pdlab.record_box import RecordError, record_here, record_host, save

    try:
        if host is None:
            recording = record_here()
        else:
            options = options_of(inventory, limit=host, extra_vars=extra_vars)
            outcome = play_quietly("record_box", options, err)
            print_failures(outcome)
            recording = record_host(outcome, host)
        save(recording, directory)
    except RecordError as error:
        fail(str(error), Exit.ERROR)
    out.print(f"{directory}: {len(recording)} files. Look through them before you give them away.", soft_wrap=True)
