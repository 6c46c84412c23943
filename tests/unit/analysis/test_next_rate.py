# SPDX-License-Identifier: Apache-2.0
"""Which rate a search measures next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.analysis.goodput import Limits
from pdlab.analysis.measurement import Measurement, Requests
from pdlab.analysis.rate_search import CLOSE_ENOUGH, highest_rate, next_rate
from tests.unit.analysis.points import point

LIMITS = Limits(ttft_ms=100)


def at(rate: float, met: int, of: int = 100) -> Measurement:
    ttft = (10.0,) * met + (9999.0,) * (of - met)
    return point(requests=Requests(ttft, (1.0,) * of), requested=of, rate_s=rate, concurrency=None)


def test_between_a_rate_that_keeps_and_one_that_does_not_it_is_their_geometric_mean() -> None:
    assert next_rate([at(2, 100), at(8, 10)], LIMITS) == 4.0
    assert next_rate([at(1, 100), at(2, 10)], LIMITS) == 1.4


def test_above_all_rates_that_keep_and_below_all_that_do_not() -> None:
    assert next_rate([at(2, 100), at(4, 100)], LIMITS) == 8.0
    assert next_rate([at(2, 10), at(4, 5)], LIMITS) == 1.0


@pytest.mark.parametrize(
    "points",
    [
        [],
        [point(requests=Requests((1.0,), (1.0,)), requested=1)],
        [at(4, 100), at(5, 10)],
        [at(2, 100), at(4, 10), at(8, 100)],
    ],
    ids=["nothing measured", "a closed loop", "close enough", "points that contradict each other"],
)
def test_where_another_rate_tells_nothing_there_is_none(points: list[Measurement]) -> None:
    assert next_rate(points, LIMITS) is None


def test_a_rate_whose_point_failed_is_not_asked_for_again() -> None:
    assert next_rate([at(2, 100), at(8, 10)], LIMITS, tried=[4.0]) is None


def test_a_bracket_too_narrow_for_two_digits_is_still_halved() -> None:
    found = next_rate([at(1.0, 100), at(1.01, 10)], LIMITS, close_enough=1.0)
    assert found is not None and 1.0 < found < 1.01


@given(st.floats(0.01, 1000.0), st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=1, unique=True))
def test_a_search_brackets_the_truth_and_ends(truth: float, preset: list[float]) -> None:
    points = [at(rate, 100 if rate <= truth else 0) for rate in preset]
    for _step in range(40):
        rate = next_rate(points, LIMITS)
        if rate is None:
            break
        points.append(at(rate, 100 if rate <= truth else 0))
    else:
        pytest.fail("it does not end")
    found = highest_rate(points, LIMITS)
    assert found.kept_s is not None and found.failed_s is not None
    assert found.kept_s <= truth <= found.failed_s
    assert found.failed_s / found.kept_s <= CLOSE_ENOUGH


@given(st.floats(0.5, 4.0))
def test_a_bracket_of_the_presets_is_settled_by_two_points(truth: float) -> None:
    points = [at(rate, 100 if rate <= truth else 0) for rate in (0.5, 1.0, 2.0, 4.0, 8.0)]
    steps = 0
    while (rate := next_rate(points, LIMITS)) is not None:
        points.append(at(rate, 100 if rate <= truth else 0))
        steps += 1
    assert steps <= 2
