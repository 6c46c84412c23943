# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with an inventory, said once per fault: where, what, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

_LAST_PART = re.compile(r"(\.[^.\[\]]+|\[\d+\])$")


@dataclass(frozen=True)
class Fault:
    """One fault. `key` is a path such as `pd_servers[1].port`; `origin` is `file:line` when it is known."""

    key: str
    problem: str
    cure: str
    origin: str | None = None

    def __str__(self) -> str:
        return f"{self.origin + ' ' if self.origin else ''}{self.key}: {self.problem}; {self.cure}"

    def as_dict(self) -> dict[str, str | None]:
        """The fault as plain JSON, its one line included."""
        return {
            "key": self.key,
            "problem": self.problem,
            "cure": self.cure,
            "origin": self.origin,
            "text": str(self),
        }


class Faults:
    """Collects faults in the order they are found, each once, and knows where each key was written."""

    def __init__(self, origins: Mapping[str, str] | None = None) -> None:
        self._origins = origins or {}
        self._faults: dict[Fault, None] = {}

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, key: str, problem: str, cure: str, origin: str | None = None) -> None:
        """Note a fault at `key`; its origin defaults to that of the key or of the nearest key around it."""
        self._faults[Fault(key, problem, cure, origin or self.origin(key))] = None

    def origin(self, key: str) -> str | None:
        """`file:line` of `key`, or of what holds it."""
        while key:
            if key in self._origins:
                return self._origins[key]
            shorter = _LAST_PART.sub("", key)
            if shorter == key:
                return None
            key = shorter
        return None


def in_file_order(faults: Iterable[Fault]) -> list[Fault]:
    """Faults of one file by line; those of no known place first, in the order in which they were found."""

    def place(fault: Fault) -> tuple[str, int]:
        file, _colon, line = (fault.origin or "").rpartition(":")
        return (file, int(line)) if line.isdigit() else ("", 0)

    return sorted(faults, key=place)


def suggestion(word: Any, known: Any) -> str:
    """`did you mean X?` when a known word is close to `word`, otherwise the list of known words."""
    names = [str(name) for name in known]
    close = get_close_matches(str(word).lower(), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return "known are " + ", ".join(names) if names else "nothing is known here"
