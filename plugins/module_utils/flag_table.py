# SPDX-License-Identifier: GPL-3.0-or-later
"""Write every flag that the installed SGLang knows to a file, as one JSON document. Runs in the engine's Python.

Usage: flag_table.py OUTPUT

Stand-alone: nothing but the standard library and sglang. The flags come from the parser that the server itself
uses (sglang.srt.server_args.ServerArgs.add_cli_args), so they are those of the installed version by construction.
"""

from __future__ import annotations

import argparse
import json
import sys
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


def main() -> None:
    """Write the table."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang.launch_server", add_help=True)
    ServerArgs.add_cli_args(parser)
    flags = [describe(action) for action in parser._actions if action.option_strings]
    with open(sys.argv[1], "w", encoding="utf-8") as stream:
        json.dump({"engine": "sglang", "version": version("sglang"), "flags": flags}, stream, default=str)


if __name__ == "__main__":
    main()
