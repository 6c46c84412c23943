# SPDX-License-Identifier: Apache-2.0
"""In which line of a JSON text a key stands. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

Key = str | int

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def line_of(text: str, keys: Sequence[Key]) -> int | None:
    """The line, from 1, where the value at a path of keys and indices begins; None when there is none, or no JSON."""
    try:
        at = _blank(text, 0)
        for key in keys:
            found = _element(text, at, key) if isinstance(key, int) else _member(text, at, key)
            if found is None:
                return None
            at = found
    except (ValueError, IndexError, RecursionError):
        return None
    return text.count("\n", 0, at) + 1


def key_words(keys: Sequence[Key]) -> str:
    """A path as people write it: benchmark.points[2].seed."""
    words = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return words.removeprefix(".")


def _member(text: str, at: int, key: str) -> int | None:
    """Where the value of a key begins in the object at `at`; of a key that stands there twice, the last, as json takes."""
    if text[at] != "{":
        return None
    at, found = _blank(text, at + 1), None
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _blank(text, _blank(text, at) + 1)
        if name == key:
            found = at
        at = _next(text, at)
    return found


def _element(text: str, at: int, index: int) -> int | None:
    if text[at] != "[":
        return None
    at = _blank(text, at + 1)
    while text[at] != "]":
        if index == 0:
            return at
        index -= 1
        at = _next(text, at)
    return None


def _next(text: str, at: int) -> int:
    """Where the next member begins, or the closing bracket stands, after the value at `at`."""
    _value, at = _DECODER.raw_decode(text, at)
    at = _blank(text, at)
    return _blank(text, at + 1) if text[at] == "," else at


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
