# SPDX-License-Identifier: Apache-2.0
"""The verdict where limits are stated: goodput decides. Pure.

Each arm is taken at the load at which its mean goodput is highest, the same load in every repeat: the arm serves its
users best there. An arm that keeps the limits at every rate that it was given was not at its limit, and nobody can say
how much more it would serve: it may win so, it cannot lose or be level.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pdlab.analysis.comparison import Comparison
from pdlab.analysis.decision import Finding, on_goodput, settled_claim
from pdlab.analysis.rate_search import HighestRate
from pdlab.evidence import next_steps
from pdlab.evidence import verdict_words as words
from pdlab.evidence.comparisons import compare_repeats, differences, finite, load_words, paired_means
from pdlab.evidence.goods import Good, limits_of, scales
from pdlab.evidence.model import Answer, Arm, LimitSet, Load, VerdictRow

# A single load is named beside the best loads when the ratio there is this much larger.
WORTH_NAMING = 1.25
# Single runs that differ by less are no lead either.
ABOUT_LEVEL = 0.10


@dataclass(frozen=True)
class Peak:
    """An arm's best load. `scale`: what goodput is divided by, GPUs where arms have unlike numbers of them."""

    arm: str
    load: Load
    good: Good
    scale: float

    @property
    def values(self) -> dict[int, float]:
        """Goodput by repeat."""
        return {repeat: value / self.scale for repeat, value in self.good.request_s.items()}

    @property
    def mean(self) -> float:
        """Mean goodput over repeats."""
        return self.good.mean / self.scale


def peaks_of(goods: Mapping[str, Mapping[Load, Good]], arms: Sequence[Arm]) -> dict[str, Peak]:
    """Each arm's best load, of those that more than half of its repeats measured; the higher one where two are equal."""
    scale = scales([arm for arm in arms if arm.name in goods])
    found = {}
    for arm, by_load in goods.items():
        # A rate that was searched in the last repeat alone says less than one that most repeats measured.
        most = max(len(good.request_s) for good in by_load.values())
        loads = [load for load, good in by_load.items() if 2 * len(good.request_s) > most]
        load = max(loads, key=lambda one: (by_load[one].mean, one.concurrency or 0, one.rate_s or 0.0))
        found[arm] = Peak(arm, load, by_load[load], scale.get(arm, 1.0))
    return found


def verdict_under_limits(
    workload: str,
    limits: LimitSet,
    arms: Sequence[Arm],
    goods: Mapping[str, Mapping[Load, Good]],
    rates: Mapping[str, HighestRate],
    lost: Mapping[str, Collection[float]] | None = None,
) -> VerdictRow | None:
    """The verdict from goodput; None when not both kinds of arm have any.

    lost: the rates of each arm at which it has no point to ask the limits of.
    """
    peaks = peaks_of(goods, arms)
    apart = [arm.name for arm in arms if arm.disaggregated and arm.name in peaks]
    others = [arm.name for arm in arms if not arm.disaggregated and arm.name in peaks]
    if not apart or not others:
        return None
    pd = peaks[max(apart, key=lambda arm: peaks[arm].mean)]
    best = peaks[max(others, key=lambda arm: peaks[arm].mean)]
    against = {
        arm: found
        for arm in others
        if (found := compare_repeats(f"goodput of {pd.arm} against {arm}", pd.values, peaks[arm].values))
    }
    per_gpu = pd.scale != 1.0 or best.scale != 1.0
    quantity = "goodput_s_per_gpu" if per_gpu else "goodput_s"
    if len(against) < len(others):
        again: str | None = next_steps.more_repeats(workload, arms, [])
        return _row(workload, limits, "cannot tell", _no_pairs(), quantity, None, again)
    main = against[best.arm]
    finding = on_goodput(list(against.values()))
    answer, why, step = _judged(finding, workload, pd, best, against, peaks, rates, arms, lost or {})
    under = limits_of(limits).words()
    more = _where_more(goods[pd.arm], goods[best.arm], main, pd.scale / best.scale)
    said = f"{_effect(pd, best, main, per_gpu)}{more}{_tokens(pd, best)}"
    sentence = f"{words.opening(answer, why)}: under {under} {said}"
    return _row(workload, limits, answer, sentence, quantity, main, step)


