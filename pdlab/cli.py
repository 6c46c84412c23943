# SPDX-License-Identifier: Apache-2.0
"""The `pdlab` command. Commands are thin: they read options, call the parts, print, and choose the exit status."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from pdlab import __version__
from pdlab.collection import resolve_extra_vars, resolve_inventory
from pdlab.exit_codes import Exit
from pdlab.runner import Outcome, PlaybookOptions
from pdlab.session import Session, Step, play_quietly
from pdlab.store import RunFolder, StoreError

if TYPE_CHECKING:
    from pdlab.analysis.goodput import Limits
    from pdlab.dry_run import DryRun

app = typer.Typer(
    name="pdlab",
    help="SGLang with prefill and decode on separate GPUs: deploy, verify, benchmark, report.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
# No emoji: `:label:` in an id or in a log is text.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)

Inventory = Annotated[
    str | None, typer.Option("--inventory", "-i", help="Inventory directory or file. Default: this machine's CPU.")
]
Limit = Annotated[str | None, typer.Option("--limit", "-l", help="Only these hosts, as in ansible-playbook.")]
Tags = Annotated[str | None, typer.Option("--tags", "-t", help="Only tasks with these tags, as in ansible-playbook.")]
SkipTags = Annotated[str | None, typer.Option("--skip-tags", help="Leave out tasks with these tags.")]
ExtraVars = Annotated[list[str] | None, typer.Option("--extra-vars", "-e", help="key=value, JSON, or @file.")]
Check = Annotated[bool, typer.Option("--check", "-C", help="Change nothing; say what would change.")]
Diff = Annotated[bool, typer.Option("--diff", "-D", help="Show what changes.")]
Verbose = Annotated[int, typer.Option("--verbose", "-v", count=True, help="More of Ansible's own output (-vvv).")]
Runs = Annotated[
    Path, typer.Option("--runs-dir", envvar="PDLAB_RUNS_DIR", help="Where run folders are kept.", show_default="./runs")
]
Boxes = Annotated[
    list[str] | None,
    typer.Option("--box", help="A recording to look at instead of the host: DIR, or HOST=DIR for each host."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
RUNS = Path("runs")
DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT)


def fail(message: str, status: Exit) -> NoReturn:
    """End with a message on standard error."""
    err.print(f"pdlab: {message}", style="bold red", soft_wrap=True, markup=False)
    raise typer.Exit(int(status))


def options_of(
    inventory: str | None,
    *,
    limit: str | None = None,
    tags: str | None = None,
    skip_tags: str | None = None,
    extra_vars: list[str] | None = None,
    check: bool = False,
    diff: bool = False,
    verbose: int = 0,
) -> PlaybookOptions:
    """The user's options as ansible-playbook takes them. Ends the program when the inventory is not there."""
    try:
        path = resolve_inventory(inventory)
        variables = resolve_extra_vars(extra_vars or ())
    except FileNotFoundError as error:
        fail(str(error), Exit.USAGE)
    return PlaybookOptions(
        path,
        limit=limit,
        tags=tags,
        skip_tags=skip_tags,
        extra_vars=variables,
        check=check,
        diff=diff,
        verbosity=verbose,
    )


