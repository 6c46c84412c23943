# SPDX-License-Identifier: Apache-2.0
"""What may be decided from comparisons: properties that hold for any numbers."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st
from scipy import special

from pdlab.analysis.comparison import compare, mean_interval
from pdlab.analysis.decision import Finding, is_level, on_goodput, on_rate_and_tpot, turned
from pdlab.analysis.repeats_needed import MOST_REPEATS, repeats_needed

VALUE = st.floats(0.5, 200)


def given(*strategies):
    """Hypothesis' given without a deadline: scipy is loaded in the first example, and that takes its time."""
    return lambda test: settings(deadline=None)(hypothesis_given(*strategies)(test))


def pairs_of():
    return st.integers(1, 7).flatmap(
        lambda count: st.tuples(
            st.lists(VALUE, min_size=count, max_size=count), st.lists(VALUE, min_size=count, max_size=count)
        )
    )


def against(pairs) -> list:
    return [compare("x", a, b) for a, b in pairs]


MANY = st.lists(pairs_of(), min_size=1, max_size=3)


@given(
    st.lists(st.tuples(st.lists(VALUE, min_size=1, max_size=1), st.lists(VALUE, min_size=1, max_size=1)), min_size=1)
)
def test_one_run_of_each_never_decides(pairs) -> None:
    assert on_goodput(against(pairs)) is Finding.ONE_RUN
    assert on_rate_and_tpot(against(pairs), against(pairs)) is Finding.ONE_RUN


@given(MANY)
def test_better_needs_an_interval_above_no_effect_against_every_arm(pairs) -> None:
    found = against(pairs)
    if on_goodput(found) is Finding.BETTER:
        assert all(one.low is not None and one.low > 0 for one in found)
    if any(one.low is not None and one.low <= 0 <= one.high for one in found):
        assert on_goodput(found) is not Finding.BETTER


@given(MANY)
def test_worse_needs_an_interval_below_no_effect_against_some_arm(pairs) -> None:
    found = against(pairs)
    if on_goodput(found) is Finding.WORSE:
        assert any(one.high is not None and one.high < 0 for one in found)


@given(MANY, MANY)
def test_a_difference_is_claimed_only_when_one_quantity_shows_it(rate, tpot) -> None:
    rates, tpots = against(rate), against(tpot)
    finding = on_rate_and_tpot(rates, tpots)
    shown = {one.claim for one in (*rates, *tpots)} & {"higher", "lower"}
    if finding not in (Finding.ONE_RUN, Finding.NOT_SHOWN, Finding.LEVEL):
        assert shown
    if finding is Finding.FASTER_AND_FEWER:
        assert all(one.claim == "lower" for one in tpots) and any(one.claim == "lower" for one in rates)


@given(MANY)
def test_the_finding_turns_with_the_sides(pairs) -> None:
    (first, *_rest) = against(pairs)
    forth, back = on_goodput([first]), on_goodput([turned(first)])
    opposite = {Finding.BETTER: Finding.WORSE, Finding.WORSE: Finding.BETTER}
    assert back is opposite.get(forth, forth)


@given(pairs_of())
def test_turning_a_comparison_is_comparing_the_other_way_around(pair) -> None:
    a, b = pair
    found, other = turned(compare("x", a, b)), compare("x", b, a)
    assert found.claim == other.claim
    for name in ("difference", "low", "high", "ratio", "ratio_low", "ratio_high"):
        mine, theirs = getattr(found, name), getattr(other, name)
        assert (mine is None) == (theirs is None)
        if mine is not None and math.isfinite(mine) and math.isfinite(theirs):
            assert mine == pytest.approx(theirs, rel=1e-6, abs=1e-9)


@given(st.lists(VALUE, min_size=2, max_size=6), st.floats(0.97, 1.03))
def test_arms_that_differ_by_less_than_5_percent_in_every_pair_are_level(values, factor) -> None:
    found = compare("x", [value * factor for value in values], values)
    assert is_level(found) and on_goodput([found]) is Finding.LEVEL


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_the_repeats_named_are_the_fewest_that_leave_out_no_effect(differences) -> None:
    needed = repeats_needed(differences)
    mean, spread = statistics.fmean(differences), statistics.stdev(differences)

    def leaves_out(count: int) -> bool:
        return float(special.stdtrit(count - 1, 0.975)) * spread / math.sqrt(count) < abs(mean)

    if needed is None:
        assert mean == 0 or not leaves_out(MOST_REPEATS)
    else:
        assert leaves_out(needed) and (needed == 2 or not leaves_out(needed - 1))


