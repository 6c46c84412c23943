# SPDX-License-Identifier: Apache-2.0
"""Operational laws, lengths, and what they need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.analysis.laws import decoding, e2e_ms, in_flight, little, occupancy
from pdlab.analysis.measurement import Servers, from_point, mean_length
from pdlab.analysis.refusal import RefusedError
from pdlab.results.model import Latency, Point
from tests.unit.analysis.points import h200, point

times = st.floats(0.1, 1e5)
rates = st.floats(1e-3, 1e4)
tokens = st.integers(1, 10_000)


@given(rates, times, times, tokens)
def test_the_stages_sum_to_rate_times_time_of_a_request(rate: float, ttft: float, tpot: float, output: int) -> None:
    one = point(request_s=rate, ttft_ms=ttft, tpot_ms=tpot, output_len=output)
    stages = occupancy(one)
    assert stages.in_flight == pytest.approx(rate * (ttft + (output - 1) * tpot) / 1000)
    assert stages.in_flight == pytest.approx(in_flight(one))
    assert 0 <= stages.decode_share <= 1
    assert stages.decoding == pytest.approx(decoding(one))


@given(st.integers(1, 1000), times, times, tokens)
def test_a_loop_that_kept_its_concurrency_passes_littles_law(load: int, ttft: float, tpot: float, output: int) -> None:
    steady = point(
        concurrency=load,
        ttft_ms=ttft,
        tpot_ms=tpot,
        output_len=output,
        request_s=1000 * load / (ttft + (output - 1) * tpot),
    )
    assert little(steady).ok


def test_a_run_that_was_mostly_ramp_fails_littles_law_and_says_by_how_much() -> None:
    law = little(point(concurrency=8))
    assert law.in_flight == pytest.approx(6.0)
    assert law.gap == pytest.approx(0.25) and not law.ok
    assert little(point(concurrency=6)).ok


def test_what_was_not_measured_has_no_occupancy() -> None:
    assert occupancy(point(ttft_ms=None)) is None
    assert occupancy(point(tpot_ms=None)) is None
    assert decoding(point(ttft_ms=None)) == pytest.approx(5.0)
    assert e2e_ms(point(ttft_ms=None)) is None
    assert little(point(concurrency=None)) is None
    with pytest.raises(RefusedError):
        in_flight(point(concurrency=None, ttft_ms=None))


def test_one_output_token_means_no_decoding() -> None:
    assert occupancy(point(output_len=1, tpot_ms=None)).decoding == 0


def test_the_identity_holds_in_every_real_run_of_the_client() -> None:
    # E2E is the client's own figure, apart from TTFT and TPOT.
    for one in h200():
        assert one.ttft_ms + (one.output_len - 1) * one.tpot_ms == pytest.approx(one.e2e_ms, rel=1e-6), one.label


@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_mean_of_drawn_lengths_is_that_of_the_clients_draw(limit: int, ratio: float) -> None:
    low = max(int(limit * ratio), 1)
    assert mean_length(limit, ratio) == sum(range(low, limit + 1)) / (limit - low + 1)


def test_a_failed_point_is_no_measurement() -> None:
    bare = {"label": "c1", "concurrency": 1, "requested": 8, "completed": 8, "why": [], "measured": True}
    assert from_point(Point(**bare, ok=False), Servers()) is None
    good = Point(
        **bare,
        ok=True,
        input_len=256,
        output_len=128,
        range_ratio=0.0,
        request_s=2.0,
        output_tok_s=150.0,
        ttft_ms=Latency(n=8, mean=50.0),
        tpot_ms=Latency(n=8, mean=5.0),
    )
    made = from_point(good, Servers())
    assert (made.input_len, made.output_len, made.ttft_ms) == (128.5, 75.0, 50.0)
