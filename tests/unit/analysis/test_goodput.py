# SPDX-License-Identifier: Apache-2.0
"""Goodput, attainment, and the highest rate that keeps limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.analysis.goodput import Limits, any_of_limits, goodput, wilson
from pdlab.analysis.measurement import Requests
from pdlab.analysis.rate_search import highest_rate
from pdlab.analysis.refusal import RefusedError
from tests.unit.analysis.points import point

values = st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.1, 1e3)), min_size=1, max_size=60)


def with_requests(pairs, **changes):
    requests = Requests(tuple(ttft for ttft, _ in pairs), tuple(tpot for _, tpot in pairs))
    return point(requests=requests, requested=len(pairs), **changes)


@given(values, st.floats(1, 1e4), st.floats(0.1, 1e3))
def test_goodput_counts_requests_that_met_every_limit(pairs, ttft: float, tpot: float) -> None:
    found = goodput(with_requests(pairs), Limits(ttft_ms=ttft, tpot_ms=tpot))
    assert found.good == sum(x <= ttft and y <= tpot for x, y in pairs)
    assert found.request_s == pytest.approx(found.good / 10.0)
    assert found.low <= found.attainment <= found.high
    assert found.attainment <= min(share for _name, share in found.attainment_by_limit)


@given(values, st.floats(1, 1e4))
def test_a_looser_limit_never_gives_less(pairs, limit: float) -> None:
    one = with_requests(pairs)
    assert goodput(one, Limits(ttft_ms=limit * 2)).good >= goodput(one, Limits(ttft_ms=limit)).good
    assert goodput(one, Limits()).good == len(pairs)


def test_a_request_that_failed_met_no_limit() -> None:
    found = goodput(point(requests=Requests((10.0,), (1.0,)), requested=4), Limits(ttft_ms=100))
    assert (found.good, found.requested, found.attainment) == (1, 4, 0.25)


def test_a_limit_on_the_whole_request_uses_its_time_or_makes_it_from_exact_lengths() -> None:
    assert goodput(with_requests([(100, 5)]), Limits(e2e_ms=600)).good == 1
    assert goodput(with_requests([(100, 5)]), Limits(e2e_ms=599)).good == 0
    with pytest.raises(RefusedError, match="lengths differ"):
        goodput(with_requests([(100, 5)], range_ratio=0.0), Limits(e2e_ms=600))
    with pytest.raises(RefusedError, match="no per-request values"):
        goodput(point(), Limits(ttft_ms=1))
    with pytest.raises(RefusedError, match="differ in number"):
        goodput(point(requests=Requests((1.0, 2.0), (1.0,))), Limits(ttft_ms=1))


@given(st.integers(1, 500), st.data())
def test_the_score_interval_holds_the_share_and_is_what_scipy_says(count: int, data) -> None:
    from scipy import stats

    good = data.draw(st.integers(0, count))
    low, high = wilson(good, count)
    wanted = stats.binomtest(good, count).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)
    assert 0 <= low <= good / count <= high <= 1


def at(rate: float, met: int, of: int = 100):
    return with_requests([(10.0, 1.0)] * met + [(9999.0, 1.0)] * (of - met), rate_s=rate, concurrency=None)


LIMITS = Limits(ttft_ms=1000)


def test_the_highest_rate_lies_between_the_last_that_keeps_and_the_first_that_does_not() -> None:
    found = highest_rate([at(8, 50), at(2, 100), at(4, 98), at(6, 82)], LIMITS)
    assert (found.kept_s, found.failed_s) == (4, 6)
    assert found.estimate_s == pytest.approx(5.0)
    assert found.refused is None and found.settled
    assert "up to 4 req/s, not at 6" in found.words


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([at(2, 100), at(4, 99)], "4 req/s or more: measure higher rates"),
        ([at(2, 10), at(4, 5)], "below 2 req/s: measure lower rates"),
        ([at(2, 100), at(4, 50), at(6, 95)], "contradict each other"),
    ],
)
def test_a_rate_that_is_not_bracketed_is_not_interpolated(points, why: str) -> None:
    found = highest_rate(points, LIMITS)
    assert found.estimate_s is None
    assert why in found.refused


def test_few_requests_near_the_wanted_share_settle_nothing() -> None:
    assert not highest_rate([at(2, 19, 20), at(4, 17, 20)], LIMITS).settled


def test_repeats_of_a_rate_are_pooled() -> None:
    found = highest_rate([at(2, 100), at(2, 84), at(4, 10)], LIMITS)
    assert found.rates[0].requested == 200 and found.kept_s == 2


def test_unlike_points_or_a_closed_loop_have_no_highest_rate() -> None:
    with pytest.raises(RefusedError, match="different request lengths"):
        highest_rate([at(2, 100), with_requests([(1, 1)], rate_s=2, input_len=9)], LIMITS)
    with pytest.raises(RefusedError, match="open loop"):
        highest_rate([with_requests([(1, 1)])], LIMITS)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ([Limits(2000, 6)], "TTFT <= 2000 ms, TPOT <= 6 ms"),
        ([Limits(2000, 6), Limits(2000, 8)], "TTFT <= 2000 ms, TPOT <= 6 or 8 ms"),
        ([Limits(8, 6), Limits(8, 8), Limits(8, 12.5)], "TTFT <= 8 ms, TPOT <= 6, 8 or 12.5 ms"),
        ([Limits(2000, 6), Limits(1000, 8)], "TTFT <= 2000 ms, TPOT <= 6 ms or TTFT <= 1000 ms, TPOT <= 8 ms"),
        ([Limits(2000), Limits(2000, 8)], "TTFT <= 2000 ms or TTFT <= 2000 ms, TPOT <= 8 ms"),
        ([Limits(e2e_ms=900), Limits(e2e_ms=900)], "E2E <= 900 ms"),
        ([Limits()], "no limit"),
    ],
)
def test_limits_of_several_verdicts_are_named_together(limits: list[Limits], words: str) -> None:
    assert any_of_limits(limits) == words
