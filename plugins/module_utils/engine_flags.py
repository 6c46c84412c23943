# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds a server's command line against the flags that the installed engine's own parser knows, or its router's.

The table is the JSON that flag_table.py makes from these parsers. Every fault is found before anything is stopped.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import program_arguments
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import ROUTER

# argparse takes these for values, not for flags, when no flag looks like a number.
_NEGATIVE_NUMBER = re.compile(r"-(?:\d+|\d*\.\d+)\Z")
_SHOWN_CHOICES = 12
_INSTEAD = re.compile(r"(?:use|favou?r of|replaced by|instead of this)[^-]*(--[A-Za-z0-9][\w-]*)", re.IGNORECASE)


def load_table(path: str) -> dict[str, Any]:
    """Read a flag table, plain JSON or gzip. Raises OSError, or ValueError when it is no flag table."""
    with open(path, "rb") as stream:
        data = stream.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    table = json.loads(data)
    if not isinstance(table, dict) or not isinstance(table.get("flags"), list) or "router" not in table:
        raise ValueError(f"{path} is no flag table; remove it and let the engine role make it again")
    return table


def table_for(role: str, table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The flags of a server of this role, engine or router; None where the router is not installed."""
    return table["router"] if role == ROUTER else table


def flag_faults(argv: Sequence[str], table: Mapping[str, Any], server: str) -> list[str]:
    """Return every reason why the engine would refuse this command line, as sentences that say what to do.

    `argv` is the whole command line (numactl and the Python included) or only its flags. `server` is the server's
    name for the messages.
    """
    return _Reading(table, server).faults(program_arguments(argv))


def deprecations(argv: Sequence[str], table: Mapping[str, Any], server: str) -> list[str]:
    """Return a sentence for each flag in use that the engine calls deprecated but still takes."""
    reading = _Reading(table, server)
    found = []
    for name, _ in _groups(program_arguments(argv)):
        flag = reading.known.get(name)
        if flag is not None and flag.get("deprecated"):
            found.append(
                f"{server}: args {_key(name)}: {reading.engine} calls this flag deprecated{_instead(flag, name)}"
            )
    return found


def _groups(items: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Split flags and their values; values before the first flag come under the empty name."""
    groups: list[tuple[str, list[str]]] = []
    for item in items:
        if item.startswith("-") and item != "-" and not _NEGATIVE_NUMBER.match(item) and " " not in item:
            name, equals, value = item.partition("=")
            groups.append((name, [value] if equals else []))
        elif groups:
            groups[-1][1].append(item)
        else:
            groups.append(("", [item]))
    return groups


class _Reading:
    """One pass over a command line, with the table's names at hand."""

    def __init__(self, table: Mapping[str, Any], server: str) -> None:
        self._server = server
        self._flags: list[dict[str, Any]] = list(table["flags"])
        self.engine = f"{table.get('engine') or 'the engine'} {table.get('version') or ''}".strip()
        self.known = {name: flag for flag in self._flags for name in flag["names"]}

    def faults(self, items: Sequence[str]) -> list[str]:
        found: list[str] = []
        seen: dict[str, str] = {}
        for name, values in _groups(items):
            flag = self.known.get(name)
            if name == "":
                found.append(self._say(values[0], "stands before any flag", "write it as the value of a flag"))
            elif flag is None:
                found.append(self._unknown(name))
            else:
                found += self._value_faults(name, flag, values)
                dest = str(flag.get("dest") or name)
                if dest in seen and not _repeats(flag):
                    found.append(self._say(name, f"sets the same thing as {seen[dest]}", "keep one of the two"))
                seen.setdefault(dest, name)
        for flag in self._flags:
            if flag.get("required") and str(flag.get("dest")) not in seen and _is_option(flag):
                found.append(self._say(flag["names"][-1], f"is required by {self.engine}", "add it"))
        return found

    def _say(self, name: str, problem: str, cure: str) -> str:
        return f"{self._server}: args {_key(name)}: {problem}; {cure}"

    def _unknown(self, name: str) -> str:
        longer = sorted(other for other in self.known if other.startswith(name) and other.startswith("--"))
        if longer and name.startswith("--"):
            return self._say(name, f"{self.engine} has no flag {name}", f"write it in full: {' or '.join(longer[:3])}")
        nearest = _nearest(name, list(self.known))
        cure = f"did you mean {nearest}?" if nearest else "remove it, or look at the flags of the installed version"
        return self._say(name, f"{self.engine} has no flag {name}", cure)

    def _value_faults(self, name: str, flag: Mapping[str, Any], values: list[str]) -> list[str]:
        least, most = _arity(flag)
        if len(values) < least:
            return [self._say(name, f"needs {_count(least, most)}, got {len(values) or 'none'}", "give it a value")]
        if most is not None and len(values) > most:
            what = "takes no value" if most == 0 else f"takes {_count(least, most)}, got {len(values)}"
            cure = "write true to switch it on, false to leave it out" if most == 0 else "give it as one value"
            return [self._say(name, f"{what} ({' '.join(values)})", cure)]
        found = []
        choices = flag.get("choices")
        for value in values:
            if not _has_type(value, flag.get("type")):
                found.append(self._say(name, f"{value!r} is no {_TYPE_WORDS[str(flag['type'])]}", "correct the value"))
            elif choices and value not in [str(choice) for choice in choices]:
                found.append(self._say(name, f"{value!r} is not possible", _choices_cure(value, choices)))
        return found


_TYPE_WORDS = {
    "int": "whole number",
    "float": "number",
    "json": "JSON",
    "human_readable_int": "whole number such as 65536, 64k or 64Ki",
}
# sglang.srt.utils.common.human_readable_int: decimal suffixes take a fraction, binary ones do not.
_HUMAN_INT = re.compile(r"[+-]?\d+|\d+(?:\.\d+)?[kMGT]|\d+[KMGT]i")


def _has_type(value: str, kind: Any) -> bool:
    if kind not in _TYPE_WORDS:
        return True  # a parser's own function: only the engine can tell
    if kind == "human_readable_int":
        return _HUMAN_INT.fullmatch(value) is not None
    try:
        {"int": int, "float": float}.get(str(kind), json.loads)(value)
    except ValueError:
        return False
    return True


def _arity(flag: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return how many values the flag takes: least and most (None: any number)."""
    nargs = flag.get("nargs")
    if isinstance(nargs, int):
        return nargs, nargs
    if nargs == "?":
        return 0, 1
    if nargs == "*":
        return 0, None
    if nargs == "+":
        return 1, None
    action = str(flag.get("action") or "").lower().replace("_", "")
    if any(word in action for word in ("storetrue", "storefalse", "storeconst", "count", "help", "version", "boolean")):
        return 0, 0
    return 1, 1


def _repeats(flag: Mapping[str, Any]) -> bool:
    action = str(flag.get("action") or "").lower()
    return "append" in action or "extend" in action or "count" in action


def _is_option(flag: Mapping[str, Any]) -> bool:
    return all(name.startswith("-") for name in flag["names"])


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least} value{'s' if least > 1 else ''}"
    if least == most:
        return f"{least} value{'s' if least > 1 else ''}"
    return f"{least} to {most} values"


def _choices_cure(value: str, choices: Sequence[Any]) -> str:
    names = [str(choice) for choice in choices]
    close = get_close_matches(value, names, n=1, cutoff=0.6)
    shown = ", ".join(names[:_SHOWN_CHOICES]) + (", …" if len(names) > _SHOWN_CHOICES else "")
    return (f"did you mean {close[0]}? " if close else "") + f"possible are {shown}"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known flag closest in spelling, or the one that shares most words with it."""
    close = get_close_matches(name, known, n=1, cutoff=0.75)
    if close:
        return close[0]
    words = set(name.strip("-").split("-"))
    scored = [
        (len(words & other) / len(words | other), flag) for flag in known for other in [set(flag.strip("-").split("-"))]
    ]
    best = max(scored, default=(0.0, ""))
    return best[1] if best[0] >= 0.5 else None


def _instead(flag: Mapping[str, Any], name: str) -> str:
    match = _INSTEAD.search(str(flag.get("help") or ""))
    return f"; use {match.group(1)}" if match and match.group(1) != name else "; it may go with the next version"


def _key(name: str) -> str:
    """Return the inventory's spelling of a flag: its key in `args`."""
    return name.lstrip("-")
