# SPDX-License-Identifier: Apache-2.0
"""Goodput: requests per second that met every limit, from per-request values.

As the client counts it (sglang/benchmark/goodput.py, 0.5.23): a request is good when it succeeded and met every limit
that was given; attainment is good requests over requests sent; a one-token answer has a TPOT of 0.
The quantity is DistServe's (arXiv 2401.09670).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.analysis.measurement import Measurement, Requests
from pdlab.analysis.refusal import RefusedError

Z_95 = 1.959963984540054
_NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E"}


@dataclass(frozen=True)
class Limits:
    """What a user still accepts, in ms. None: no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def words(self) -> str:
        """ "TTFT <= 1000 ms, TPOT <= 8 ms"."""
        return any_of_limits([self])


def any_of_limits(limits: Sequence[Limits]) -> str:
    """ "TTFT <= 1000 ms, TPOT <= 6, 8 or 12 ms" where one value alone differs; otherwise one set after the other."""
    values = {name: list(dict.fromkeys(getattr(each, name) for each in limits)) for name in _NAMES}
    differing = [found for found in values.values() if len(found) > 1]
    if len(differing) > 1 or any(None in found for found in differing):
        return " or ".join(dict.fromkeys(each.words() for each in limits))
    said = (f"{_NAMES[name]} <= {_either(found)} ms" for name, found in values.items() if found[0] is not None)
    return ", ".join(said) or "no limit"


def _either(values: Sequence[float]) -> str:
    *most, last = (f"{value:g}" for value in values)
    return f"{', '.join(most)} or {last}" if most else last


@dataclass(frozen=True)
class Goodput:
    """Requests that met the limits. `low`, `high`: 95 % Wilson interval of the attainment, for independent requests.

    Requests that queue behind each other are not independent: the true interval is wider.
    """

    limits: Limits
    good: int
    requested: int
    request_s: float
    attainment: float
    low: float
    high: float
    attainment_by_limit: tuple[tuple[str, float], ...]


def goodput(point: Measurement, limits: Limits) -> Goodput:
    """Goodput of a point. A request that failed or was never answered met no limit.

    Raises RefusedError when per-request values or the duration were not kept, or disagree.
    """
    values, duration_s = _times(point, limits)
    count = len(values.ttft_ms)
    e2e = values.e2e_ms or tuple(
        ttft + (point.output_len - 1) * tpot for ttft, tpot in zip(values.ttft_ms, values.tpot_ms, strict=True)
    )
    asked = (
        ("ttft_ms", limits.ttft_ms, values.ttft_ms),
        ("tpot_ms", limits.tpot_ms, values.tpot_ms),
        ("e2e_ms", limits.e2e_ms, e2e),
    )
    met = {name: [value <= limit for value in seen] for name, limit, seen in asked if limit is not None}
    good = sum(all(flags) for flags in zip(*met.values(), strict=True)) if met else count
    requested = max(point.requested or count, count)
    low, high = wilson(good, requested)
    return Goodput(
        limits=limits,
        good=good,
        requested=requested,
        request_s=good / duration_s,
        attainment=good / requested,
        low=low,
        high=high,
        attainment_by_limit=tuple((name, sum(flags) / requested) for name, flags in met.items()),
    )


def askable(point: Measurement, limits: Limits) -> bool:
    """Whether the limits can be asked of a point: the times of its requests were kept."""
    try:
        _times(point, limits)
    except RefusedError:
        return False
    return True


def _times(point: Measurement, limits: Limits) -> tuple[Requests, float]:
    """The times of a point's requests, and how long it took in s. Raises RefusedError."""
    values = point.requests
    if values is None or not values.ttft_ms:
        raise RefusedError(f"{point.label}: no per-request values were kept; measure with --output-details")
    count = len(values.ttft_ms)
    if len(values.tpot_ms) != count or len(values.e2e_ms) not in (0, count):
        raise RefusedError(f"{point.label}: per-request values differ in number")
    if not point.duration_s:
        raise RefusedError(f"{point.label}: how long the point took was not kept")
    if limits.e2e_ms is not None and not values.e2e_ms and point.range_ratio != 1.0:
        raise RefusedError(f"{point.label}: no E2E of each request was kept, and lengths differ; give other limits")
    return values, point.duration_s


def wilson(good: int, count: int, z: float = Z_95) -> tuple[float, float]:
    """The score interval of a share, `good` of `count` (count >= 1).

    Source: E. B. Wilson, JASA 22 (1927): (p + z^2/2n -+ z * sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    """
    share, spread = good / count, z * z / count
    centre = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    # At 0 of n and n of n an end is 0 and 1; floating point would leave it a little beside.
    low = 0.0 if good == 0 else max(0.0, (centre - half) / (1 + spread))
    high = 1.0 if good == count else min(1.0, (centre + half) / (1 + spread))
    return low, high
