# SPDX-License-Identifier: GPL-3.0-or-later
"""Is this text the answer that was expected? Tolerant of form, never of another number. Pure.

Passes: other case, text around the answer, punctuation, thousands separators, another way to separate a list.
Never passes: a text whose sequence of numbers differs from the expected one in any number, their count or order, or
one that denies or changes the answer in words ("not 391", "391 thousand"). Where a form is ambiguous ("- 391" may be
a bullet or a negative number), it does not pass: a right answer refused is looked at, a wrong one passed is not.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

MINUS = "-\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
GROUP = ",'\u2019_\u2009\u202f"
# Words and numbers. A separator belongs to a number only between two digits: "391.That" is 391 and a word.
_RUN = re.compile(rf"[^\W_]+(?:(?<=[0-9])[.{GROUP}](?=[0-9])[^\W_]+)*")
_SIGN = re.compile(rf"[{MINUS}]\s*$")
_INTEGER = re.compile(r"0|[1-9][0-9]*")
_DECIMAL = re.compile(r"(0|[1-9][0-9]*)\.([0-9]+)")
_GROUPED = re.compile(rf"[1-9][0-9]{{0,2}}([{GROUP}])[0-9]{{3}}(?:\1[0-9]{{3}})*(?:\.[0-9]+)?")
_BETWEEN_NUMBERS = re.compile(r"[\s,;&.*_`'\"()\[\]|\u2022\u00b7]*")

CONNECTIVES = frozenset({"and", "then", "plus"})
# Words that deny or hedge what follows, in an answer that was expected without them.
DENIALS = frozenset(
    [
        "not",
        "no",
        "never",
        "nor",
        "neither",
        "none",
        "cannot",
        "without",
        "except",
        "excluding",
        "wrong",
        "incorrect",
        "false",
        "instead",
        "unless",
        "or",
    ]
)
# Words that make another number of the one beside them.
CHANGERS = frozenset(
    [
        "minus",
        "negative",
        "times",
        "hundred",
        "thousand",
        "million",
        "billion",
        "trillion",
        "dozen",
        "half",
        "quarter",
        "point",
        "percent",
        "squared",
        "cubed",
        "than",
    ]
)
CHANGING_SIGNS = frozenset("<>≠≤≥≈~^/%‰√×÷+±")
NUMBER_WORDS = frozenset(
    [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "seventy",
        "eighty",
        "ninety",
    ]
)


class Token(NamedTuple):
    """A word (casefolded) or a number in its one canonical form, and where it stands in the text."""

    is_number: bool
    value: str
    start: int
    end: int


class Verdict(NamedTuple):
    """`why` is None when `ok`."""

    ok: bool
    why: str | None


def numbers(text: str) -> list[str]:
    """The numbers of a text in order: "-391", "391.5", "1391" (of "1,391"). What is no plain number stays as it is."""
    return [token.value for token in _tokens(text) if token.is_number]


def match(expected: str, got: str) -> Verdict:
    """Compare an answer with the expected one.

    Raises ValueError when `expected` has neither a word nor a number, since everything would match it.
    """
    wanted, found = _tokens(expected), _tokens(got)
    if not wanted:
        raise ValueError(f"the expected answer {expected!r} has neither a word nor a number")
    if not found:
        return Verdict(False, "the answer is empty" if not got.strip() else "the answer has no word and no number")
    wanted_numbers, found_numbers = ([t.value for t in side if t.is_number] for side in (wanted, found))
    if wanted_numbers != found_numbers:
        return Verdict(False, f"numbers found: {_listed(found_numbers)}; wanted: {_listed(wanted_numbers)}")
    wanted_words = {token.value for token in wanted if not token.is_number}
    changing = _changing_words(found, wanted_words, bool(wanted_numbers))
    if changing:
        return Verdict(False, f"the word {changing[0]!r} denies or changes the answer")
    if wanted_numbers:
        signs = sorted((CHANGING_SIGNS & set(got)) - set(expected))
        if signs:
            return Verdict(False, f"the sign {signs[0]!r} changes a number")
    return _find(wanted, found, expected, got)


def _tokens(text: str) -> list[Token]:
    text = unicodedata.normalize("NFC", text)
    tokens: list[Token] = []
    for run in _RUN.finditer(text):
        if any(character.isnumeric() for character in run[0]):
            before = text[: run.start()]
            values = _number_values(run[0])
            if before.endswith("."):  # ".5", and to be safe "…5" written with dots
                values[0] = "." + values[0]
            if _SIGN.search(before):
                values[0] = "-" + values[0]
            tokens.extend(Token(True, value, run.start(), run.end()) for value in values)
            continue
        tokens.append(Token(False, run[0].casefold(), run.start(), run.end()))
    return _joined_contractions(tokens, text)


def _joined_contractions(tokens: list[Token], text: str) -> list[Token]:
    """Make one word of "isn" and "t" where an apostrophe alone stands between them."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if (
            last is not None
            and not token.is_number
            and not last.is_number
            and text[last.end : token.start] in ("'", "\u2019")
        ):
            joined[-1] = Token(False, last.value + "'" + token.value, last.start, token.end)
        else:
            joined.append(token)
    return joined


