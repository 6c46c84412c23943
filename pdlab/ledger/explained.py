# SPDX-License-Identifier: Apache-2.0
"""What `pdlab explain ID` says of a figure: its models, published as docs/schemas/figure.json, and their text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

SCHEMA_VERSION = 1

State = Literal["as when the run ended", "CHANGED since the run ended", "not in the manifest", "no manifest yet"]
Value = float | int | str | bool | None

# The same sum in another order differs in the last digits.
TOLERANCE = 1e-9


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Model):
    """A place in a run folder: one key in one line of one file."""

    file: str = Field(description="Relative to the run's folder.")
    line: int | None = Field(description="From 1. Null: the key is not there.")
    key: str
    sha256: str | None = Field(description="Of the whole file, now. Null: the file cannot be read.")
    state: State


class Explained(_Model):
    """One figure: its value from the raw lines, and how it comes from them."""

    schema_version: int = SCHEMA_VERSION
    id: str
    what: str
    value: Value = Field(description="Worked out again from the raw lines.")
    shown: Value = Field(description="The same figure as reports show it.")
    more: dict[str, Value] = Field(default_factory=dict, description="What belongs to it: an interval, a ratio.")
    formula: str
    sources: list[Source] = Field(default_factory=list)
    inputs: list[Explained] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorator on a property
    @property
    def agrees(self) -> bool:
        """Whether this figure follows from its raw lines, and so does everything that it comes from."""
        return same(self.value, self.shown) and all(one.agrees for one in self.inputs)

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorator on a property
    @property
    def intact(self) -> bool:
        """Whether no file behind it was changed since the run ended."""
        return all(source.state != "CHANGED since the run ended" for source in every_source(self))


def same(one: Value, other: Value) -> bool:
    """Whether two values are one, but for the last digits of a sum."""
    numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2:
        return math.isclose(numbers[0], numbers[1], rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return one == other


def every_source(figure: Explained) -> Iterator[Source]:
    """The raw places behind a figure, all the way down."""
    yield from figure.sources
    for one in figure.inputs:
        yield from every_source(one)


def lines(figure: Explained, width: int = 80) -> list[str]:
    """A figure and all that it comes from, as text."""
    shown = _lines(figure, width, 0, set())
    if not figure.agrees:
        shown.append("NOT what the report shows: it does not follow from the raw lines")
    if not figure.intact:
        shown.append("a file behind it was CHANGED since the run ended: `pdlab verify-run` names every one")
    return shown


def _lines(figure: Explained, width: int, depth: int, told: set[str]) -> list[str]:
    """Words and formulas stand once: the inputs of a mean have the same."""
    indent = "  " * depth
    head = f"{indent}{figure.id} = {value_words(figure.value)}"
    if figure.id in told:
        return [f"{head} (above)"]
    told.add(figure.id)
    shown = [head]
    if not same(figure.value, figure.shown):
        shown.append(f"{indent}  the report shows {value_words(figure.shown)}")
    if figure.more:
        shown.append(f"{indent}  " + ", ".join(f"{name} {value_words(value)}" for name, value in figure.more.items()))
    if depth == 0:
        shown += _wrapped(figure.what, width, indent + "  ")
    if figure.formula not in told:
        told.add(figure.formula)
        shown += _wrapped(f"= {figure.formula}", width, indent + "  ")
    shown += [f"{indent}  {line}" for line in _places(figure.sources)]
    for one in figure.inputs:
        shown += _lines(one, width, depth + 1, told)
    return shown


def _places(sources: Sequence[Source]) -> list[str]:
    """Places as text: all keys of a line together, and lines that follow each other with the same keys."""
    keys: dict[tuple[str, str, int | None], list[str]] = {}
    for source in sources:
        digest = "cannot be read" if source.sha256 is None else f"sha256 {source.sha256[:16]}"
        keys.setdefault((source.file, f"({digest}, {source.state})", source.line), []).append(source.key)
    runs: list[tuple[str, str, str, list[int | None]]] = []
    for (file, state, line), named in keys.items():
        said = ", ".join(named)
        before = runs[-1] if runs else None
        last = before[3][-1] if before else None
        if before and before[:3] == (file, state, said) and last is not None and line == last + 1:
            before[3].append(line)
        else:
            runs.append((file, state, said, [line]))
    return [f"{file}{_line_words(numbers)}  {said}  {state}" for file, state, said, numbers in runs]


def _line_words(numbers: Sequence[int | None]) -> str:
    if numbers[0] is None:
        return ""
    return f":{numbers[0]}" if len(numbers) == 1 else f":{numbers[0]}-{numbers[-1]}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, max(width, 40), initial_indent=indent, subsequent_indent=indent + "  ")


def value_words(value: Value) -> str:
    """A value whole, as it can be read back."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else repr(value)
