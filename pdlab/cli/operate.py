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
