# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether requests were in flight as the load says: Little's law for a closed loop, arrivals for an open one. Pure.

Little: in flight on average = requests a second x time in flight, or the sum of all times over the run's length. A
closed loop of C keeps C in flight only until its last request has started; then it drains. In a short run that tail
weighs much (with two waves a quarter is missing), so "within 5 % of C" would call an honest run wrong. But the tail is
known: the client starts each request, in order, when the first of those in flight ends. From the times of all requests
follows when each started and when the last one ended, if nothing came between them, and so how many are in flight on
average when the loop is kept full. That is held against what was measured. What makes the two differ is time in which
the loop was not full though requests were waiting: a client that is too slow, or that ran at another concurrency, or
times that are not those of the requests.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class InFlight(NamedTuple):
    """Requests in flight on average: as measured, and as the loop would have them if it was always kept full."""

    measured: float
    full: float

    @property
    def off(self) -> float:
        """How far the measured is from the full one, as a share of it."""
        return self.measured / self.full - 1.0


def times_in_flight(output: Mapping[str, Any]) -> list[float]:
    """Each request's time in flight, s: its first token and the gaps after it.

    The client keeps no total for a request, only their mean (mean_e2e_latency_ms), which ends with the stream and not
    with the last token. The difference of the means, which is small, is spread evenly.
    """
    times = [
        float(first) + math.fsum(gaps)
        for first, gaps, error in zip(output["ttfts"], output["itls"], output["errors"])  # noqa: B905  3.9
        if not error
    ]
    mean_ms = output.get("mean_e2e_latency_ms")
    if not times or not isinstance(mean_ms, (int, float)) or not math.isfinite(mean_ms):
        return times
    more = mean_ms / 1000.0 - math.fsum(times) / len(times)
    return [time + more for time in times] if more > 0 else times


def makespan(times: Sequence[float], concurrency: int) -> float:
    """How long a closed loop takes that starts each request, in order, as soon as one of `concurrency` ends."""
    slots = [0.0] * min(concurrency, len(times))
    for time in times:
        heapq.heapreplace(slots, slots[0] + time)
    return max(slots, default=0.0)


def in_flight(times: Sequence[float], concurrency: int, seconds: float) -> InFlight | None:
    """Little's law for a closed loop that was measured for `seconds`; None of nothing."""
    shortest = makespan(times, concurrency)
    if shortest <= 0 or seconds <= 0:
        return None
    work = math.fsum(times)
    return InFlight(measured=work / seconds, full=work / shortest)


def arrival_rates(requests: int, longest_s: float, seconds: float) -> tuple[float, float] | None:
    """The arrivals a second of an open loop, at least and at most; None where a run is too short to tell.

    The client waits once after every request, so `requests` gaps lie between the start and some moment that is no later
    than the end, and no earlier than the longest request before it.
    """
    if requests < 2 or seconds <= 0:
        return None
    span = seconds - longest_s
    return requests / seconds, requests / span if span > 0 else math.inf


def arrivals_wanted(rate_s: float, requests: int) -> tuple[float, float]:
    """Between which rates Poisson arrivals lie in all but one of 15,000 runs: n gaps vary by 1 / sqrt(n), four times that."""
    share = 4.0 / math.sqrt(requests)
    return rate_s * (1.0 - share), rate_s * (1.0 + share)
