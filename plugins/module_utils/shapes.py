# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of plain values (what YAML gives), built from small parts.

A check is called with the fault collector, the key path and the value. It returns the value as the caller may use
it, or INVALID after it has noted why not. No check raises on bad input.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults, suggestion

INVALID: Any = type("Invalid", (), {"__repr__": lambda self: "INVALID", "__bool__": lambda self: False})()
Check = Callable[[Faults, str, Any], Any]


def kind(value: Any) -> str:
    """The name of a value's type in YAML's words, with the value when it is short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 60 else f"a text of {len(value)} characters"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return type(value).__name__


def _has_control_characters(text: str) -> bool:
    return any(ord(character) < 32 or ord(character) == 127 for character in text)


def text(example: str, *, empty: bool = False) -> Check:
    """A text on one line; not empty unless `empty`."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            faults.add(key, f"is {kind(value)}, not a text", f"write for example {example!r}, in quotes")
        elif not value.strip() and not empty:
            faults.add(key, "is empty", f"write for example {example!r}")
        elif _has_control_characters(value):
            faults.add(key, "holds a line break or control character", f"write for example {example!r}")
        else:
            return value
        return INVALID

    return check


def prose(example: str) -> Check:
    """A text that may span lines; not empty."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            faults.add(key, f"is {kind(value)}, not a text", f"write for example {example!r}, in quotes")
        elif not value.strip():
            faults.add(key, "is empty", f"write for example {example!r}")
        else:
            return value
        return INVALID

    return check


def text_or_number(example: str) -> Check:
    """A text that is not empty, or a number, which becomes its text."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        return prose(example)(faults, key, value)

    return check


def path(example: str) -> Check:
    """An absolute path, or one below `~`, without a trailing slash."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        value = text(example)(faults, key, value)
        if value is INVALID:
            return INVALID
        if not value.startswith(("/", "~")):
            faults.add(key, f"{value!r} is not an absolute path", f"write the whole path, for example {example}")
            return INVALID
        return value.rstrip("/") or "/"

    return check


def integer(low: int, high: int | None = None, unit: str = "") -> Check:
    """A whole number from `low` to `high`."""
    span = f"{low} to {high}" if high is not None else f"{low} or more"

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            hint = "without quotes" if isinstance(value, str) else f"{unit or 'a number'}, {span}"
            faults.add(key, f"is {kind(value)}, not a whole number", f"write a whole number {hint}")
        elif value < low or (high is not None and value > high):
            faults.add(key, f"{value} is out of range", f"write {unit + ' ' if unit else ''}{span}")
        else:
            return value
        return INVALID

    return check


def number(low: float, high: float | None = None, *, above_low: bool = False) -> Check:
    """A number between `low` and `high`, both allowed unless `above_low`."""
    start = f"above {low:g}" if above_low else f"{low:g}"
    span = f"{start} to {high:g}" if high is not None else (start if above_low else f"{start} or more")

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            hint = " without quotes" if isinstance(value, str) else ""
            faults.add(key, f"is {kind(value)}, not a number", f"write a number{hint}, {span}")
        elif not (value > low if above_low else value >= low) or (high is not None and not value <= high):
            faults.add(key, f"{value} is out of range", f"write a number, {span}")
        else:
            return value
        return INVALID

    return check


def boolean() -> Check:
    """true or false; the words as text too, because `-e key=true` gives a text."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        faults.add(key, f"is {kind(value)}, not true or false", "write true or false")
        return INVALID

    return check


def choice(*names: str) -> Check:
    """One of some words."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, str) and value in names:
            return value
        problem = f"{value!r} is unknown" if isinstance(value, str) else f"is {kind(value)}"
        faults.add(key, problem, f"write one of {', '.join(names)}")
        return INVALID

    return check


def number_choice(*numbers: int) -> Check:
    """One of some whole numbers."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and value in numbers:
            return value
        faults.add(key, f"is {kind(value)}", f"write one of {', '.join(map(str, numbers))}")
        return INVALID

    return check


def ip_address(example: str) -> Check:
    """A literal IPv4 or IPv6 address: SGLang's ZMQ sockets cannot bind a host name."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        value = text(example)(faults, key, value)
        if value is INVALID:
            return INVALID
        try:
            ipaddress.ip_address(value)
        except ValueError:
            faults.add(key, f"{value!r} is not an IP address", f"write the address itself, for example {example}")
            return INVALID
        return value

    return check


def list_of(item: Check, *, empty: bool = False, what: str = "items") -> Check:
    """A list whose valid items are kept, with None in the place of each invalid one, so that indices stay."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            faults.add(key, f"is {kind(value)}, not a list", f"write a list of {what}")
            return INVALID
        if not value and not empty:
            faults.add(key, "is an empty list", f"list at least one of the {what}")
            return INVALID
        checked = [item(faults, f"{key}[{index}]", entry) for index, entry in enumerate(value)]
        return [None if entry is INVALID else entry for entry in checked]

    return check


def mapping(
    keys: Mapping[str, Check],
    required: Mapping[str, str] | None = None,
    optional_null: bool = True,
    hints: Mapping[str, str] | None = None,
) -> Check:
    """A mapping with known keys. `required` gives each obligatory key with an example of its line.

    `hints` says what to do for keys that people write and that are known to be wrong. A key whose value is null
    counts as not written, unless `optional_null` is false. Only valid keys are kept.
    """

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            faults.add(key, f"is {kind(value)}, not a mapping", "write `key: value` lines below it")
            return INVALID
        kept: dict[str, Any] = {}
        for name, entry in value.items():
            where = f"{key}.{name}"
            if name not in keys:
                faults.add(where, "is an unknown key", (hints or {}).get(name) or suggestion(name, keys))
            elif entry is not None or not optional_null:
                checked = keys[name](faults, where, entry)
                if checked is not INVALID:
                    kept[name] = checked
        for name, example in (required or {}).items():
            if value.get(name) is None:
                faults.add(f"{key}.{name}", "is missing", f"write for example `{name}: {example}`")
        return kept

    return check
