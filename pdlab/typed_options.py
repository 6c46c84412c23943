# SPDX-License-Identifier: Apache-2.0
"""Options of a command line that say where and what runs, as somebody typed them; the rest says what is done there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_NAMES = {"-i": "-i", "--inventory": "-i", "-l": "-l", "--limit": "-l", "-e": "-e", "--extra-vars": "-e"}


def typed_options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each -i, -l and -e under its short name with its value, in their order, however it was spelled."""
    words = iter(command)
    for word in words:
        option, equals, value = word.partition("=")
        if option in _NAMES:
            yield _NAMES[option], value if equals else next(words, "")
        elif word.startswith("-e"):
            yield "-e", word.removeprefix("-e")
