# SPDX-License-Identifier: Apache-2.0
"""Reading documents that may hold anything: a run folder can be damaged, cut short, or of another version."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def as_list(value: object) -> list[Any]:
    """A list as it is; a lone text as a list of one; anything else as none."""
    if isinstance(value, str):
        return [value] if value else []
    return list(value) if isinstance(value, list | tuple) else []


def as_mapping(value: object) -> Mapping[str, Any]:
    """A mapping as it is; anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_rows(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list."""
    return [row for row in as_list(value) if isinstance(row, Mapping)]


def as_text(value: object) -> str | None:
    """Anything as text; None stays None."""
    return None if value is None else str(value)


def as_number(value: object) -> float | None:
    """A finite number; None for anything else (the benchmark client writes NaN for a mean of nothing)."""
    # Nearly all that is asked are floats, by the million: the gaps between tokens of every request.
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def as_integer(value: object) -> int | None:
    """A finite number without its fraction; None for anything else."""
    number = as_number(value)
    return None if number is None else int(number)


def as_bool(value: object) -> bool | None:
    """True or False; None for anything else."""
    return value if isinstance(value, bool) else None
