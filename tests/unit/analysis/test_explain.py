# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain`: what a finished run's numbers mean, at 80 columns and for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pdlab.analysis.goodput import Limits
from pdlab.analysis.measurement import KvFacts, Servers
from pdlab.evidence.legs import legs_of
from pdlab.evidence.measured import kv_facts, measurements, servers_of
from pdlab.explain import explain, lines
from pdlab.explanation import explanation, schemas
from pdlab.point_telemetry import EngineFigures
from tests.unit.evidence.arms_run_factory import h200_run, seeded_run
from tests.unit.report import run_folder_factory as factory

LIMITS = Limits(ttft_ms=1000, tpot_ms=30)


@pytest.fixture
def run(tmp_path: Path):
    return factory.good_run(tmp_path)


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    return legs_of(h200_run(tmp_path_factory.mktemp("runs")))


def explained(run, limits: Limits | None = None):
    return explain(legs_of(run), run.name, limits)


def document(run, limits: Limits | None = None):
    found = explained(run, limits)
    made = explanation(run.name, found).model_dump(mode="json")
    return json.loads(json.dumps(made, allow_nan=False))


def test_a_runs_points_become_measurements_with_per_request_values(run) -> None:
    found = measurements(run.read())
    assert [(one.concurrency, one.completed) for one in found] == [(1, 8), (16, 48), (64, 96)]
    for one in found:
        assert len(one.requests.ttft_ms) == len(one.requests.tpot_ms) == one.completed
        mean = sum(one.requests.tpot_ms) / one.completed
        assert mean == pytest.approx(one.tpot_ms, rel=0.01)
        assert one.servers == Servers(1, 1)


def test_what_is_printed_fits_80_columns_and_says_that_it_is_a_rehearsal(run) -> None:
    shown = lines(explained(run, LIMITS))
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
        "no arm to compare with",
    ):
        assert wanted in text


def test_a_run_of_arms_begins_with_its_verdicts_and_shows_who_wins_where(arms) -> None:
    shown = lines(explain(arms, "h200"))
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    assert shown[2].startswith("short: Do not use PD: ")
    assert "rag, good requests/s (TTFT <= 2000 ms, TPOT <= 6 ms)" in shown
    assert "   load       pd      tp2      dp2  winner" in shown
    assert "    8/s     7.55     1.11     0.44  -" in shown
    assert "      1     1.54     2.09     1.58  tp2" in shown
    said = "highest rate that keeps them: pd 8/s or more, tp2 about 2.6/s (not settled), dp2 about 2.4/s (not settled)"
    assert said in " ".join(text.split())
    assert "     16    2     8.50    1,088     1,109      4.66  prefill-bound" in shown
    assert "cannot support: 1 run (wanted: 5 runs, interleaved)" in text


def test_limits_asked_of_a_run_of_arms_hold_for_every_workload(arms) -> None:
    text = "\n".join(lines(explain(arms, "h200", Limits(ttft_ms=1000, tpot_ms=8))))
    assert "rag, good requests/s (TTFT <= 1000 ms, TPOT <= 8 ms)" in text
    assert "TPOT <= 6 ms" not in text and "TPOT <= 12 ms" not in text
    # What each request took was kept in the open loops alone.
    assert "short: Cannot tell: the times of single requests were not kept" in text


def test_limits_can_be_asked_of_a_finished_run(run) -> None:
    (arm,) = explained(run, LIMITS).arms
    assert [one.goodput.attainment for one in arm.points] == [1.0, 1.0, 0.0]
    (arm,) = explained(run).arms
    assert all(one.goodput is None for one in arm.points)


def test_the_document_is_json_and_leaves_the_requests_out(run) -> None:
    made = document(run, LIMITS)
    assert made["run"] == run.name and made["rehearsal"] is True
    first = made["arms"][0]["points"][0]
    assert first["point"]["requests"] is None
    assert first["verdict"]["evidence"][0]["side"] == "for"
    assert first["goodput"]["good"] == 8
    assert len(made["arms"][0]["tpot_residuals_ms"]) == 3
    assert made["evidence"]["points"][0]["id"] == "pd-r0:c1-n8"


