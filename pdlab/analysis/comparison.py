# SPDX-License-Identifier: Apache-2.0
"""Two arms compared by repeats: paired differences with an interval, and what may be claimed from them.

A pair is one repeat of each arm under the same seed, next to each other in time, so that what drifts on the box is
in both. The interval is over repeats (run means), never over requests of one run: these share a queue.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pdlab.analysis.refusal import RefusedError

Claim = Literal["higher", "lower", "no effect shown", "cannot support a claim"]
Method = Literal["t", "bca"]

CONFIDENCE = 0.95
# Below this many pairs a bootstrap has too few resamples that differ for its tails to mean anything.
BCA_PAIRS = 8
_RESAMPLES = 9999


@dataclass(frozen=True)
class Comparison:
    """One quantity of arm `a` against arm `b`.

    difference: mean of a - b over pairs, in the quantity's unit, with `low` and `high` (None for one pair).
    ratio: geometric mean of a / b, with its interval; None when a value is not positive.
    claim: of a against b; `words` says it in a sentence.
    """

    name: str
    pairs: int
    difference: float
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    claim: Claim
    method: Method
    words: str


def compare(
    name: str, a: Sequence[float], b: Sequence[float], *, method: Method = "t", confidence: float = CONFIDENCE
) -> Comparison:
    """Compare the repeats of two arms, a[i] paired with b[i].

    method: "t", Student's interval of the mean difference, which wants differences that are roughly normal; "bca",
    the bias-corrected and accelerated bootstrap (B. Efron, JASA 82, 1987), for eight pairs or more.
    Raises RefusedError for no pair, unpaired repeats, or too few pairs for the method.
    """
    if len(a) != len(b):
        raise RefusedError(f"{name}: {len(a)} repeats against {len(b)}: repeats that have no partner cannot be paired")
    if not a:
        raise RefusedError(f"{name}: no repeat to compare")
    if method == "bca" and len(a) < BCA_PAIRS:
        raise RefusedError(f"{name}: the bootstrap needs {BCA_PAIRS} pairs, there are {len(a)}; use Student's t")
    differences = [x - y for x, y in zip(a, b, strict=True)]
    positive = all(value > 0 for value in (*a, *b))
    logs = [math.log(x) - math.log(y) for x, y in zip(a, b, strict=True)] if positive else []
    mean = statistics.fmean(differences)
    low, high = _interval(differences, method, confidence)
    log_low, log_high = _interval(logs, method, confidence) if logs else (None, None)
    claim = _claim(low, high)
    return Comparison(
        name=name,
        pairs=len(a),
        difference=mean,
        low=low,
        high=high,
        ratio=_exp(statistics.fmean(logs)) if logs else None,
        ratio_low=None if log_low is None else _exp(log_low),
        ratio_high=None if log_high is None else _exp(log_high),
        claim=claim,
        method=method,
        words=_words(name, claim, len(a), mean, low, high, confidence),
    )


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float | None, float | None]:
    """The mean of repeats and Student's interval of it; no interval for one value. Raises ValueError for none."""
    if not values:
        raise ValueError("no value to take a mean of")
    low, high = _interval(values, "t", confidence)
    return statistics.fmean(values), low, high


def _interval(values: Sequence[float], method: Method, confidence: float) -> tuple[float | None, float | None]:
    """The interval of the mean; (None, None) for one value. Equal values give an interval of no width."""
    if len(values) < 2:
        return None, None
    mean = statistics.fmean(values)
    # Values equal but for rounding would make the bootstrap divide nothing by nothing.
    if math.isclose(min(values), max(values), rel_tol=1e-12, abs_tol=1e-12):
        return mean, mean
    # Loading scipy.stats takes seconds, so it is loaded where it is used; Student's quantile lies in scipy.special.
    if method == "bca":
        from scipy import stats

        found = stats.bootstrap(
            (values,), _numpy_mean, confidence_level=confidence, n_resamples=_RESAMPLES, method="BCa", rng=0
        ).confidence_interval
        return float(found.low), float(found.high)
    from scipy import special

    half = (
        float(special.stdtrit(len(values) - 1, (1 + confidence) / 2))
        * statistics.stdev(values)
        / math.sqrt(len(values))
    )
    return mean - half, mean + half


def _numpy_mean(values: object, axis: int = -1) -> object:
    """numpy's mean: scipy wants a function that takes an axis."""
    import numpy

    # What `values` are is scipy's to choose.
    return numpy.mean(values, axis=axis)  # type: ignore[call-overload]


def _claim(low: float | None, high: float | None) -> Claim:
    if low is None or high is None:
        return "cannot support a claim"
    if low > 0:
        return "higher"
    if high < 0:
        return "lower"
    return "no effect shown"


def _words(
    name: str, claim: Claim, pairs: int, mean: float, low: float | None, high: float | None, confidence: float
) -> str:
    if low is None:
        return f"{name}: {mean:+.4g}, from one run of each: this cannot support a claim; repeat it"
    interval = f"{confidence:.0%} interval {low:+.4g} to {high:+.4g}, {pairs} pairs"
    if claim == "no effect shown":
        return f"{name}: no effect shown ({mean:+.4g}, {interval}, which includes 0)"
    return f"{name}: {claim} by {abs(mean):.4g} ({interval})"


def _exp(value: float) -> float:
    """exp, or infinity where two repeats leave the ratio open."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
