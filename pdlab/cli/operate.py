# SPDX-License-Identifier: Apache-2.0
"""Commands for what runs now."""

from __future__ import annotations

from typing import Annotated

import typer

from pdlab.cli.app import (
    AsJson,
    Check,
    Diff,
    ExtraVars,
    Inventory,
    Limit,
    app,
    err,
    fail,
    options_of,
    out,
    print_failures,
    print_json,
)
from pdlab.cli.box import plan_of
from pdlab.exit_codes import Exit
from pdlab.runner import Outcome
from pdlab.session import play_quietly


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
        raise typer.Exit(int(Exit.USAGE if not outcome.of_action("pd_servers") else Exit.ERROR))
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
    force: Annotated[bool, typer.Option("--force", help="Also from under a run that is on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop and remove the services. The environment, the model and the runs stay. Refused while a run is on."""
    options = options_of(inventory, limit=limit, extra_vars=extra_vars, check=check, diff=diff)
    outcome = play_quietly("down", options, err, {"down_force": force})
    print_failures(outcome)
    print_holders(outcome, force)
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
    raise typer.Exit(int(status_of(outcome)))


@app.command()
def undo(
    inventory: Inventory = None,
    limit: Limit = None,
    extra_vars: ExtraVars = None,
    check: Check = False,
    force: Annotated[bool, typer.Option("--force", help="Also values that somebody has changed since.")] = False,
    during_run: Annotated[bool, typer.Option("--during-run", help="Also while a run is on.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put back the hosts' settings that pdlab changed (pd_host), and remove its Prometheus. All else of pdlab stays."""
    from pdlab.host_undo import undone, undone_lines

    options = options_of(inventory, limit=limit, extra_vars=extra_vars, check=check)
    outcome = play_quietly("host_undo", options, err, {"host_undo_force": force, "host_undo_during_run": during_run})
    print_failures(outcome)
    print_holders(outcome, during_run)
    found = undone(outcome)
    if as_json:
        print_json({"ok": outcome.ok, "hosts": found})
    else:
        for line in undone_lines(found, check=check):
            out.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(int(status_of(outcome)))


def print_holders(outcome: Outcome, forced: bool) -> None:
    """Say which hosts a run holds that was not heeded: in check mode, or on purpose."""
    for result in outcome.of_action("run_lock"):
        # A refusal has been told as a failure.
        if (holder := result.result.get("held_by")) and result not in outcome.failures:
            run = f"{result.host}: another pdlab run (PID {holder['pid']} on {holder['controller']}) holds this host"
            err.print(f"{run}; {'going on all the same' if forced else 'this would be refused'}", soft_wrap=True)


def status_of(outcome: Outcome) -> Exit:
    """The exit status of what stops or changes something outside of a run."""
    if outcome.ok:
        return Exit.OK
    return Exit.BUSY if outcome.refused_by_a_run else Exit.ERROR
