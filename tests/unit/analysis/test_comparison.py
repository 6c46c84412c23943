# SPDX-License-Identifier: Apache-2.0
"""Two arms from their repeats: what may be claimed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.analysis.comparison import compare
from pdlab.analysis.refusal import RefusedError

figures = st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)), min_size=1, max_size=12)


def test_one_run_of_each_supports_no_claim() -> None:
    found = compare("output tok/s", [385.0], [509.0])
    assert found.claim == "cannot support a claim"
    assert found.low is None and found.high is None
    assert found.ratio == pytest.approx(0.756, abs=1e-3)
    assert "cannot support a claim" in found.words


def test_the_interval_is_students_over_the_differences() -> None:
    # Mean 1, standard deviation 1, three pairs: 4.3027 / sqrt(3) = 2.4842 either way.
    found = compare("x", [10.0, 11.0, 12.0], [10.0, 10.0, 10.0])
    assert (found.low, found.high) == pytest.approx((1 - 2.4841, 1 + 2.4841), abs=1e-3)
    assert found.claim == "no effect shown"
    assert "includes 0" in found.words


def test_pairs_take_out_what_drifts_on_the_box() -> None:
    drift = [0.0, 40.0, 80.0, 120.0, 160.0]
    a, b = [105 + d for d in drift], [100 + d + (1 if d else 0) for d in drift]
    assert compare("x", a, b).claim == "higher"
    assert compare("x", b, a).claim == "lower"


@given(figures)
def test_a_claim_is_made_only_when_the_interval_excludes_no_effect(pairs) -> None:
    found = compare("x", [a for a, _ in pairs], [b for _, b in pairs])
    if len(pairs) == 1:
        assert found.claim == "cannot support a claim"
        return
    assert found.low <= found.difference <= found.high
    assert (found.claim == "higher") == (found.low > 0)
    assert (found.claim == "lower") == (found.high < 0)
    swapped = compare("x", [b for _, b in pairs], [a for a, _ in pairs])
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))


@pytest.mark.parametrize("pairs", [3, 5])
def test_the_interval_holds_the_true_effect_about_as_often_as_it_says(pairs: int) -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(600):
        a = [draw.gauss(103, 4) for _ in range(pairs)]
        b = [draw.gauss(100, 4) for _ in range(pairs)]
        found = compare("x", a, b)
        held += found.low <= 3 <= found.high
    assert 0.92 <= held / 600 <= 0.98


def test_the_bootstrap_wants_eight_pairs_and_then_agrees_roughly_with_student() -> None:
    draw = random.Random(3)
    a, b = [draw.gauss(110, 3) for _ in range(12)], [draw.gauss(100, 3) for _ in range(12)]
    student, boot = compare("x", a, b), compare("x", a, b, method="bca")
    assert boot.claim == student.claim == "higher"
    assert boot.low == pytest.approx(student.low, rel=0.15)
    assert compare("x", a, b, method="bca") == boot, "the same numbers give the same interval"
    with pytest.raises(RefusedError, match="needs 8 pairs"):
        compare("x", a[:5], b[:5], method="bca")


def test_repeats_without_a_partner_and_no_repeats_are_refused() -> None:
    with pytest.raises(RefusedError, match="no partner"):
        compare("x", [1.0, 2.0], [1.0])
    with pytest.raises(RefusedError, match="no repeat"):
        compare("x", [], [])


@pytest.mark.parametrize("method", ["t", "bca"])
def test_repeats_that_agree_exactly_have_an_interval_of_no_width(method) -> None:
    found = compare("x", [5.0] * 9, [4.0] * 9, method=method)
    assert (found.low, found.high, found.claim) == (1.0, 1.0, "higher")
    assert compare("x", [0.0] * 9, [0.0] * 9, method=method).ratio is None
