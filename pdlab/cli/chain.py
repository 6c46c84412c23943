# SPDX-License-Identifier: Apache-2.0
"""Commands that play the stages of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

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
    Tags,
    Verbose,
    app,
    err,
    options_of,
    out,
    print_failures,
    print_json,
)
from pdlab.exit_codes import Exit
from pdlab.runner import PlaybookOptions
from pdlab.session import Session, Step
from pdlab.store import RunFolder


def load_closing() -> None:
    """Load what the end of a run needs, beside the run; what cannot be loaded is told there."""
    with suppress(Exception):
        for name in ("ledger.sealing", "closing", "evidence.build", "report.markdown", "report.html"):
            import_module(f"pdlab.{name}")
        import_module("pdlab.report.html").compile_templates()


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
            from pdlab.run_document import run_document

            print_json(run_document(session.folder))
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
