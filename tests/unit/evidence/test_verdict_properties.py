# SPDX-License-Identifier: Apache-2.0
"""Winners and verdicts claim nothing that intervals do not carry, for any goodput."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st
from scipy import special  # noqa: F401 - loaded before the first example is timed

from pdlab.analysis.goodput import Limits
from pdlab.analysis.rate_search import HighestRate, RatePoint
from pdlab.evidence.figure_ids import parse, verdict_figure, winner_figure
from pdlab.evidence.goods import NO_LIMITS, Good
from pdlab.evidence.model import Arm, LimitSet, Load
from pdlab.evidence.verdict_under_limits import peaks_of, verdict_under_limits
from pdlab.evidence.winners import winners_of

LIMITS = LimitSet(ttft_ms=1000, tpot_ms=8)
ARMS = [
    Arm(name="pd", disaggregated=True, prefill=1, decode=1, colocated=0, gpus=2),
    Arm(name="tp2", disaggregated=False, prefill=0, decode=0, colocated=1, gpus=2),
    Arm(name="dp2", disaggregated=False, prefill=0, decode=0, colocated=2, gpus=2),
]
LOADS = [Load(loop="open", rate_s=rate) for rate in (2.0, 4.0)] + [Load(loop="closed", concurrency=16)]


def given(*strategies):
    quiet = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    return lambda test: quiet(hypothesis_given(*strategies)(test))


def good(repeats: int):
    rates = st.lists(st.floats(0, 50), min_size=repeats, max_size=repeats)
    return st.builds(
        lambda values, share: Good(dict(enumerate(values)), share, {}),
        rates,
        st.sampled_from([0.0, 0.5, 0.89, 0.9, 1.0]),
    )


def goods(loads=LOADS, least: int = 1):
    def of(repeats: int):
        by_load = st.fixed_dictionaries({load: good(repeats) for load in loads})
        return st.fixed_dictionaries({arm.name: by_load for arm in ARMS})

    return st.integers(least, 5).flatmap(of)


def rate(kept: float | None, failed: float | None) -> HighestRate:
    rates = tuple(RatePoint(value, 9, 10, 0.9, 0.6, 1.0) for value in (kept, failed) if value is not None)
    return HighestRate(Limits(1000, 8), 0.9, kept, failed, None, False, None, rates)


BRACKETED = {arm.name: rate(2.0, 4.0) for arm in ARMS}


def verdict(found, rates=BRACKETED, arms=ARMS):
    return verdict_under_limits("rag", LIMITS, arms, found, rates)


@given(goods())
def test_a_winner_beats_every_other_arm_in_every_interval_and_never_from_one_run(found) -> None:
    for cell in winners_of("rag", LIMITS, found, {}):
        if cell.winner is None:
            continue
        here = {arm: by_load[cell.load] for arm, by_load in found.items()}
        best = here.pop(cell.winner)
        assert len(best.request_s) > 1
        for other in here.values():
            assert best.mean > other.mean
            if cell.load.loop == "open":
                assert not (best.keeps and other.keeps)


@given(goods(loads=LOADS[2:]))
def test_in_a_closed_loop_arms_that_keep_the_limits_may_win(found) -> None:
    kept = {arm: {load: Good(one.request_s, 1.0) for load, one in by.items()} for arm, by in found.items()}
    fast = {**kept, "pd": {LOADS[2]: Good({number: 100.0 for number in range(5)}, 1.0)}}
    others = {arm: {LOADS[2]: Good({number: 10.0 for number in range(5)}, 1.0)} for arm in ("tp2", "dp2")}
    (cell,) = winners_of("short", NO_LIMITS, {**fast, **others}, {})
    assert cell.winner == "pd"


@given(goods())
def test_use_and_do_not_use_rest_on_an_interval_that_leaves_out_no_effect(found) -> None:
    row = verdict(found)
    if row.answer == "use":
        assert row.repeats > 1
        assert row.low is None or row.low > 1
    if row.answer == "do not use":
        assert row.repeats > 1
    if row.repeats == 1:
        assert row.answer == "cannot tell"


@given(goods())
def test_an_arm_that_kept_the_limits_everywhere_does_not_lose(found) -> None:
    open_loops = {arm: {load: by[load] for load in LOADS[:2]} for arm, by in found.items()}
    assert verdict(open_loops, {**BRACKETED, "pd": rate(4.0, None)}).answer != "do not use"
    unknown = {**BRACKETED, "tp2": rate(4.0, None), "dp2": rate(4.0, None)}
    assert verdict(open_loops, unknown).answer != "use"


@given(goods(), st.integers(2, 9))
def test_the_order_of_arms_and_loads_does_not_matter(found, seed: int) -> None:
    turned = {arm: dict(reversed(by.items())) for arm, by in reversed(found.items())}
    first, second = verdict(found), verdict(turned, arms=ARMS)
    assert (first.answer, first.effect, first.low, first.high) == (
        second.answer, second.effect, second.low, second.high,
    )  # fmt: skip


@given(goods(least=2), st.sampled_from([1, 2, 4]))
def test_goodput_is_per_gpu_where_arms_have_unlike_numbers_of_them(found, gpus: int) -> None:
    arms = [ARMS[0].model_copy(update={"gpus": gpus}), *ARMS[1:]]
    peaks = peaks_of(found, arms)
    best = max(one.mean for one in found["pd"].values())
    assert peaks["pd"].mean == pytest.approx(best / (gpus if gpus != 2 else 1))


@given(goods())
def test_every_sentence_is_one_line_without_an_odd_number(found) -> None:
    row = verdict(found)
    assert row.sentence and "\n" not in row.sentence
    assert not re.search(r"\b(nan|inf|None)\b", row.sentence + (row.next_measurement or ""))
    assert row.model_validate_json(row.model_dump_json()) == row


def test_verdicts_and_winners_have_figure_ids() -> None:
    assert str(parse(verdict_figure("rag", LIMITS))) == "verdict:rag:ttft1000-tpot8"
    assert str(parse(winner_figure("rag", LOADS[0], LIMITS))) == "winner:rag:r2:ttft1000-tpot8"


def test_a_rate_that_one_of_many_repeats_measured_is_no_arms_best_load() -> None:
    often, once = Good({0: 2.0, 1: 2.0, 2: 2.0}, 1.0), Good({2: 3.9}, 1.0)
    found = peaks_of({"pd": {LOADS[0]: often, LOADS[1]: once}}, ARMS)
    assert found["pd"].load == LOADS[0]
    alone = peaks_of({"pd": {LOADS[1]: once}}, ARMS)
    assert alone["pd"].load == LOADS[1]