def _number_values(run: str) -> list[str]:
    """The canonical numbers of one run; a run that is no plain number ("391px", "0391", "1.2.3") stands for itself."""
    if _GROUPED.fullmatch(run):
        run = re.sub(f"[{GROUP}]", "", run)
    parts = run.split(",")
    if all(_INTEGER.fullmatch(part) or _DECIMAL.fullmatch(part) for part in parts):
        return [_canonical(part) for part in parts]
    return [run.casefold()]


def _canonical(number: str) -> str:
    decimal = _DECIMAL.fullmatch(number)
    if decimal is None:
        return number
    whole, fraction = decimal.groups()
    # "391.0" is 391; "391.000" may be somebody's 391000.
    return whole if fraction in ("0", "00") else f"{whole}.{fraction}"


def _changing_words(found: list[Token], wanted_words: set[str], has_numbers: bool) -> list[str]:
    words = [token.value for token in found if not token.is_number and token.value not in wanted_words]
    refused = DENIALS | CHANGERS if has_numbers else DENIALS
    return [word for word in words if word in refused or word.endswith("n't")]


def _find(wanted: list[Token], found: list[Token], expected: str, got: str) -> Verdict:
    """The expected tokens must stand in the answer as they are, next to each other, connectives aside."""
    needle = [token for token in wanted if token.value not in CONNECTIVES] or wanted
    hay = [token for token in found if token.value not in CONNECTIVES] or found
    got = unicodedata.normalize("NFC", got)
    values = [token.value for token in needle]
    why = f"{expected!r} is not in the answer"
    for start in range(len(hay) - len(needle) + 1):
        here = hay[start : start + len(needle)]
        if [token.value for token in here] != values:
            continue
        why_not = _broken_run(hay, start, here, got)
        if why_not is None:
            return Verdict(True, None)
        why = why_not
    return Verdict(False, why)


def _broken_run(hay: list[Token], start: int, here: list[Token], got: str) -> str | None:
    """Why a run of the right tokens is still another answer: an operator inside, or a spelled number beside it."""
    for index, left in enumerate(here[:-1]):
        right = here[index + 1]
        if left.is_number and right.is_number and left.end <= right.start:
            gap = re.sub("|".join(CONNECTIVES), " ", got[left.end : right.start], flags=re.IGNORECASE)
            if not _BETWEEN_NUMBERS.fullmatch(gap):
                return f"{gap.strip()!r} stands between {left.value} and {right.value}"
    if any(token.is_number for token in here):
        beside = [hay[i].value for i in (start - 1, start + len(here)) if 0 <= i < len(hay)]
        spelled = [value for value in beside if value in NUMBER_WORDS]
        if spelled:
            return f"the number {spelled[0]!r} stands beside the answer"
    return None


def _listed(values: list[str]) -> str:
    return ", ".join(values) if values else "none"
