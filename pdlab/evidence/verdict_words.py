# SPDX-License-Identifier: Apache-2.0
"""How an effect is put to a manager: factors above 1, percentages below, always with interval and repeats. Pure."""

from __future__ import annotations

from pdlab.analysis.comparison import Comparison
from pdlab.analysis.decision import settled_claim
from pdlab.evidence.model import Answer

# A factor from this on is what two repeats leave open.
OPEN = 1000.0
# A ratio within this of 1 is the same number to a reader.
AS_MANY = 0.005
ANSWERS: dict[Answer, str] = {"use": "Use PD", "do not use": "Do not use PD", "cannot tell": "Cannot tell"}


def opening(answer: Answer, why: str | None = None) -> str:
    """The first words of a verdict, as in "Cannot tell (one run has no spread)"."""
    return f"{ANSWERS[answer]} ({why})" if why else ANSWERS[answer]


def more_or_fewer(ratio: float, what: str) -> str:
    """A ratio as "2.65 times the WHAT of" or "17 % fewer WHAT than", to be followed by the other's name."""
    if abs(ratio - 1) < AS_MANY:
        return f"as many {what} as"
    if ratio >= 2:
        return f"{factor_words(ratio)} times the {what} of"
    if ratio >= 1:
        return f"{percent(ratio - 1)} more {what} than"
    return f"{percent(1 - ratio)} fewer {what} than"


def faster_or_slower(ratio: float) -> str:
    """A ratio of two TPOTs, own over the other's, as "1.73 times faster" or "1.31 times slower"."""
    return f"{1 / ratio:.3g} times faster" if ratio <= 1 else f"{ratio:.3g} times slower"


def support(found: Comparison, *, factor: bool = False) -> str:
    """What a ratio rests on: its interval and its repeats, and whether the interval leaves out no effect.

    factor: the ends as factors throughout, as beside "times faster"; else as percent more or fewer.
    """
    if found.pairs < 2:
        return "1 run of each"
    repeats = f"{found.pairs} repeats"
    shown = "" if settled_claim(found) in ("higher", "lower") else ": no effect shown"
    if found.ratio_low is None or found.ratio_high is None:
        return f"95 % interval of the difference {found.low:+.3g} to {found.high:+.3g}, {repeats}{shown}"
    low, high = found.ratio_low, found.ratio_high
    ends = (
        f"{factor_words(low)} to {factor_words(high)} times" if factor or low >= 2 else f"{_end(low)} to {_end(high)}"
    )
    return f"95 % interval {ends}, {repeats}{shown}"


def _end(ratio: float) -> str:
    """One end of an interval, as "-26 %", "+4 %" or "2.3 times"."""
    return f"{factor_words(ratio)} times" if ratio >= 2 else f"{'-' if ratio < 1 else '+'}{percent(abs(ratio - 1))}"


def factor_words(ratio: float) -> str:
    """A factor with three digits; what is larger than OPEN is not told apart."""
    return f"{ratio:.3g}" if ratio < OPEN else f"over {OPEN:.0f}"


def percent(share: float) -> str:
    """A share in whole percent; one digit more below ten."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share:.0%}".replace("%", " %")


def left_out(count: int) -> str:
    """The clause on points that do not count; empty for none."""
    if not count:
        return ""
    return f"; {count} point{'s are' if count > 1 else ' is'} left out, since a check failed"
