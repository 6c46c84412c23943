# SPDX-License-Identifier: Apache-2.0
"""Text and tables as Markdown that shows them as they are. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from pdlab.plain_text import plain_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def text(value: object) -> str:
    """Any text as one line of Markdown that shows it as it is: no markup, no HTML, no table breaks."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain_text(str(value)).split()))


def code(value: str) -> str:
    """Any text as code within a line, between more backticks than it holds in a row."""
    ticks = "`" * (max((len(found) for found in re.findall(r"`+", value)), default=0) + 1)
    return f"{ticks}{' '.join(value.split())}{ticks}"


def fenced(value: str) -> str:
    """Lines as a code block whose fence is longer than any run of backticks in it."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", value)), default=0)
    fence = "`" * max(3, longest + 1)
    # A comment line of findings.md must never come from a log.
    safe = value.replace("<!--", "<! --")
    return f"{fence}text\n{safe}\n{fence}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """A table that reads well unrendered, too. Cells are Markdown already; `left`: columns of words, not of figures."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[column]) for row in lines)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "| " + " | ".join(cells) + " |"

    rule = [f"{'-' * (width - 1)}{'-' if column in left else ':'}" for column, width in enumerate(widths)]
    return "\n".join([line(lines[0]), "| " + " | ".join(rule) + " |", *(line(row) for row in lines[1:])])