def _judged(
    finding: Finding,
    workload: str,
    pd: Peak,
    best: Peak,
    against: Mapping[str, Comparison],
    peaks: Mapping[str, Peak],
    rates: Mapping[str, HighestRate],
    arms: Sequence[Arm],
    lost: Mapping[str, Collection[float]],
) -> tuple[Answer, str | None, str | None]:
    """The answer, why it is none, and what to measure next."""
    if pd.mean == 0 and best.mean == 0:
        searched = [rates[arm] for arm in (pd.arm, best.arm) if arm in rates]
        looser = (
            next_steps.lower_rates(workload, arms, searched) if searched else "ask for looser limits, or lower loads"
        )
        return "cannot tell", "no request met the limits on any arm", looser
    unsure = _not_at_its_limit(finding, pd, best, list(against), rates)
    if unsure:
        why = f"{' and '.join(unsure)} kept the limits at every rate measured"
        # Beyond a rate at which an arm has nothing to show, still higher rates tell nothing of it.
        beyond = {
            rate: arm for arm in unsure for rate in lost.get(arm, ()) if rate > max(r.rate_s for r in rates[arm].rates)
        }
        if beyond:
            rate, arm = min(beyond.items())
            why = f"{' and '.join(unsure)} kept the limits at every rate that can be used"
            pairs = min(found.pairs for found in against.values())
            return (
                "cannot tell",
                why,
                next_steps.again(workload, arms, pairs, f"no point of {arm} at {rate:g} requests/s can be used"),
            )
        return "cannot tell", why, next_steps.higher_rates(workload, arms, [rates[arm] for arm in unsure])
    if _both_keep_the_same(pd, best):
        why = f"{pd.arm} and {best.arm} both keep the limits up to {load_words(pd.load)} and not beyond"
        middle = next_steps.between(workload, arms, rates[best.arm]) if best.arm in rates else None
        return "cannot tell", why, middle or next_steps.more_repeats(workload, arms, [])
    pairs = min(found.pairs for found in against.values())
    if finding is Finding.ONE_RUN:
        return "cannot tell", _one_run(pd.mean, best.mean, against), next_steps.more_repeats(workload, arms, [])
    if finding is Finding.NOT_SHOWN:
        unbeaten = next(arm for arm, found in against.items() if settled_claim(found) != "higher")
        why = f"no effect shown: the interval against {unbeaten} includes no effect"
        return (
            "cannot tell",
            why,
            next_steps.more_repeats(workload, arms, differences(pd.values, peaks[unbeaten].values)),
        )
    if finding is Finding.LEVEL:
        return "do not use", "level within 5 %: it gains nothing", next_steps.stronger(workload, arms, pairs)
    step = next_steps.stronger(workload, arms, pairs)
    if step is None and pd.arm in rates and _kept_everywhere(rates[pd.arm]):
        step = next_steps.higher_rates(workload, arms, [rates[pd.arm]])
    elif step is None and best.arm in rates:
        step = next_steps.between(workload, arms, rates[best.arm])
    return ("use" if finding is Finding.BETTER else "do not use"), None, step


def _not_at_its_limit(
    finding: Finding, pd: Peak, best: Peak, others: Sequence[str], rates: Mapping[str, HighestRate]
) -> list[str]:
    """The arms whose limit would have to be known for the finding, and is not."""
    own = [pd.arm] if pd.arm in rates and _kept_everywhere(rates[pd.arm]) else []
    theirs = [arm for arm in others if arm in rates and _kept_everywhere(rates[arm])]
    if finding is Finding.ONE_RUN:
        finding = Finding.BETTER if pd.mean > best.mean else Finding.WORSE
    needed = {Finding.BETTER: theirs, Finding.WORSE: own}.get(finding, [*own, *theirs])
    return [*own, *theirs] if needed else []


