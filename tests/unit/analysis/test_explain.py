# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain`: the analysis of a finished run, at 80 columns and for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pdlab.analysis.goodput import Limits
from pdlab.analysis.measurement import Servers
from pdlab.evidence.measured import measurements, servers_of
from pdlab.explain import document, explain, lines
from tests.unit.report import run_folder_factory as factory

LIMITS = Limits(ttft_ms=1000, tpot_ms=30)


@pytest.fixture
def contents(tmp_path: Path):
    return factory.good_run(tmp_path).read()


def test_a_runs_points_become_measurements_with_per_request_values(contents) -> None:
    found = measurements(contents)
    assert [(one.concurrency, one.completed) for one in found] == [(1, 8), (16, 48), (64, 96)]
    for one in found:
        assert len(one.requests.ttft_ms) == len(one.requests.tpot_ms) == one.completed
        mean = sum(one.requests.tpot_ms) / one.completed
        assert mean == pytest.approx(one.tpot_ms, rel=0.01)
        assert one.servers == Servers(1, 1)


def test_what_is_printed_fits_80_columns_and_says_that_it_is_a_rehearsal(contents) -> None:
    shown = lines(contents, explain(contents, LIMITS))
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    assert "REHEARSAL" in text
    for wanted in (
        "latency-bound",
        "C/TPOT says",
        "requests met it",
        "closed-loop model",
        "cannot support",
        "TPOT(n) =",
    ):
        assert wanted in text


def test_limits_can_be_asked_of_a_finished_run(contents) -> None:
    (arm,) = explain(contents, LIMITS)
    assert [one.goodput.attainment for one in arm.points] == [1.0, 1.0, 0.0]
    (arm,) = explain(contents)
    assert all(one.goodput is None for one in arm.points)


def test_the_document_is_json_and_leaves_the_requests_out(contents) -> None:
    made = json.loads(json.dumps(document(contents, explain(contents, LIMITS)), allow_nan=False))
    assert made["run"] == contents.name and made["rehearsal"] is True
    first = made["arms"][0]["points"][0]
    assert first["point"]["requests"] is None
    assert first["verdict"]["evidence"][0]["side"] == "for"
    assert first["goodput"]["good"] == 8


def test_a_failed_point_is_left_out_and_a_run_without_points_says_so(tmp_path: Path) -> None:
    failed = factory.failed_point_run(tmp_path / "a").read()
    assert len(measurements(failed)) < len(failed.points)
    none = factory.veto_run(tmp_path / "b").read()
    assert lines(none, explain(none))[-1] == "no point of this run has figures to analyse"


def test_arrays_that_do_not_match_the_count_are_not_used(contents) -> None:
    cut = {**contents.points[0].raw, "ttfts": contents.points[0].raw["ttfts"][:-1]}
    points = (replace(contents.points[0], raw=cut), *contents.points[1:])
    assert measurements(replace(contents, points=points))[0].requests is None


def test_servers_and_gpus_are_counted_from_the_plan() -> None:
    assert servers_of(factory.plan(rehearsal=False)) == Servers(1, 1, gpus=8)
    assert servers_of({}) == Servers(0, 0)
