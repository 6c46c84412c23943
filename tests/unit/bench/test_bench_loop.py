# SPDX-License-Identifier: Apache-2.0
"""Little's law in short runs: honest ones are not called wrong, wrong ones are found."""

from __future__ import annotations

import heapq
import random

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_loop
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench.recorded import output


def run(concurrency: int, times: list[float], pause: float = 0.0) -> float:
    """How long a closed loop takes whose client waits for `pause` seconds before each request but the first ones."""
    slots = [0.0] * concurrency
    for index, time in enumerate(times):
        begun = heapq.heappop(slots) + (pause if index >= concurrency else 0.0)
        heapq.heappush(slots, begun + time)
    return max(slots)


def drawn(count: int, seed: int) -> list[float]:
    dice = random.Random(seed)
    return [dice.uniform(0.5, 1.5) * dice.choice([1.0, 1.0, 1.0, 3.0]) for _ in range(count)]


@pytest.mark.parametrize("concurrency", [1, 4, 16, 64])
@pytest.mark.parametrize("waves", [1, 1.5, 2, 5])
def test_an_honest_run_of_any_length_holds_however_long_its_tail(concurrency: int, waves: float) -> None:
    for seed in range(20):
        times = drawn(int(concurrency * waves), seed)
        found = bench_loop.in_flight(times, concurrency, run(concurrency, times) * 1.01)
        assert found is not None and abs(found.off) < 0.02
        assert found.measured <= concurrency


def test_the_tail_alone_would_call_a_short_honest_run_wrong() -> None:
    times = drawn(96, 1)
    found = bench_loop.in_flight(times, 64, run(64, times))
    assert found is not None and found.measured < 0.7 * 64 and found.off == pytest.approx(0.0)


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_a_client_that_pauses_between_requests_is_found(concurrency: int) -> None:
    times = drawn(concurrency * 5, 2)
    found = bench_loop.in_flight(times, concurrency, run(concurrency, times, pause=0.2))
    assert found is not None and found.off < -0.05


@pytest.mark.parametrize("real", [4, 8, 12, 24, 32])
def test_a_loop_of_another_concurrency_is_found(real: int) -> None:
    times = drawn(96, 3)
    found = bench_loop.in_flight(times, 16, run(real, times))
    assert found is not None and abs(found.off) > 0.05


def test_times_that_are_not_those_of_the_requests_are_found() -> None:
    times = drawn(80, 4)
    found = bench_loop.in_flight([time * 0.8 for time in times], 16, run(16, times))
    assert found is not None and found.off < -0.05


def test_a_recorded_run_holds() -> None:
    whole = output("good")
    found = bench_loop.in_flight(bench_loop.times_in_flight(whole), 4, whole["duration"])
    assert found is not None and abs(found.off) < 0.05
    assert found.measured == pytest.approx(whole["concurrency"], rel=0.001)


def test_nothing_is_said_of_nothing() -> None:
    assert bench_loop.in_flight([], 4, 1.0) is None
    assert bench_loop.in_flight([1.0], 4, 0.0) is None


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=40), st.integers(1, 20))
def test_a_full_loop_never_has_more_in_flight_than_its_limit(times: list[float], concurrency: int) -> None:
    shortest = bench_loop.makespan(times, concurrency)
    assert max(times) <= shortest * 1.000001
    assert sum(times) / shortest <= concurrency * 1.000001


def test_poisson_arrivals_hold_and_a_client_that_cannot_keep_up_is_found() -> None:
    low, high = bench_loop.arrivals_wanted(4.0, 100)
    wrong = 0
    for seed in range(300):
        dice = random.Random(seed)
        span = sum(dice.expovariate(4.0) for _ in range(100))
        rates = bench_loop.arrival_rates(100, 1.0, span + dice.uniform(0, 1.0))
        assert rates is not None
        wrong += not (rates[1] >= low and rates[0] <= high)
    assert wrong == 0
    late = bench_loop.arrival_rates(100, 1.0, 100 / 2.0)
    assert late is not None and late[1] < low