@given(st.lists(st.floats(0.01, 3), min_size=2, max_size=8))
def test_an_effect_that_is_shown_needs_no_more_repeats_than_it_had(values) -> None:
    _mean, low, _high = mean_interval(values)
    if low is not None and low > 1e-9:
        needed = repeats_needed(values)
        assert needed is not None and needed <= len(values)


def test_pairs_of_unlike_size_whose_ratio_is_open_show_no_effect() -> None:
    found = compare("x", (10.1, 20.0), (0.1, 10.0))
    assert found.claim == "higher" and found.ratio_low < 1
    assert on_goodput([found]) is Finding.NOT_SHOWN
    assert on_goodput([turned(found)]) is Finding.NOT_SHOWN


@pytest.mark.parametrize("tiny", [5e-324, 1e-300])
def test_a_value_next_to_nothing_leaves_the_ratio_open_and_breaks_nothing(tiny: float) -> None:
    found = compare("x", (1.0, 1.0), (1.0, tiny))
    assert found.ratio > 1 and found.ratio_low < 1 < found.ratio_high


def test_repeats_without_a_spread_to_go_by_name_no_number() -> None:
    assert repeats_needed([0.3]) is None
    assert repeats_needed([0.1, -0.1]) is None
    assert repeats_needed([0.001, 1.0, -1.0]) is None
    assert repeats_needed([0.2, 0.2, 0.2]) == 2


def finding(rate: tuple[float, ...], tpot: tuple[float, ...]) -> Finding:
    """PD's rates and TPOTs over those of one other arm, which has 1 in every repeat."""
    ones = [1.0] * len(rate)
    return on_rate_and_tpot([compare("rate", rate, ones)], [compare("tpot", tpot, ones)])


MORE, FEWER, SAME, WIDE = (1.4, 1.5, 1.45), (0.7, 0.72, 0.71), (1.0, 1.01, 0.99), (0.6, 1.5, 1.1)


@pytest.mark.parametrize(
    ("rate", "tpot", "wanted"),
    [
        (FEWER, FEWER, Finding.FASTER_AND_FEWER),
        (MORE, MORE, Finding.SLOWER_AND_MORE),
        (MORE, FEWER, Finding.BETTER),
        (MORE, SAME, Finding.BETTER),
        (SAME, FEWER, Finding.BETTER),
        (FEWER, SAME, Finding.WORSE),
        (FEWER, MORE, Finding.WORSE),
        (SAME, MORE, Finding.WORSE),
        (SAME, SAME, Finding.LEVEL),
        (WIDE, SAME, Finding.NOT_SHOWN),
        (WIDE, WIDE, Finding.NOT_SHOWN),
        # Fewer tokens, and the mean TPOT is no better: nothing speaks for it.
        (FEWER, WIDE, Finding.WORSE),
        # Fewer tokens, and TPOT may well be better: that has to be settled first.
        (FEWER, (0.4, 1.2, 0.5), Finding.NOT_SHOWN),
    ],
)
def test_rate_and_tpot_decide_together(rate, tpot, wanted) -> None:
    assert finding(rate, tpot) is wanted


@pytest.mark.parametrize(
    ("rate", "tpot", "ttft", "wanted"),
    [
        (SAME, FEWER, MORE, Finding.FASTER_AND_LATER),
        (SAME, MORE, FEWER, Finding.SLOWER_AND_SOONER),
        (SAME, FEWER, SAME, Finding.BETTER),
        (SAME, FEWER, WIDE, Finding.BETTER),
        (SAME, MORE, MORE, Finding.WORSE),
        (FEWER, FEWER, MORE, Finding.FASTER_AND_FEWER),
        (MORE, FEWER, MORE, Finding.BETTER),
    ],
)
def test_at_equal_rates_a_later_first_token_is_the_price_of_faster_ones(rate, tpot, ttft, wanted) -> None:
    ones = [1.0] * 3
    assert on_rate_and_tpot(*([compare("x", values, ones)] for values in (rate, tpot, ttft))) is wanted
