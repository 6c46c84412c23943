# SPDX-License-Identifier: Apache-2.0
"""Names of bounds: earned by evidence, whatever the numbers are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.analysis.bounds import Context, context_of, doubling_gain, name_bound
from pdlab.analysis.measurement import EngineView, KvFacts, Servers
from pdlab.analysis.support import flags, unlike
from pdlab.analysis.sweep import analyse
from tests.unit.analysis.points import point

maybe = st.one_of(st.none(), st.floats(0, 1e5))
figures = st.one_of(st.none(), st.floats(1e-3, 1e6))
engines = st.one_of(st.none(), st.builds(EngineView, maybe, maybe, maybe, maybe, st.floats(0, 1), maybe))
any_point = st.builds(
    point,
    request_s=st.floats(1e-3, 1e5),
    ttft_ms=figures,
    tpot_ms=figures,
    input_len=st.sampled_from([256, 4096]),
    output_len=st.integers(1, 2000),
    concurrency=st.one_of(st.none(), st.integers(1, 512)),
    servers=st.builds(Servers, st.integers(1, 4), st.integers(1, 4), st.sampled_from([0, 0, 2])),
    engine=engines,
    kv=st.builds(KvFacts, figures, figures, figures),
)


@given(st.lists(any_point, min_size=1, max_size=6))
def test_any_numbers_get_a_verdict_and_every_name_has_evidence_for_it(points) -> None:
    for one in points:
        verdict = name_bound(one, context_of(one, points))
        if verdict.name == "cannot say":
            assert verdict.settle and verdict.words.startswith("cannot say: ")
        else:
            assert any(item.speaks_for for item in verdict.of(verdict.name))
            assert verdict.words.startswith(verdict.name)
        for item in verdict.evidence:
            assert (item.side == "not seen") == (item.value is None)
            assert item.words


@given(st.lists(any_point, min_size=1, max_size=6))
def test_any_numbers_are_analysed_and_what_is_missing_is_said(points) -> None:
    for arm in analyse(points):
        for one in arm.points:
            named = dict(one.refused)
            assert one.capacity is not None or named["capacity"]
            assert one.prediction or named["prediction"]


@given(any_point)
def test_a_point_alone_is_never_given_a_stage_from_client_figures(one) -> None:
    from dataclasses import replace

    bare = replace(one, engine=None)
    assert name_bound(bare, Context()).name in ("latency-bound", "cannot say")


def test_the_gain_of_a_doubled_load_is_by_doublings() -> None:
    low, high = point(concurrency=16, request_s=10), point(concurrency=64, request_s=40)
    assert doubling_gain(low, high) == pytest.approx(1.0)
    assert doubling_gain(low, point(concurrency=64, request_s=10)) == pytest.approx(0.0)
    assert doubling_gain(high, low) is None
    assert doubling_gain(low, None) is None


def test_colocated_servers_are_told_what_would_have_to_be_measured() -> None:
    verdict = name_bound(point(servers=Servers(0, 0, colocated=1)))
    assert verdict.name == "cannot say"
    assert "share these servers" in verdict.words


def test_a_good_point_has_no_flag_and_unlike_points_are_called_that() -> None:
    good = point(requested=1000, completed=1000, engine=EngineView(prefill_waiting=0.0))
    assert [flag.id for flag in flags(good, repeats=5)] == []
    assert [flag.id for flag in unlike(good, point(input_len=9))] == ["unlike_lengths"]
    assert [flag.id for flag in unlike(good, point(concurrency=9))] == ["unlike_load"]
    assert unlike(good, good) == ()
