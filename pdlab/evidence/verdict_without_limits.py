# SPDX-License-Identifier: Apache-2.0
"""The verdict where no limits are stated: output tokens per second and GPU, and TPOT, at the highest common load. Pure.

Where prefill/decode answers faster per token and serves fewer tokens, neither decides: the sentence gives both effects
and says when which one matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pdlab.analysis.advice import breakeven_output_len
from pdlab.analysis.comparison import Comparison
from pdlab.analysis.decision import Finding, on_rate_and_tpot, settled_claim, turned
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError
from pdlab.evidence import next_steps
from pdlab.evidence import verdict_words as words
from pdlab.evidence.cells import PER_GPU, Sample, by_arm, figures_of
from pdlab.evidence.comparisons import compare_repeats, differences, finite, load_words, paired_means
from pdlab.evidence.model import Answer, Arm, LimitSet, Load, VerdictRow

Values = Mapping[int, float]
# A first token that takes this much longer, or less long, is worth a word.
MUCH_LATER = 1.1


@dataclass(frozen=True)
class AtLoad:
    """What prefill/decode `pd` shows against each other arm at one load."""

    load: Load
    pd: str
    best: str
    quickest: str
    rate: Mapping[str, Comparison]
    tpot: Mapping[str, Comparison]
    ttft: Mapping[str, Comparison]
    means: Mapping[str, Mapping[str, float]]
    rates: Mapping[str, Values]
    tpots: Mapping[str, Values]
    measurements: Mapping[str, Measurement]

    @property
    def finding(self) -> Finding:
        """The quantities together."""
        return on_rate_and_tpot(*(list(found.values()) for found in (self.rate, self.tpot, self.ttft)))


def verdict_without_limits(workload: str, arms: Sequence[Arm], samples: Sequence[Sample]) -> VerdictRow | None:
    """The verdict from rate and TPOT; None when no load has both kinds of arm."""
    gpus = {arm.gpus for arm in arms}
    quantity = "output_tok_s" if None in gpus else PER_GPU
    seen = [
        found
        for (name, load), group in by_arm(samples).items()
        if name == workload and (found := _at(load, group, arms, quantity))
    ]
    if not seen:
        return None
    top = max(seen, key=lambda one: (one.load.concurrency or 0, one.load.rate_s or 0.0))
    answer, why, step = _judged(top, workload, arms)
    sentence = f"{words.opening(answer, why)}: {_effect(top, quantity)}{_elsewhere(top, seen)}"
    main = top.rate[top.best]
    return VerdictRow(
        workload=workload,
        limits=LimitSet(),
        answer=answer,
        sentence=sentence,
        quantity=quantity,
        effect=finite(main.ratio),
        low=finite(main.ratio_low),
        high=finite(main.ratio_high),
        repeats=main.pairs,
        next_measurement=step,
    )


def _at(load: Load, group: Mapping[str, Mapping[int, Sample]], arms: Sequence[Arm], quantity: str) -> AtLoad | None:
    """The comparisons at one load; None without both kinds of arm, common repeats, or TPOT."""
    figures = {
        arm: {repeat: figures_of(one.row.point, one.gpus) for repeat, one in repeats.items()}
        for arm, repeats in group.items()
    }

    def values(arm: str, field: str) -> Values:
        return {repeat: found[field] for repeat, found in figures[arm].items() if field in found}

    known = [arm for arm in arms if arm.name in figures and values(arm.name, quantity)]
    apart = [arm.name for arm in known if arm.disaggregated]
    others = [arm.name for arm in known if not arm.disaggregated]
    if not apart or not others:
        return None
    means = {
        arm.name: {
            field: math.fsum(found.values()) / len(found)
            for field in (quantity, "tpot_ms.mean", "ttft_ms.mean")
            if (found := values(arm.name, field))
        }
        for arm in known
    }
    pd = max(apart, key=lambda arm: means[arm][quantity])

    def against(field: str) -> dict[str, Comparison]:
        pairs = ((arm, compare_repeats(field, values(pd, field), values(arm, field))) for arm in others)
        return {arm: found for arm, found in pairs if found}

    rate, tpot = against(quantity), against("tpot_ms.mean")
    if len(rate) < len(others) or len(tpot) < len(others):
        return None
    return AtLoad(
        load=load,
        pd=pd,
        best=max(others, key=lambda arm: means[arm][quantity]),
        quickest=min(others, key=lambda arm: means[arm]["tpot_ms.mean"]),
        rate=rate,
        tpot=tpot,
        ttft=against("ttft_ms.mean"),
        means=means,
        rates={arm: values(arm, quantity) for arm in (pd, *others)},
        tpots={arm: values(arm, "tpot_ms.mean") for arm in (pd, *others)},
        measurements={
            arm: one.measurement for arm in (pd, *others) if (one := next(iter(group[arm].values()))).measurement
        },
    )


def _judged(seen: AtLoad, workload: str, arms: Sequence[Arm]) -> tuple[Answer, str | None, str | None]:
    """The answer, why it is none, and what to measure next."""
    finding, pairs = seen.finding, min(found.pairs for found in seen.rate.values())
    match finding:
        case Finding.BETTER:
            return "use", None, next_steps.stronger(workload, arms, pairs) or next_steps.state_limits(workload)
        case Finding.WORSE:
            return "do not use", None, next_steps.stronger(workload, arms, pairs) or next_steps.state_limits(workload)
        case Finding.LEVEL:
            return "do not use", "level within 5 %: it gains nothing", next_steps.state_limits(workload)
        case Finding.FASTER_AND_FEWER | Finding.SLOWER_AND_MORE | Finding.FASTER_AND_LATER | Finding.SLOWER_AND_SOONER:
            return "cannot tell", "it depends on limits, and none are stated", next_steps.state_limits(workload)
        case Finding.ONE_RUN:
            return (
                "cannot tell",
                f"{words.no_spread(seen.rate)}: this is a lead",
                next_steps.more_repeats(workload, arms, []),
            )
        case _:
            return (
                "cannot tell",
                "no effect shown that decides",
                next_steps.more_repeats(workload, arms, _unsettled(seen)),
            )


def _effect(seen: AtLoad, quantity: str) -> str:
    """Both effects in one clause; the reason to use it all the same where there is a trade."""
    rate, tpot = seen.rate[seen.best], seen.tpot[seen.quickest]
    unit = "output tok/s and GPU" if quantity == PER_GPU else "output tok/s"
    own, best = seen.means[seen.pd], seen.means[seen.best]
    more, less = paired_means(seen.rates[seen.pd], seen.rates[seen.best])
    served = (
        f"serves {words.more_or_fewer(rate.ratio or 1.0, 'tokens')} {seen.best} ({more:.4g} against "
        f"{less:.4g} {unit}{words.pair_by_pair(rate, more, less)}; {words.support(rate)})"
    )
    quick = seen.means[seen.quickest]
    faster = (tpot.ratio or 1.0) <= 1
    mine, theirs = paired_means(seen.tpots[seen.pd], seen.tpots[seen.quickest])
    answers = (
        f"answers {words.faster_or_slower(tpot.ratio or 1.0)} per token than {seen.quickest} "
        f"({mine:.3g} against {theirs:.3g} ms{words.pair_by_pair(tpot, mine, theirs)}; "
        f"{words.support(turned(tpot) if faster else tpot, factor=True)})"
    )
    # What decides comes first.
    parts = (served, answers) if seen.finding is Finding.WORSE else (answers, served)
    said = f"at {load_words(seen.load)} {seen.pd} {' and '.join(parts)}"
    later = seen.ttft.get(seen.best)
    if later and settled_claim(later) != "no effect shown" and later.pairs > 1 and _far_from_1(later.ratio):
        said += f", and its first token takes {later.ratio:.3g} times as long"
    if seen.finding is Finding.FASTER_AND_FEWER:
        said += f"; use it when a token has to come within less than {quick['tpot_ms.mean']:.3g} ms"
        said += f"{_long_answers(seen)}, not when tokens per GPU decide"
    if seen.finding is Finding.FASTER_AND_LATER:
        said += f"; use it when a token has to come within less than {quick['tpot_ms.mean']:.3g} ms, not when the first"
        said += f" has to come within {own['ttft_ms.mean']:.4g} ms"
    if seen.finding is Finding.SLOWER_AND_SOONER:
        said += f"; use it when the first token has to come within less than {best['ttft_ms.mean']:.4g} ms"
    if seen.finding is Finding.SLOWER_AND_MORE:
        said += f"; use it when tokens per GPU decide, not when a token has to come within {own['tpot_ms.mean']:.3g} ms"
    return said


def _far_from_1(ratio: float | None) -> bool:
    return ratio is not None and not 1 / MUCH_LATER <= ratio <= MUCH_LATER


def _long_answers(seen: AtLoad) -> str:
    """From which output length a request ends sooner, where it does so at some lengths alone."""
    try:
        own, other = (
            replace(
                seen.measurements[arm],
                ttft_ms=seen.means[arm].get("ttft_ms.mean"),
                tpot_ms=seen.means[arm]["tpot_ms.mean"],
            )
            for arm in (seen.pd, seen.best)
        )
        found = breakeven_output_len(own, other)
    except (RefusedError, KeyError):
        return ""
    return f" or answers are longer than about {found.high:.0f} tokens" if found.high and found.high > 1 else ""


def _elsewhere(top: AtLoad, seen: Sequence[AtLoad]) -> str:
    """Whether the other loads say the same."""
    others = [one for one in seen if one is not top]
    if not others or top.finding in (Finding.ONE_RUN, Finding.NOT_SHOWN):
        return ""
    same = sum(one.finding is top.finding for one in others)
    if same == len(others):
        return f"; the same holds at the other {f'{same} loads' if same > 1 else 'load'}"
    if len(others) == 1:
        return "; the other load does not show the same"
    return f"; the same holds at {same} of the other {len(others)} loads"


def _unsettled(seen: AtLoad) -> list[float]:
    """The paired differences whose interval includes no effect: of the rate when it is that, else of TPOT."""
    for found, values in ((seen.rate, seen.rates), (seen.tpot, seen.tpots)):
        for arm, one in found.items():
            if settled_claim(one) == "no effect shown":
                return differences(values[seen.pd], values[arm])
    return []
