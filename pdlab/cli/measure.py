# SPDX-License-Identifier: Apache-2.0
"""`pdlab bench`: one sweep, or arms one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from pdlab.cli.app import (
    RUNS,
    AsJson,
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
    print_json,
)
from pdlab.cli.box import plan_of
from pdlab.cli.chain import run_chain
from pdlab.exit_codes import Exit
from pdlab.session import Step
from pdlab.store import RunFolder, StoreError


@app.command()
def bench(
    inventory: Inventory = None,
    limit: Limit = None,
    arms: Annotated[
        str | None, typer.Option("--arms", help="Arms of pd_arms to measure against each other, as in pd,colocated.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="How often each arm is measured.")] = 1,
    resident: Annotated[
        bool, typer.Option("--resident", help="Leave all arms up beside each other: for GPUs that hold them all.")
    ] = False,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", "-w", help="A workload instead of the inventory's; may be repeated."),
    ] = None,
    sweep: Annotated[str | None, typer.Option(help="The same, for one workload.")] = None,
    search: Annotated[
        bool | None,
        typer.Option(
            "--search/--no-search",
            help="Measure further rates of open loops with limits, until each highest one is bracketed.",
            show_default="on, but for rehearsals",
        ),
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on with this run of arms: its name, its id, a path, or `latest`.")
    ] = None,
    extra_vars: ExtraVars = None,
    verbose: Verbose = 0,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Run the sweep through the router and report it; with --arms on one topology after the other."""
    benchmark = benchmark_asked(workload, sweep)
    if resume is None and arms is None:
        if resident:
            fail("--resident is about arms; name them with --arms", Exit.USAGE)
        tags = "ready,benchmark,report"
        options = options_of(inventory, limit=limit, tags=tags, extra_vars=extra_vars, verbose=verbose)
        variables = {"pd_benchmark": benchmark} if benchmark else {}
        more = partial(search_rates, asked=search)
        run_chain("site", options, runs_dir, as_json=as_json, variables=variables, more=more)
        return
    if resume is not None and (
        arms or resident or search is not None or benchmark or extra_vars or limit or inventory or repeats != 1
    ):
        fail("--resume takes everything else from the run itself; leave the other options out", Exit.USAGE)
    bench_arms(
        as_json,
        runs_dir,
        resume,
        inventory,
        limit,
        extra_vars or [],
        verbose,
        (arms or "").split(","),
        repeats,
        benchmark,
        resident,
        search,
    )


def search_rates(folder: RunFolder, asked: bool | None) -> Iterator[Step]:
    """What a search over rates measures after the sweep of a run."""
    from pdlab.bench.search import search

    return search(folder, asked)


def benchmark_asked(workload: list[str] | None, sweep: str | None) -> dict[str, Any] | None:
    """pd_benchmark as the command line gives it; None when the inventory's holds."""
    if workload and sweep:
        fail("--workload and --sweep name the same thing; keep one of them", Exit.USAGE)
    if workload and len(workload) > 1:
        return {"workloads": workload}
    one = workload[0] if workload else sweep
    return {"sweep": one} if one else None


def bench_arms(
    as_json: bool,
    runs_dir: Path,
    resume: str | None,
    inventory: str | None,
    limit: str | None,
    extra_vars: list[str],
    verbose: int,
    arms: list[str],
    repeats: int,
    benchmark: dict[str, Any] | None,
    resident: bool,
    search: bool | None,
) -> NoReturn:
    """Begin a run of arms, or go on with one, and show what came of it. Ends the program with its status."""
    from pdlab.arms_closing import show_arms_closing
    from pdlab.bench.arms_document import ArmsError, new_document, read_document
    from pdlab.bench.arms_run import ArmsRun, begin, go_on

    console = err if as_json else out
    try:
        if resume is not None:
            folder = RunFolder.find(runs_dir, resume)
            document = read_document(folder.arms_document(), folder.name)
            if pid := folder.held_by():
                fail(f"{folder.name} still runs, as process {pid}: wait for it, or end it", Exit.BUSY)
            options = options_of(
                document.inventory, limit=document.limit, extra_vars=document.extra_vars, verbose=verbose
            )
            go_on(folder, document, plan_of(options, document.benchmark, document.arms[0]), options)
        else:
            options = options_of(inventory, limit=limit, extra_vars=extra_vars, verbose=verbose)
            names = [arm.strip() for arm in arms]
            planned = plan_of(options, benchmark, names[0])
            document = new_document(
                planned,
                names,
                repeats,
                benchmark=benchmark,
                search=search,
                inventory=str(options.inventory),
                limit=limit,
                extra_vars=list(options.extra_vars),
                resident=resident,
            )
            folder = begin(runs_dir, document, bool(planned["rehearsal"]))
    except (ArmsError, StoreError) as error:
        fail(str(error), Exit.USAGE)
    code = ArmsRun(console, options, folder, document).run()
    show_arms_closing(console, folder, document, code)
    if as_json:
        from pdlab.run_document import run_document

        print_json(run_document(folder))
    raise typer.Exit(int(code))
