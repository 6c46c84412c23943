# SPDX-License-Identifier: GPL-3.0-or-later
"""Write every flag that the installed SGLang and its router know to a file, as one JSON document.

Usage: flag_table.py OUTPUT

Stand-alone, run by the engine's Python: nothing but the standard library, sglang and sglang-router. The flags come
from the parsers that server and router themselves use (sglang.srt.server_args.ServerArgs.add_cli_args,
sglang_router.router_args.RouterArgs.add_cli_args), so they are those of the installed versions by construction.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

TYPES = {"int": "int", "float": "float", "str": "str", "loads": "json", "json.loads": "json"}


def action_name(action: argparse.Action) -> str:
    """argparse's own name of an action: store, store_true, append …"""
    name = type(action).__name__.strip("_")
    known = {
        "StoreAction": "store",
        "StoreTrueAction": "store_true",
        "StoreFalseAction": "store_false",
        "StoreConstAction": "store_const",
        "AppendAction": "append",
        "BooleanOptionalAction": "boolean_optional",
        "HelpAction": "help",
    }
    return known.get(name, "store_true" if action.nargs == 0 else "store")


def first_sentence(text: str | None) -> str:
    """The help's first sentence, on one line."""
    line = " ".join((text or "").split())
    head, dot, _rest = line.partition(". ")
    return head + dot.strip()


def describe(action: argparse.Action) -> dict[str, Any]:
    """One flag as a row of the table."""
    kind = getattr(action.type, "__name__", None) if action.type is not None else "str"
    help_text = action.help if isinstance(action.help, str) else ""
    return {
        "names": list(action.option_strings),
        "dest": action.dest,
        "nargs": action.nargs,
        "choices": list(action.choices) if action.choices is not None else None,
        "type": TYPES.get(str(kind), str(kind)),
        "action": action_name(action),
        "required": bool(action.required),
        "default": repr(action.default),
        "deprecated": "deprecated" in help_text.lower() or "deprecated" in type(action).__name__.lower(),
        "help": first_sentence(help_text),
    }


def table(program: str, add_cli_args: Callable[[argparse.ArgumentParser], Any]) -> dict[str, Any]:
    """Every flag that the parser of the package `program` has."""
    parser = argparse.ArgumentParser(prog=program, add_help=True)
    add_cli_args(parser)
    flags = [describe(action) for action in parser._actions if action.option_strings]
    return {"engine": program, "version": version(program), "flags": flags}


def router_table() -> dict[str, Any] | None:
    """The router's flags; None where no router is installed."""
    try:
        from sglang_router.router_args import RouterArgs
    except ImportError:
        return None
    return table("sglang-router", RouterArgs.add_cli_args)


def main() -> None:
    """Write the table."""
    from sglang.srt.server_args import ServerArgs

    document = {**table("sglang", ServerArgs.add_cli_args), "router": router_table()}
    with open(sys.argv[1], "w", encoding="utf-8") as stream:
        json.dump(document, stream, default=str)


if __name__ == "__main__":
    main()