def print_json(document: Any) -> None:
    """One JSON document on standard output, undecorated."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def print_failures(outcome: Outcome) -> None:
    """Every failure in the module's own words, or Ansible's output when no task failed."""
    from pdlab.failures import failure_lines

    for line in failure_lines(outcome):
        err.print(line, style="red", soft_wrap=True, markup=False)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
) -> None:
    """Options of `pdlab` itself."""
    if version:
        out.print(f"pdlab {__version__}")
        raise typer.Exit()


# --- the chain ---------------------------------------------------------------------------------------------------


def load_closing() -> None:
    """Load what the end of a run needs, beside the run; what cannot be loaded is told there."""
    with suppress(Exception):
        for name in ("pdlab.closing", "pdlab.evidence.build", "pdlab.report.markdown", "pdlab.report.html"):
            import_module(name)


def run_chain(
    playbook: str,
    options: PlaybookOptions,
    runs_dir: Path,
    *,
    as_json: bool = False,
    then: Callable[[Session, Exit], Exit] | None = None,
    variables: Mapping[str, Any] | None = None,
    more: Callable[[RunFolder], Iterator[Step]] | None = None,
) -> None:
    """Play a chain of stages as a run, then show what came of it. Ends the program with the run's exit status.

    `more` says what else to play in the same run. `then` is called when it is over, and may say another status.
    """
    console = err if as_json else out
    session = Session(console, options, runs_dir, meanwhile=load_closing)
    code = session.run(playbook, variables or {}, more)
    from pdlab.closing import show_closing

    print_failures(session.outcome)
    if session.folder:
        show_closing(console, session.folder, code)
        if as_json:
            from pdlab.results import build_report

            print_json(build_report(session.folder.read()).model_dump(mode="json"))
    elif options.check:
        console.print(f"check mode: {session.outcome.changed} task(s) would change something; nothing was touched")
    raise typer.Exit(int(then(session, code) if then else code))


@app.command()
def up(
    inventory: Inventory = None,
    limit: Limit = None,
    tags: Tags = None,
    skip_tags: SkipTags = None,
    extra_vars: ExtraVars = None,
    check: Check = False,
    diff: Diff = False,
    verbose: Verbose = 0,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """The whole job: preflight, deploy, ready, verify, benchmark, report."""
    options = options_of(
        inventory,
        limit=limit,
        tags=tags,
        skip_tags=skip_tags,
        extra_vars=extra_vars,
        check=check,
        diff=diff,
        verbose=verbose,
    )
    run_chain("site", options, runs_dir, as_json=as_json)


@app.command()
def deploy(
    inventory: Inventory = None,
    limit: Limit = None,
    tags: Tags = None,
    skip_tags: SkipTags = None,
    extra_vars: ExtraVars = None,
    check: Check = False,
    diff: Diff = False,
    verbose: Verbose = 0,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Preflight, install, start the servers, wait until they are ready. Changes nothing the second time."""
    options = options_of(
        inventory,
        limit=limit,
        tags=tags or "preflight,deploy,ready",
        skip_tags=skip_tags,
        extra_vars=extra_vars,
        check=check,
        diff=diff,
        verbose=verbose,
    )
    run_chain("site", options, runs_dir, as_json=as_json)


