# SPDX-License-Identifier: Apache-2.0
"""The highest rate of requests at which the limits are kept, from points at several rates of an open loop."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pdlab.analysis.goodput import Goodput, Limits, goodput, wilson
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError

WANTED_SHARE = 0.90
# A bracket this narrow is left alone: the next rate would differ by less than repeats do.
CLOSE_ENOUGH = 1.25
# From a rate that all limits survive to the next: as far as the presets' own rates are apart.
STRIDE = 2.0


@dataclass(frozen=True)
class RatePoint:
    """One rate: attainment over all repeats at it."""

    rate_s: float
    good: int
    requested: int
    attainment: float
    low: float
    high: float


@dataclass(frozen=True)
class HighestRate:
    """What the rates support.

    kept_s: the highest measured rate that keeps the limits, all lower ones doing so too; None: not even the lowest.
    failed_s: the lowest measured rate that does not; None: all do.
    estimate_s: where the attainment crosses the wanted share on a straight line between these two; None when it is
        not bracketed, and `refused` says why.
    settled: whether the 95 % interval of the attainment lies on one side of the wanted share at both ends.
    """

    limits: Limits
    share: float
    kept_s: float | None
    failed_s: float | None
    estimate_s: float | None
    settled: bool
    refused: str | None
    rates: tuple[RatePoint, ...]

    @property
    def words(self) -> str:
        """The result in a sentence."""
        if self.refused:
            return self.refused
        return (
            f"{self.limits.words()} is kept for {self.share:.0%} of requests up to {self.kept_s:g} req/s, "
            f"not at {self.failed_s:g}; between them, on a straight line, up to about {self.estimate_s:.3g}"
        )


def highest_rate(points: Iterable[Measurement], limits: Limits, share: float = WANTED_SHARE) -> HighestRate:
    """The highest rate at which at least `share` of all requests met the limits.

    Repeats at one rate are pooled. Raises RefusedError when there is no open-loop point, or lengths differ.
    """
    points = list(points)
    if len({point.workload for point in points}) > 1:
        raise RefusedError("points of different request lengths have no common highest rate; ask for each alone")
    by_rate: dict[float, list[Goodput]] = {}
    for point in points:
        if point.rate_s is not None:
            by_rate.setdefault(point.rate_s, []).append(goodput(point, limits))
    if not by_rate:
        raise RefusedError("no point of an open loop: a highest rate needs arrivals at several rates")
    rates = tuple(_pooled(rate, by_rate[rate]) for rate in sorted(by_rate))
    keeps = [point.attainment >= share for point in rates]
    first_bad = keeps.index(False) if False in keeps else len(rates)
    kept = rates[first_bad - 1] if first_bad else None
    failed = rates[first_bad] if first_bad < len(rates) else None
    later = [
        point.rate_s
        for point, good in zip(rates, keeps, strict=True)
        if good and failed and point.rate_s > failed.rate_s
    ]
    refused = _why_not(kept, failed, later, rates, limits, share)
    estimate = None
    if kept and failed and not refused:
        fall = (kept.attainment - share) / (kept.attainment - failed.attainment)
        estimate = kept.rate_s + fall * (failed.rate_s - kept.rate_s)
    ends = [point for point in (kept, failed) if point]
    settled = all(not point.low < share <= point.high for point in ends) and not later
    return HighestRate(
        limits,
        share,
        kept.rate_s if kept else None,
        failed.rate_s if failed else None,
        estimate,
        settled,
        refused,
        rates,
    )


def next_rate(
    points: Iterable[Measurement],
    limits: Limits,
    share: float = WANTED_SHARE,
    *,
    tried: Collection[float] = (),
    close_enough: float = CLOSE_ENOUGH,
) -> float | None:
    """The rate whose measurement tells most about the highest rate that keeps the limits; None when nothing is left.

    Between a rate that keeps them and one that does not: their geometric mean, until the two are within a factor of
    `close_enough`. Twice the highest rate when all keep them, half the lowest when none does. None, too, when the
    points contradict each other (they want repeating, not another rate), when there are none, or when the rate has
    been tried: `tried` holds rates that have no figures, since the point at it failed.
    """
    try:
        found = highest_rate(points, limits, share)
    except RefusedError:
        return None
    rates = [point.rate_s for point in found.rates]
    if found.kept_s is not None and found.failed_s is not None:
        if found.refused or found.failed_s / found.kept_s <= close_enough:
            return None
        wanted = two_digits(math.sqrt(found.kept_s * found.failed_s))
        inside = found.kept_s < wanted < found.failed_s
        wanted = wanted if inside else math.sqrt(found.kept_s * found.failed_s)
    elif found.kept_s is not None:
        wanted = max(rates) * STRIDE
    else:
        wanted = min(rates) / STRIDE
    return None if any(math.isclose(wanted, rate) for rate in (*rates, *tried)) else wanted


def two_digits(rate: float) -> float:
    """A rate with two significant digits, as a person would write it."""
    return float(f"{rate:.2g}")


def _pooled(rate: float, results: Sequence[Goodput]) -> RatePoint:
    good, requested = sum(one.good for one in results), sum(one.requested for one in results)
    low, high = wilson(good, requested)
    return RatePoint(rate, good, requested, good / requested, low, high)


def _why_not(
    kept: RatePoint | None,
    failed: RatePoint | None,
    later: Sequence[float],
    rates: Sequence[RatePoint],
    limits: Limits,
    share: float,
) -> str | None:
    said = f"{limits.words()} for {share:.0%} of requests"
    if later:
        return (
            f"{said}: missed at {failed.rate_s if failed else 0:g} req/s but kept at {', '.join(f'{rate:g}' for rate in later)}: "
            "the points contradict each other; repeat them"
        )
    if failed is None:
        return f"{said}: kept at every measured rate; the highest rate is {rates[-1].rate_s:g} req/s or more: measure higher rates"
    if kept is None:
        return f"{said}: missed at every measured rate; the highest rate is below {rates[0].rate_s:g} req/s: measure lower rates"
    return None
