# SPDX-License-Identifier: Apache-2.0
"""The `pdlab` command itself: its program, its consoles, and what its commands share: options, errors, JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from pdlab import __version__
from pdlab.collection import resolve_extra_vars, resolve_inventory
from pdlab.exit_codes import Exit
from pdlab.runner import Outcome, PlaybookOptions

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