@app.command()
def rebuild(
    inventory: Inventory = None,
    limit: Limit = None,
    locked: Annotated[
        Path | None, typer.Option("--locked", help="A file that `pdlab lock` wrote: make that, and say what differs.")
    ] = None,
    skip_tags: SkipTags = None,
    extra_vars: ExtraVars = None,
    check: Check = False,
    diff: Diff = False,
    verbose: Verbose = 0,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """The box from whatever it is to what the inventory says: services cleared, engine built anew, deployed."""
    from pdlab.lockfile import LockError, materialize
    from pdlab.locking import check_box, lock_to_rebuild
    from pdlab.rebuild import changes
    from pdlab.tables import changes_table

    options = options_of(
        inventory, limit=limit, skip_tags=skip_tags, extra_vars=extra_vars, check=check, diff=diff, verbose=verbose
    )
    console = err if as_json else out
    try:
        lock = lock_to_rebuild(locked, options, console) if locked else None
    except LockError as error:
        fail(str(error), error.status)

    def then(session: Session, code: Exit) -> Exit:
        found = changes(session.folder.read()) if session.folder else None
        if found is not None:
            console.print(changes_table(found, console.width))
        if lock and code is Exit.OK and not check:
            try:
                check_box(lock, options, console)
            except LockError as error:
                fail(str(error), error.status)
        return code

    with TemporaryDirectory(prefix="pdlab-locked-") as folder:
        variables: dict[str, Any] = {"pdlab_locked": materialize(lock, Path(folder))} if lock else {}
        run_chain("rebuild", options, runs_dir, as_json=as_json, then=then, variables=variables)


@app.command()
def lock(
    inventory: Inventory = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("pdlab.lock.yml"),
    limit: Limit = None,
    extra_vars: ExtraVars = None,
) -> None:
    """Write what is deployed to a lock file: versions, patches, model, environment and flags."""
    from pdlab.lockfile import LockError, write_lock
    from pdlab.locking import lock_now

    try:
        made = lock_now(options_of(inventory, limit=limit, extra_vars=extra_vars), err)
        write_lock(made, output)
    except LockError as error:
        fail(str(error), error.status)
    for name, host in made.hosts.items():
        packages, services = len(host.engine.packages), ", ".join(host.services)
        line = f"{name}: {packages} packages, model {made.model.served_name}, {services}"
        out.print(line, soft_wrap=True, markup=False)
    out.print(f"lock: {output}", soft_wrap=True, markup=False)


@app.command()
def bundle(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    inventory: Inventory = None,
    locked: Annotated[
        Path | None, typer.Option("--locked", help="A lock file: its engine, and the file itself.")
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(help="Python version of controller and boxes; may be repeated. Default: this one's."),
    ] = None,
    machine: Annotated[str, typer.Option(help="x86_64 or aarch64.")] = "x86_64",
    glibc: Annotated[str, typer.Option(help="Oldest glibc that it shall run on.")] = "2.35",
    index_url: Annotated[str | None, typer.Option(help="Package index instead of the configured one.")] = None,
    with_inventory: Annotated[bool, typer.Option("--with-inventory", help="Put the inventory in, too.")] = False,
    extra_vars: ExtraVars = None,
) -> None:
    """Make a folder from which a controller and a box are built without a network."""
    from pdlab.bundle import BundleError, Sources, Target, make_bundle, own_sources
    from pdlab.lockfile import LockError, read_lock
    from pdlab.locking import lock_now

    options = options_of(inventory, extra_vars=extra_vars)
    try:
        target = Target(tuple(python or [f"{sys.version_info.major}.{sys.version_info.minor}"]), machine, glibc)
        engine = read_lock(locked) if locked else lock_now(options, err, look=False, reach=False)
        sources = own_sources(engine.requirements.values())
        files = {"pdlab.lock.yml": locked} if locked else {}
        if with_inventory:
            files["inventory"] = options.inventory
        make_bundle(output, target, Sources(sources.requirements, files), index_url=index_url, say=out.print)
    except LockError as error:
        fail(str(error), error.status)
    except BundleError as error:
        fail(str(error), Exit.ERROR)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    out.print(f"bundle: {output} ({size / 1e9:.1f} GB); {output}/README.md says how to use it", soft_wrap=True)


@app.command()
def verify(
    inventory: Inventory = None,
    limit: Limit = None,
    extra_vars: ExtraVars = None,
    verbose: Verbose = 0,
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Known answers, PD against colocated token by token, KV-transfer counters."""
    options = options_of(inventory, limit=limit, tags="ready,verify", extra_vars=extra_vars, verbose=verbose)
    run_chain("site", options, runs_dir, as_json=as_json)


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
            go_on(folder, document, plan_of(options, document.benchmark), options)
        else:
            options = options_of(inventory, limit=limit, extra_vars=extra_vars, verbose=verbose)
            planned = plan_of(options, benchmark)
            document = new_document(
                planned,
                [arm.strip() for arm in arms],
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
        from pdlab.evidence.build import build_evidence
        from pdlab.evidence.legs import legs_of

        print_json(build_evidence(legs_of(folder), folder.name).model_dump(mode="json"))
    raise typer.Exit(int(code))


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


# --- beginning ---------------------------------------------------------------------------------------------------


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


# --- looking -----------------------------------------------------------------------------------------------------


def plan_of(options: PlaybookOptions, benchmark: dict[str, Any] | None = None) -> dict[str, Any]:
    """The resolved topology of an inventory, with another pd_benchmark if there is one.

    Ends the program with every fault of the inventory.
    """
    outcome = play_quietly("plan", options, err, {"pd_benchmark": benchmark} if benchmark else {})
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


@app.command()
def status(
    inventory: Inventory = None, limit: Limit = None, extra_vars: ExtraVars = None, as_json: AsJson = False
) -> None:
    """What runs now, and whether it is what the inventory says."""
    from pdlab.status import build_status
    from pdlab.tables import status_table

    outcome = play_quietly("status", options_of(inventory, limit=limit, extra_vars=extra_vars), err)
    if not outcome.ok:
        print_failures(outcome)
        raise typer.Exit(int(Exit.USAGE if not outcome.of_action("pd_server") else Exit.ERROR))
    found = build_status(outcome)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        out.print(status_table(found, out.width))
    raise typer.Exit(int(Exit.OK if found.ok else Exit.ERROR))


@app.command()
def logs(
    server: Annotated[str | None, typer.Argument(help="Server, or `router`. Default: all.")] = None,
    inventory: Inventory = None,
    limit: Limit = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Lines of each log.")] = 30,
    extra_vars: ExtraVars = None,
) -> None:
    """The last lines of the servers' logs."""
    options = options_of(inventory, limit=limit, extra_vars=extra_vars)
    outcome = play_quietly("logs", options, err, {"logs_server": server or "", "logs_lines": lines})
    if not outcome.ok:
        print_failures(outcome)
        raise typer.Exit(int(Exit.ERROR))
    for result in outcome.of_action("server_logs"):
        for log in result.result["logs"]:
            out.print(f"==> {result.host}: {log['path']}", style="bold", soft_wrap=True)
            out.print(log["text"], markup=False, soft_wrap=True)
        for reason in result.result["missing"]:
            err.print(f"{result.host}: {reason}", style="red", soft_wrap=True, markup=False)


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="A run's name, its id, a path, or `latest`.")] = "latest",
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Build a run's report again from its folder."""
    from pdlab.report import write_report
    from pdlab.results import build_report

    try:
        folder = RunFolder.find(runs_dir, run)
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    contents = folder.read()
    found = build_report(contents)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        from pdlab.arms_closing import show_arms_results
        from pdlab.closing import show_results

        if folder.arms_document():
            page = show_arms_results(out, folder)
        else:
            _report, page = write_report(folder)
            show_results(out, contents)
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
    runs_dir: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """What a run's numbers mean: verdicts, who wins where, what binds each load, what they support.

    Limits given here replace those that workloads state; no new measurement is needed.
    With the id of a figure (they are in every report): where that one number comes from, down to the raw lines.
    """
    from pdlab.analysis.goodput import Limits
    from pdlab.evidence.figure_ids import looks_like_id
    from pdlab.evidence.legs import legs_of
    from pdlab.explain import explain as explained
    from pdlab.explain import lines
    from pdlab.explanation import explanation

    limits = Limits(ttft_ms, tpot_ms, e2e_ms)
    asked = None if limits == Limits() else limits
    ids = [word for word in words or () if looks_like_id(word)]
    runs = [word for word in words or () if not looks_like_id(word)] or ["latest"]
    if len(ids) > 1 or (not ids and len(runs) > 1):
        fail(f"explain takes one run, or the id of one figure; given are {len(runs)} runs, {len(ids)} ids", Exit.USAGE)
    if ids:
        explain_figure(runs_dir, runs, ids[0], asked, as_json)
    try:
        folder = RunFolder.find(runs_dir, runs[0])
    except StoreError as error:
        fail(str(error), Exit.USAGE)
    try:
        found = explained(legs_of(folder), folder.run_name, asked, what_if or ())
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


