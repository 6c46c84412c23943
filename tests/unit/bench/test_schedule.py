# SPDX-License-Identifier: Apache-2.0
"""The order of legs, and the time that is left."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from pdlab.bench.schedule import minutes, remaining, schedule, seconds_left


def ids(arms: list[str], repeats: int) -> list[str]:
    return [leg.id for leg in schedule(arms, repeats, 42)]


def test_two_arms_run_abba() -> None:
    assert ids(["pd", "tp2"], 2) == ["pd-r1", "tp2-r1", "tp2-r2", "pd-r2"]
    assert [leg.arm for leg in schedule(["A", "B"], 4, 42)] == list("ABBABAAB")


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("repeats", [1, 2, 3, 5, 8])
def test_each_arm_runs_once_in_each_repeat_and_no_block_is_left_open(count: int, repeats: int) -> None:
    arms = [f"arm{number}" for number in range(count)]
    order = schedule(arms, repeats, 42)
    blocks = [order[start : start + count] for start in range(0, len(order), count)]
    assert [{leg.repeat for leg in block} for block in blocks] == [{number} for number in range(1, repeats + 1)]
    assert all({leg.arm for leg in block} == set(arms) for block in blocks)
    assert len({leg.id for leg in order}) == count * repeats


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("repeats", [2, 4, 6])
def test_a_steady_drift_of_the_box_falls_on_all_arms_alike(count: int, repeats: int) -> None:
    places: dict[str, list[int]] = {}
    for place, leg in enumerate(schedule([f"arm{number}" for number in range(count)], repeats, 42)):
        places.setdefault(leg.arm, []).append(place)
    assert len({sum(own) for own in places.values()}) == 1, places


def test_three_arms_follow_each_other_equally_often_over_six_repeats() -> None:
    order = schedule(["a", "b", "c"], 6, 42)
    inside = [(a.arm, b.arm) for a, b in pairwise(order) if a.repeat == b.repeat]
    assert set(Counter(inside).values()) == {2}


def test_seeds_are_the_same_for_all_arms_of_a_repeat_and_new_in_the_next() -> None:
    seeds = {leg.repeat: set() for leg in schedule(["a", "b", "c"], 4, 42)}  # type: dict[int, set[int]]
    for leg in schedule(["a", "b", "c"], 4, 42):
        seeds[leg.repeat].add(leg.seed)
    assert seeds == {1: {42}, 2: {43}, 3: {44}, 4: {45}}


@pytest.mark.parametrize(("arms", "repeats"), [([], 1), (["a"], 1), (["a", "a"], 1), (["a", "b"], 0)])
def test_what_is_no_comparison_is_refused(arms: list[str], repeats: int) -> None:
    with pytest.raises(ValueError, match="two different arms"):
        schedule(arms, repeats, 42)


def test_what_is_left_keeps_the_order_as_it_was_planned() -> None:
    order = schedule(["a", "b"], 2, 42)
    assert [leg.id for leg in remaining(order, {"a-r1", "b-r2"})] == ["b-r1", "a-r2"]


def test_time_left_goes_by_what_each_arm_took_and_by_the_others_where_it_has_not_run() -> None:
    order = schedule(["a", "b"], 2, 42)
    assert seconds_left(order, {}) is None
    assert seconds_left(order[1:], {"a": [100.0]}) == 300.0
    assert seconds_left(order[2:], {"a": [100.0], "b": [200.0]}, elapsed_s=50.0) == 250.0
    assert seconds_left(order[3:], {"a": [100.0]}, elapsed_s=500.0) == 0.0
    assert seconds_left((), {"a": [100.0]}) == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "time left: known after the first leg"),
        (20, "less than a minute left"),
        (610, "about 10 min left"),
        (3 * 3600 + 59, "about 3 h 01 min left"),
    ],
)
def test_time_left_is_said_in_minutes(seconds: float | None, words: str) -> None:
    assert minutes(seconds) == words
