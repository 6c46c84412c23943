# SPDX-License-Identifier: Apache-2.0
"""What a rebuild changed: the hosts as the module box_state saw them before and after."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pdlab.lockfile import sealed_argv, sealed_environment
from pdlab.loose import as_mapping, as_rows
from pdlab.store import RunContents

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Change:
    """One thing that differed: on which host, of which part, what, before and after (None: not there)."""

    host: str
    part: str
    what: str
    before: str | None
    after: str | None


def changes(contents: RunContents) -> list[Change] | None:
    """Everything that differed between the two looks of a rebuild, host by host; None when it did not come to both."""
    before, after = contents.host_records("before"), contents.host_records("after")
    if not set(before) & set(after):
        return None
    return [
        change for host in sorted(set(before) & set(after)) for change in host_changes(host, before[host], after[host])
    ]


def host_changes(host: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differed on one host."""
    old, new = as_mapping(before.get("engine")), as_mapping(after.get("engine"))
    found = [*_values(host, "engine", old, new, ("state", "python_version", "fingerprint", "leftovers"))]
    found += _values(host, "package", as_mapping(old.get("packages")), as_mapping(new.get("packages")))
    found += _overlay(host, as_mapping(before.get("overlay")), as_mapping(after.get("overlay")))
    keys = ("path", "state", "files", "bytes", "fingerprint")
    found += _values(host, "model", as_mapping(before.get("model")), as_mapping(after.get("model")), keys)
    found += _services(host, as_mapping(before.get("services")), as_mapping(after.get("services")))
    return found


def _values(
    host: str, part: str, old: Mapping[str, Any], new: Mapping[str, Any], keys: tuple[str, ...] | None = None
) -> Iterator[Change]:
    for key in keys or sorted(set(old) | set(new)):
        if _shown(old.get(key)) != _shown(new.get(key)):
            yield Change(host, part, key, _shown(old.get(key)), _shown(new.get(key)))


def _overlay(host: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for fault in old.get("faults") or []:
        path, _colon, what = str(fault).partition(": ")
        yield Change(host, "overlay", path, what, "as the overlay makes it" if new.get("patches") else None)
    was, now = (
        {str(row.get("patch")): str(row.get("reason")) for row in as_rows(side.get("patches"))} for side in (old, new)
    )
    yield from _values(host, "overlay", was, now)


def _services(host: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted(set(old) | set(new)):
        before, after = as_mapping(old.get(name)), as_mapping(new.get(name))
        if not before or not after:
            yield Change(host, "service", name, before.get("state"), after.get("state"))
            continue
        yield from _values(host, f"service {name}", before, after, ("manager", "state"))
        texts = [definition_parts(str(side.get("definition"))) for side in (before, after)]
        for part, index in (("definition", 0), ("environment", 1)):
            yield from _values(host, f"{part} {name}", texts[0][index], texts[1][index])


def definition_parts(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """A service definition's words, of whichever manager: (those of the command and the settings, the environment).

    Both by name: a flag or setting with its value, a variable with its value. Secrets are hashes.
    """
    settings: dict[str, str] = {}
    environment: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip()[0] in "[":
            continue
        key, equals, value = line.partition("=")
        if line.lstrip()[0] in "#;" or not equals:
            name, _colon, rest = line.lstrip("#; ").partition(": ")
            settings[name] = rest
            continue
        words = _words(value)
        assignments = [word for word in words if _ASSIGNMENT.match(word)] if key in ("Environment", "command") else []
        environment.update(dict(word.split("=", 1) for word in assignments))
        others = sealed_argv([word for word in words if word not in assignments])
        if key in ("ExecStart", "command"):
            settings.update(_flags(others))
        elif key != "Environment":
            settings[key] = " ".join(others)
    return settings, sealed_environment(environment)


def _flags(argv: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = "command"
    for word in argv:
        if word.startswith("--"):
            name = word
            found[name] = ""
        else:
            found[name] = f"{found.get(name, '')} {word}".strip()
    return found


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _shown(value: Any) -> str | None:
    if value is None or value == []:
        return None
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