def _both_keep_the_same(pd: Peak, best: Peak) -> bool:
    """In an open loop arms that keep the limits serve what arrives: what differs is how their last requests end."""
    return pd.load == best.load and pd.load.loop == "open" and pd.good.keeps and best.good.keeps


def _one_run(own: float, other: float, against: Mapping[str, Comparison]) -> str:
    said = words.no_spread(against)
    if other > 0 and 1 / (1 + ABOUT_LEVEL) <= own / other <= 1 + ABOUT_LEVEL:
        return f"{said}, and they are about level"
    return f"{said}: this is a lead"


def _kept_everywhere(rate: HighestRate) -> bool:
    return rate.kept_s is not None and rate.failed_s is None


def _effect(pd: Peak, best: Peak, found: Comparison, per_gpu: bool) -> str:
    unit = "a second and GPU" if per_gpu else "a second"
    own, other = paired_means(pd.values, best.values)
    if own == 0 and other == 0:
        return f"neither {pd.arm} nor {best.arm} serves a good request ({words.runs(found)})"
    if own == 0 or other == 0:
        some, none = (best, pd) if own == 0 else (pd, best)
        return f"{some.arm} serves {own or other:.3g} good requests {unit}, {none.arm} none ({words.support(found)})"
    ratio = found.ratio if found.ratio is not None else own / other
    return (
        f"{pd.arm} serves {words.more_or_fewer(ratio, 'good requests')} {best.arm} ({own:.3g} against "
        f"{other:.3g} {unit}{words.pair_by_pair(found, own, other)}; {words.support(found)})"
    )


def _where_more(own: Mapping[Load, Good], other: Mapping[Load, Good], found: Comparison, scale: float) -> str:
    """The load at which the arms differ most in prefill/decode's favour, when that is a larger factor.

    `scale`: what the ratio is divided by, GPUs over GPUs. Means are over the repeats that both arms have.
    """
    means = {
        load: pair
        for load in own
        if load in other
        and own[load].request_s.keys() & other[load].request_s.keys()
        and (pair := paired_means(own[load].request_s, other[load].request_s))[1] > 0
    }
    if not means:
        return ""
    load, (mine, theirs) = max(means.items(), key=lambda one: one[1][0] / one[1][1])
    ratio = mine / theirs / scale
    if ratio < WORTH_NAMING * max(found.ratio or 0.0, 1.0):
        return ""
    seen = f"{mine:.3g} against {theirs:.3g}{'' if scale == 1.0 else ', before GPUs are divided out'}"
    return f"; at {load_words(load)} it is {words.factor_words(ratio)} times ({seen})"


def _tokens(pd: Peak, best: Peak) -> str:
    """In a closed loop where both keep the limits: who answers faster per token, should tighter limits matter."""
    if pd.load != best.load or pd.load.loop != "closed" or not (pd.good.keeps and best.good.keeps):
        return ""
    found = compare_repeats("TPOT", pd.good.tpot_ms, best.good.tpot_ms)
    if found is None or settled_claim(found) not in ("higher", "lower") or not found.ratio:
        return ""
    return f"; both keep these limits there, and {pd.arm} answers {words.faster_or_slower(found.ratio)} per token"


def _no_pairs() -> str:
    return f"{words.opening('cannot tell')}: prefill/decode and another arm have no repeat in common"


def _row(
    workload: str,
    limits: LimitSet,
    answer: Answer,
    sentence: str,
    quantity: str,
    found: Comparison | None,
    step: str | None,
) -> VerdictRow:
    return VerdictRow(
        workload=workload,
        limits=limits,
        answer=answer,
        sentence=sentence,
        quantity=quantity,
        effect=finite(found.ratio) if found else None,
        low=finite(found.ratio_low) if found else None,
        high=finite(found.ratio_high) if found else None,
        repeats=found.pairs if found else 0,
        next_measurement=step,
    )
