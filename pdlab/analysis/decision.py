# SPDX-License-Identifier: Apache-2.0
"""From comparisons of prefill/decode with other arms to an answer. Pure; the words are evidence/verdicts.py's.

Under limits goodput decides. Without limits there are two quantities, output tokens per second and GPU, and TPOT: an
answer needs both to agree, else it depends on limits that nobody has stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from pdlab.analysis.comparison import Claim, Comparison

# A ratio whose whole interval lies within this of 1 is level: no difference worth a decision.
LEVEL = 0.05


class Finding(Enum):
    """What comparisons show of prefill/decode."""

    BETTER = "better"
    WORSE = "worse"
    LEVEL = "level"
    FASTER_AND_FEWER = "faster tokens, fewer of them"
    SLOWER_AND_MORE = "slower tokens, more of them"
    FASTER_AND_LATER = "faster tokens, the first one later"
    SLOWER_AND_SOONER = "slower tokens, the first one sooner"
    ONE_RUN = "one run"
    NOT_SHOWN = "no effect shown"


def is_level(found: Comparison) -> bool:
    """Whether the ratio is shown to be 1, but for 5 %. One pair shows nothing."""
    if found.pairs < 2 or found.ratio_low is None or found.ratio_high is None:
        return False
    return found.ratio_low >= 1 / (1 + LEVEL) and found.ratio_high <= 1 + LEVEL


def settled_claim(found: Comparison) -> Claim:
    """The claim, where difference and ratio agree on it: a reader sees either, and pairs of unlike size can tell them
    apart."""
    beyond = {"higher": found.ratio_low, "lower": found.ratio_high}.get(found.claim)
    if beyond is not None and (beyond <= 1 if found.claim == "higher" else beyond >= 1):
        return "no effect shown"
    return found.claim


def on_goodput(against: Sequence[Comparison]) -> Finding:
    """The finding from goodput against each other arm (one or more; ratio and difference are PD's over the other's).

    Better: higher than every other arm. Worse: lower than one of them, which is reason enough. Level with the best of
    those that it does not beat, when that is shown.
    """
    if any(settled_claim(found) == "lower" and not is_level(found) for found in against):
        return Finding.WORSE
    if any(settled_claim(found) == "cannot support a claim" for found in against):
        return Finding.ONE_RUN
    if all(settled_claim(found) == "higher" and not is_level(found) for found in against):
        return Finding.BETTER
    unbeaten = [found for found in against if settled_claim(found) != "higher" or is_level(found)]
    return Finding.LEVEL if all(is_level(found) for found in unbeaten) else Finding.NOT_SHOWN


def on_rate_and_tpot(
    rate: Sequence[Comparison], tpot: Sequence[Comparison], ttft: Sequence[Comparison] = ()
) -> Finding:
    """The finding without limits, from tokens per second, TPOT and TTFT against each other arm.

    TPOT that falls is a gain. A gain in one and a loss in the other is a trade. What is shown of one quantity decides
    alone where the other is level, or where its mean points the same way; else the other has to be settled first.
    At equal rates a closed loop's requests take equally long (Little's law): then TPOT and TTFT are a trade, too.
    """
    found = _on_rate_and_tpot(rate, tpot)
    if on_goodput(rate) is Finding.LEVEL and ttft:
        first = on_goodput([turned(one) for one in ttft])
        if (found, first) == (Finding.BETTER, Finding.WORSE):
            return Finding.FASTER_AND_LATER
        if (found, first) == (Finding.WORSE, Finding.BETTER):
            return Finding.SLOWER_AND_SOONER
    return found


def _on_rate_and_tpot(rate: Sequence[Comparison], tpot: Sequence[Comparison]) -> Finding:
    quicker = [turned(found) for found in tpot]
    more, faster = on_goodput(rate), on_goodput(quicker)
    if Finding.ONE_RUN in (more, faster):
        return Finding.ONE_RUN
    if (more, faster) == (Finding.WORSE, Finding.BETTER):
        return Finding.FASTER_AND_FEWER
    if (more, faster) == (Finding.BETTER, Finding.WORSE):
        return Finding.SLOWER_AND_MORE
    for shown, other, means in ((more, faster, quicker), (faster, more, rate)):
        if shown is Finding.WORSE and (other is not Finding.NOT_SHOWN or _some_mean_is_lower(means)):
            return Finding.WORSE
        if shown is Finding.BETTER and (other is not Finding.NOT_SHOWN or not _some_mean_is_lower(means)):
            return Finding.BETTER
    return Finding.LEVEL if (more, faster) == (Finding.LEVEL, Finding.LEVEL) else Finding.NOT_SHOWN


def _some_mean_is_lower(against: Sequence[Comparison]) -> bool:
    return any(found.difference < 0 for found in against)


def turned(found: Comparison) -> Comparison:
    """The same comparison where less is better, as one where more is: b against a."""
    claims: dict[Claim, Claim] = {"higher": "lower", "lower": "higher"}
    return replace(
        found,
        difference=-found.difference,
        low=None if found.high is None else -found.high,
        high=None if found.low is None else -found.low,
        ratio=_inverse(found.ratio),
        ratio_low=_inverse(found.ratio_high),
        ratio_high=_inverse(found.ratio_low),
        claim=claims.get(found.claim, found.claim),
    )


def _inverse(value: float | None) -> float | None:
    if value is None:
        return None
    return 1 / value if value else float("inf")