# --- using and ending --------------------------------------------------------------------------------------------


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    inventory: Inventory = None,
    extra_vars: ExtraVars = None,
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 128,
) -> None:
    """Ask the running servers one question, through the router."""
    from pdlab.ask import AskError, ask_once

    try:
        out.print(ask_once(plan_of(options_of(inventory, extra_vars=extra_vars)), question, max_tokens), markup=False)
    except AskError as error:
        fail(str(error), Exit.ERROR)


@app.command()
def down(
    inventory: Inventory = None,
    limit: Limit = None,
    extra_vars: ExtraVars = None,
    check: Check = False,
    diff: Diff = False,
    as_json: AsJson = False,
) -> None:
    """Stop and remove the services. The environment, the model and the runs stay."""
    options = options_of(inventory, limit=limit, extra_vars=extra_vars, check=check, diff=diff)
    outcome = play_quietly("down", options, err)
    print_failures(outcome)
    stopped = [
        str(item.get("name"))
        for result in outcome.of_action("pd_server")
        for item in result.each()
        if item.get("changed") and item.get("reasons")
    ]
    if as_json:
        print_json({"ok": outcome.ok, "stopped": stopped})
    elif outcome.ok:
        word = "would stop" if check else "stopped"
        out.print(f"{word}: {', '.join(stopped)}" if stopped else "nothing was running")
    raise typer.Exit(int(Exit.OK if outcome.ok else Exit.ERROR))


@app.command()
def undo(
    inventory: Inventory = None,
    limit: Limit = None,
    extra_vars: ExtraVars = None,
    check: Check = False,
    force: Annotated[bool, typer.Option("--force", help="Also values that somebody has changed since.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put back the hosts' settings that pdlab changed (pd_host), and remove its Prometheus. All else of pdlab stays."""
    from pdlab.host_undo import undone, undone_lines

    options = options_of(inventory, limit=limit, extra_vars=extra_vars, check=check)
    outcome = play_quietly("host_undo", options, err, {"host_undo_force": force})
    print_failures(outcome)
    found = undone(outcome)
    if as_json:
        print_json({"ok": outcome.ok, "hosts": found})
    else:
        for line in undone_lines(found, check=check):
            out.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(int(Exit.OK if outcome.ok else Exit.ERROR))


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except StoreError as error:
        message = str(error)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        message = f"{error.strerror}: {error.filename or os.environ.get('PDLAB_RUNS_DIR') or 'the runs directory'}. "
        message += "Free space, make it writable, or name another directory with --runs-dir."
    else:
        return
    err.print(f"pdlab: {message}", style="bold red", soft_wrap=True, markup=False)
    sys.exit(int(Exit.ERROR))
