# SPDX-License-Identifier: Apache-2.0
"""Fits, decode capacity, the closed-loop model and what-ifs: right where they answer, refused elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pdlab.analysis.advice import breakeven_output_len, copies, one_server_more, tok_s_per_gpu
from pdlab.analysis.capacity import decode_capacity, decode_tok_s
from pdlab.analysis.closed_loop import LoopModel, solve
from pdlab.analysis.fits import fit_line, fit_prefill, fit_tpot
from pdlab.analysis.measurement import Measurement, Servers
from pdlab.analysis.refusal import RefusedError
from pdlab.analysis.what_if import Change, fit_arm, what_if
from tests.unit.analysis.points import point

positive = st.floats(0.01, 1e3)
models = st.builds(
    LoopModel,
    alone_ms=st.floats(1, 5000),
    prefill_ms=st.floats(0.5, 5000),
    a_ms=st.floats(0.5, 100),
    b_ms=st.floats(0, 3),
    prefill=st.integers(1, 8),
    decode=st.integers(1, 8),
    transfer_ms=st.floats(0, 500),
)
loads = st.integers(1, 512)
outputs = st.integers(1, 2048)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=12))
def test_a_line_never_falls_and_its_residuals_cancel(pairs: list[tuple[float, float]]) -> None:
    line = fit_line("x", [x for x, _ in pairs], [y for _, y in pairs])
    assert line.slope >= 0
    assert sum(line.residuals) == pytest.approx(0, abs=1e-6 * len(pairs) * max(line.y))
    assert line.x_min == min(line.x) and line.x_max == max(line.x)


@given(positive, st.floats(0, 10), st.lists(positive, min_size=2, max_size=8, unique=True))
def test_a_true_line_is_found(intercept: float, slope: float, xs: list[float]) -> None:
    assume(max(xs) - min(xs) > 0.1)
    line = fit_line("x", xs, [intercept + slope * x for x in xs])
    assert line.intercept == pytest.approx(intercept, rel=1e-4, abs=1e-3)
    assert line.slope == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_a_line_is_refused_outside_what_was_measured() -> None:
    line = fit_line("TPOT", [1, 10], [5, 6])
    assert line.at(5) == pytest.approx(5.444, rel=1e-3)
    with pytest.raises(RefusedError, match="measured from 1 to 10, and 64 lies outside"):
        line.at(64)
    assert not line.checked
    with pytest.raises(RefusedError, match="no measurement"):
        fit_line("TPOT", [], [])


def test_colocated_servers_have_no_prefill_and_no_decode_curve() -> None:
    colocated = point(servers=Servers(0, 0, colocated=1))
    for fit in (fit_tpot, fit_prefill):
        with pytest.raises(RefusedError, match="colocated"):
            fit([colocated])


def test_the_prefill_curve_wants_a_lone_request() -> None:
    with pytest.raises(RefusedError, match="add concurrency 1"):
        fit_prefill([point()])


def test_a_server_that_batches_prompts_is_quicker_for_each_than_for_one_alone() -> None:
    fit = fit_prefill([point(concurrency=1, ttft_ms=40.0, request_s=2.0), point(concurrency=64, request_s=50.0)])
    assert fit.latency.at(256) == 40.0
    assert fit.service.at(256) == 20.0
    assert fit.rate_tok_s(256) == pytest.approx(256 / 0.020)


@given(models, loads, outputs)
def test_the_model_keeps_littles_law_and_every_limit(model: LoopModel, load: int, output: int) -> None:
    state = solve(model, load, output)
    whole = state.ttft_ms + (output - 1) * state.tpot_ms
    assert state.request_s * whole / 1000 == pytest.approx(load, rel=1e-3)
    assert state.request_s <= 1000 * model.prefill / model.prefill_ms * (1 + 1e-9)
    assert state.ttft_ms >= model.alone_ms * (1 - 1e-6) or state.limit != "loop"
    assert state.tpot_ms >= model.a_ms


@given(models, loads, outputs)
def test_more_load_or_more_servers_never_lower_the_models_rate(model: LoopModel, load: int, output: int) -> None:
    rate = solve(model, load, output).request_s * (1 - 1e-6)
    assert solve(model, load + 1, output).request_s >= rate
    assert solve(replace(model, prefill=model.prefill + 1), load, output).request_s >= rate
    assert solve(replace(model, decode=model.decode + 1), load, output).request_s >= rate


def made_by(model: LoopModel, load: int, output: int) -> Measurement:
    state = solve(model, load, output)
    return point(
        label=f"c{load}",
        concurrency=load,
        output_len=output,
        request_s=state.request_s,
        ttft_ms=state.ttft_ms,
        tpot_ms=state.tpot_ms,
        servers=Servers(model.prefill, model.decode),
    )


MODEL = LoopModel(alone_ms=50, prefill_ms=50, a_ms=5, b_ms=0.1)


@given(loads, outputs.filter(lambda tokens: tokens > 1))
def test_the_naive_capacity_is_never_below_the_fitted_one(load: int, output: int) -> None:
    line = fit_tpot([made_by(MODEL, other, output) for other in (1, 8, load)])
    found = decode_capacity(made_by(MODEL, load, output), line)
    best = found.fitted_tok_s or found.extrapolated_tok_s
    assert found.naive_tok_s >= best * (1 - 1e-6)
    assert found.naive_tok_s >= found.ran_tok_s * (1 - 1e-6)
    assert (found.fitted_tok_s is None) == (found.refused is not None)


def test_capacity_beyond_the_measured_batch_is_refused_and_the_naive_figure_explained() -> None:
    bound = [made_by(MODEL, load, 65) for load in (1, 16, 64)]
    found = decode_capacity(bound[-1], fit_tpot(bound))
    assert found.fitted_tok_s is None and "lies outside" in found.refused
    assert "counts 64 requests as decoding" in found.why_naive_misleads
    longer = made_by(MODEL, 64, 2000)
    full = decode_capacity(bound[-1], fit_tpot([*bound, longer]))
    assert full.fitted_tok_s == pytest.approx(64 / (5 + 6.4) * 1000, rel=0.02)
    assert full.overstated == pytest.approx(full.naive_tok_s / full.fitted_tok_s)


@given(st.floats(0.1, 1), st.integers(1, 64), st.integers(1, 8))
def test_decode_servers_share_a_batch_evenly(share: float, batch: int, servers: int) -> None:
    line = fit_line("TPOT", [0, 64], [5, 5 + 64 * share])
    one = decode_tok_s(line, batch, 1)
    assert decode_tok_s(line, batch * servers if batch * servers <= 64 else batch, 1) >= one
    assert decode_tok_s(line, batch, servers) >= one * (1 - 1e-9)


def arm():
    points = [made_by(MODEL, load, 101) for load in (1, 16, 64)]
    return points, fit_arm([*points, made_by(MODEL, 32, 500)])


def test_a_what_if_inside_the_range_is_what_the_servers_would_do() -> None:
    points, fitted = arm()
    got = what_if(fitted, points[1], Change(prefill=2, concurrency=24))
    wanted = solve(replace(MODEL, prefill=2), 24, 101)
    assert got.after.request_s == pytest.approx(wanted.request_s, rel=0.01)
    assert got.rate_ratio > 1
    assert got.within < 0.01


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change(input_len=4096), "lies outside"),
        (Change(output_len=20_000), "context"),
        (Change(prefill=4, concurrency=500), "requests decoding"),
        (Change(prefill=0, concurrency=0, output_len=-3), "1 or more"),
    ],
)
def test_a_what_if_outside_the_range_is_refused_with_the_reason(change: Change, why: str) -> None:
    points, fitted = arm()
    with pytest.raises(RefusedError, match=why):
        what_if(fitted, points[1], change)


def test_a_what_if_is_refused_when_the_model_misses_the_arms_own_points() -> None:
    points = [made_by(MODEL, load, 101) for load in (1, 16)]
    # As many in flight, a third of the rate: waiting that no queue of the model explains.
    odd = replace(points[1], request_s=points[1].request_s / 3, ttft_ms=points[1].ttft_ms * 3 + 200 * points[1].tpot_ms)
    with pytest.raises(RefusedError, match="misses the measured rate of c16"):
        what_if(fit_arm([points[0], odd]), points[0], Change(prefill=2))


def test_break_even_is_where_both_requests_end_at_once() -> None:
    quick, other = point(ttft_ms=500, tpot_ms=5), point(ttft_ms=100, tpot_ms=9, arm="tp2")
    found = breakeven_output_len(quick, other)
    assert found.low == found.high == 101
    assert quick.ttft_ms + 100 * quick.tpot_ms == other.ttft_ms + 100 * other.tpot_ms
    with pytest.raises(RefusedError):
        breakeven_output_len(other, quick)


@given(models, loads, outputs)
def test_one_server_more_gives_what_its_bracket_says(model: LoopModel, load: int, output: int) -> None:
    line = fit_line("TPOT", [1, 512], [model.a_ms + model.b_ms, model.a_ms + 512 * model.b_ms])
    for role in ("prefill", "decode"):
        found = one_server_more(made_by(model, load, output), model, line, role)
        assert found.low - 1e-6 <= found.guess <= found.high + 1e-6


def test_copies_are_bracketed_by_measured_loads_or_refused() -> None:
    server = [point(concurrency=16, request_s=2.0), point(concurrency=64, request_s=5.0)]
    found = copies(server, 2, 64)
    assert (found.low, found.high) == (2 * 2.0 * 101, 2 * 5.0 * 101)
    with pytest.raises(RefusedError, match="measure 128"):
        copies(server, 2, 256)
    with pytest.raises(RefusedError, match="GPUs"):
        tok_s_per_gpu(server[0])
