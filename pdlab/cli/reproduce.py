# SPDX-License-Identifier: Apache-2.0
"""Commands that make a box again: what is deployed in a file, the same elsewhere, without a network."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from pdlab.cli.app import (
    RUNS,
    AsJson,
    Check,
    Diff,
    ExtraVars,
    Inventory,
    Limit,
    Runs,
    SkipTags,
    Verbose,
    app,
    err,
    fail,
    options_of,
    out,
)
from pdlab.cli.chain import run_chain
from pdlab.exit_codes import Exit
from pdlab.session import Session


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