@pytest.mark.parametrize("make", [factory.good_run, factory.failed_point_run, factory.veto_run, h200_run, seeded_run])
def test_the_document_is_what_its_published_schema_says(tmp_path: Path, make) -> None:
    Draft202012Validator(schemas()["explain"]).validate(document(make(tmp_path), LIMITS))


def test_limits_that_a_workload_states_are_used_when_none_are_asked(arms) -> None:
    found = explain(arms, "h200")
    at = found.goods["pd", 1, "rag-r8-n72"]
    assert [good.limits.tpot_ms for good in at] == [6, 8, 12]
    assert at[0].request_s == pytest.approx(7.55, abs=0.01)
    assert ("pd", 1, "short-c64-n96") not in found.goods
    one = explain(arms[:1], "h200")
    assert any("TTFT <= 2000 ms, TPOT <= 6 ms: 71 of 72 requests met it" in line for line in lines(one))


def test_a_what_if_is_answered_inside_what_was_measured_and_refused_outside(arms) -> None:
    found = explain(arms, "h200", changes=["prefill=2", "input_len=99999"])
    inside = {row.workload: row for row in found.what_ifs if row.change == "prefill=2"}
    assert 1.3 < inside["long-input"].prediction.rate_ratio <= 2.0
    assert "the model says" in inside["long-input"].words and {row.arm for row in found.what_ifs} == {"pd"}
    outside = [row for row in found.what_ifs if row.change == "input_len=99999"]
    assert outside and all(row.prediction is None and "refused: " in row.words for row in outside)
    assert max(map(len, lines(found))) <= 80


@pytest.mark.parametrize("change", ["gpus=2", "prefill", "prefill=0", "prefill=x", "", "prefill=2,=3"])
def test_a_change_that_is_none_is_refused_with_what_could_be_changed(arms, change: str) -> None:
    with pytest.raises(ValueError, match=r"known are input_len, output_len, concurrency|must be a whole number"):
        explain(arms, "h200", changes=[change])


def test_a_failed_point_is_left_out_and_a_run_without_points_says_so(tmp_path: Path) -> None:
    failed = factory.failed_point_run(tmp_path / "a")
    assert len(measurements(failed.read())) < len(failed.read().points)
    assert any(line.startswith("left out: pd-r0:c16-n48") for line in lines(explained(failed)))
    none = factory.veto_run(tmp_path / "b")
    assert lines(explained(none))[-1] == "no point of this run has figures to analyse"


def test_arrays_that_do_not_match_the_count_are_not_used(run) -> None:
    contents = run.read()
    cut = {**contents.points[0].raw, "ttfts": contents.points[0].raw["ttfts"][:-1]}
    points = (replace(contents.points[0], raw=cut), *contents.points[1:])
    assert measurements(replace(contents, points=points))[0].requests is None


def test_servers_and_gpus_are_counted_from_the_plan() -> None:
    assert servers_of(factory.plan(rehearsal=False)) == Servers(1, 1, gpus=8)
    assert servers_of({}) == Servers(0, 0)


def test_the_kv_cache_and_its_path_are_known_from_what_the_engine_said(arms) -> None:
    points = arms[0].report.points
    alone = next(one for one in points if one.label == "prefill-only-c1-n8")
    found = kv_facts(alone, points, factory.plan())
    assert found == KvFacts(131072, 57.5, 65536)
    silent = alone.model_copy(update={"engine": None})
    assert kv_facts(silent, [silent], {}) == KvFacts(None, None, None)
    # A point that shared the path with other requests does not show what it carries alone.
    busy = alone.model_copy(update={"concurrency": 16, "engine": EngineFigures(kv_transfer_gb_s=57.5)})
    assert kv_facts(busy, [busy], {}).path_gb_s_at_least is None
