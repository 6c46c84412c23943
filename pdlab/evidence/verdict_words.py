# SPDX-License-Identifier: Apache-2.0
"""How an effect is put to a manager: factors above 1, percentages below, always with interval and repeats. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pdlab.analysis.comparison import Comparison
from pdlab.analysis.decision import settled_claim
from pdlab.evidence.model import Answer

# A factor from this on is what two repeats leave open.
OPEN = 1000.0
# A ratio of means that is further than this from the mean ratio looks like a mistake to a reader.
SAME_RATIO = 1.05
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
        return runs(found)
    repeats = runs(found)
    shown = "" if settled_claim(found) in ("higher", "lower") else ": no effect shown"
    # Pairs of unlike size can tell difference and ratio apart: the interval is shown that includes no effect.
    beside = shown and found.ratio_low is not None and not found.ratio_low <= 1 <= (found.ratio_high or 0.0)
    if found.ratio_low is None or found.ratio_high is None or beside:
        return f"95 % interval of the difference {found.low:+.3g} to {found.high:+.3g}, {repeats}{shown}"
    low, high = found.ratio_low, found.ratio_high
    # Both ends in one unit: "+15 % to 6.65 times" would have to be worked out.
    ends = (
        f"{factor_words(low)} to {factor_words(high)} times" if factor or high >= 2 else f"{_end(low)} to {_end(high)}"
    )
    return f"95 % interval {ends}, {repeats}{shown}"


def runs(found: Comparison) -> str:
    """How many repeats a comparison has."""
    return "1 run of each" if found.pairs < 2 else f"{found.pairs} repeats"


def no_spread(against: Mapping[str, Comparison]) -> str:
    """Which comparisons rest on one pair, of all or of some arms."""
    lone = [arm for arm, found in against.items() if found.pairs < 2]
    if len(lone) == len(against):
        return "one run of each has no spread"
    return f"one repeat in common with {' and '.join(lone)} has no spread"


def pair_by_pair(found: Comparison, own: float, other: float) -> str:
    """The clause where the ratio is not that of the two means beside it: it is the geometric mean of the pairs' ratios."""
    if found.pairs < 2 or not found.ratio or not own or not other:
        return ""
    apart = own / other / found.ratio
    return "" if 1 / SAME_RATIO <= apart <= SAME_RATIO else " in the mean, the ratio pair by pair"


def _end(ratio: float) -> str:
    """One end of an interval below 2, as "-26 %" or "+4 %"."""
    return f"{'-' if ratio < 1 else '+'}{percent(abs(ratio - 1))}"


def factor_words(ratio: float) -> str:
    """A factor with three digits; what is larger than OPEN is not told apart, and only 1 itself is called 1."""
    if ratio >= OPEN:
        return f"over {OPEN:.0f}"
    said = f"{ratio:.3g}"
    return said if said != "1" else _beside_1(ratio)


def _beside_1(ratio: float) -> str:
    """A factor that three digits cannot tell from 1, with as many as it takes: an end at 1 would include no effect."""
    return next((said for digits in range(4, 17) if float(said := f"{ratio:.{digits}g}") != 1), "1")


def percent(share: float) -> str:
    """A share in whole percent; one digit more below ten."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share:.0%}".replace("%", " %")


def left_out(count: int, why: str = "a check failed") -> str:
    """The clause on points that no verdict rests on; empty for none."""
    return f"; {count} point{'s are' if count > 1 else ' is'} left out, since {why}" if count else ""
