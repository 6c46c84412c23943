# SPDX-License-Identifier: Apache-2.0
"""`pdlab report --json`: figures only where a point passed, percentiles only where the sample supports them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdlab.results.build import build_report
from pdlab.results.latency import SAMPLES_NEEDED, latencies, latency_of, percentile
from pdlab.results.model import Latency, Report, schemas
from pdlab.results.outcome import verdict
from pdlab.run_stages import Stage
from pdlab.store import PointFiles, RunContents, RunFolder
from tests.unit.report import run_folder_factory as factory


def report(run: RunFolder) -> Report:
    return build_report(run.read())


def test_a_good_run_reports_every_stage_answer_and_point(tmp_path: Path) -> None:
    found = report(factory.good_run(tmp_path))
    assert found.ok
    assert found.rehearsal
    assert [stage.name for stage in found.stages] == list(factory.STAGES)
    assert [answer.got for answer in found.answers] == ["391", "Paris.", "2, 3, 5, 7, 11"]
    assert found.oracle is not None and (found.oracle.cases, found.oracle.identical) == (8, 8)
    assert found.kv_transfer is not None and (found.kv_transfer.bytes, found.kv_transfer.failed) == (41_943_040, 0)
    assert [(point.concurrency, point.requested, point.completed) for point in found.points] == [
        (1, 8, 8),
        (16, 48, 48),
        (64, 96, 96),
    ]
    assert verdict(found) == "Passed: 6 stages, 3 of 3 answers right, 152 of 152 requests completed"


def test_the_json_has_the_promised_keys_and_fits_the_published_schema(tmp_path: Path) -> None:
    for make in (factory.good_run, factory.failed_point_run, factory.died_run, factory.veto_run):
        document = json.loads(report(make(tmp_path / make.__name__)).model_dump_json())
        jsonschema.validate(document, schemas()["report"])
        assert {"run", "ok", "rehearsal", "stages", "answers", "oracle", "kv_transfer", "points"} <= document.keys()
        for stage in document["stages"]:
            assert {"name", "seconds", "ok"} <= stage.keys()
        for point in document["points"]:
            assert {
                "concurrency",
                "requested",
                "completed",
                "output_tok_s",
                "total_tok_s",
                "ttft_ms",
                "tpot_ms",
                "ok",
                "why",
            } <= point.keys()
            assert {"mean", "p50"} <= point["ttft_ms"].keys()


def test_figures_are_the_clients_own(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    line = json.loads(run.raw_path("c64-n96").read_text())
    point = report(run).points[2]
    assert point.output_tok_s == line["output_throughput"]
    assert point.peak_output_tok_s == line["max_output_tokens_per_s"]
    assert point.total_tok_s == line["total_throughput"]
    assert point.ttft_ms.mean == pytest.approx(line["mean_ttft_ms"])
    assert point.ttft_ms.p50 == pytest.approx(line["median_ttft_ms"])
    assert point.ttft_ms.p90 == pytest.approx(line["p90_ttft_ms"])
    assert point.itl_ms.p99 == pytest.approx(line["p99_itl_ms"])
    assert point.tpot_ms.mean == line["mean_tpot_ms"]
    assert point.e2e_ms.p50 == line["median_e2e_latency_ms"]


def test_percentiles_that_the_sample_cannot_support_are_null(tmp_path: Path) -> None:
    small, _, large = report(factory.good_run(tmp_path)).points
    assert small.ttft_ms.p50 is not None
    assert (small.ttft_ms.n, small.ttft_ms.p90, small.e2e_ms.p90) == (8, None, None)
    assert large.ttft_ms.p90 is not None
    assert (large.ttft_ms.p95, large.tpot_ms.p95, large.e2e_ms.p99) == (None, None, None)
    assert small.itl_ms.n == 8 * 127
    assert small.itl_ms.p99 is not None


def test_without_per_request_arrays_the_clients_aggregates_are_taken() -> None:
    bare = factory.client_line(16, 48, details=False)
    full = factory.client_line(16, 48)
    for name, latency in latencies(bare).items():
        assert latency.mean == pytest.approx(latencies(full)[name].mean)
        assert latency.n == latencies(full)[name].n
        assert latency.p90 == pytest.approx(latencies(full)[name].p90)


def test_a_failed_request_is_not_in_the_percentiles() -> None:
    line = factory.client_line(16, 48, completed=31)
    assert min(line["ttfts"]) == 0.0
    assert latencies(line)["ttft_ms"].n == 31
    assert latencies(line)["ttft_ms"].mean == pytest.approx(statistics.fmean(line["ttfts"][:31]) * 1000)


def test_an_empty_sample_that_the_client_writes_as_zero_has_no_figure() -> None:
    line = factory.client_line(1, 8, output_len=128) | {"itls": [[]] * 8, "mean_tpot_ms": 0.0, "mean_itl_ms": 0.0}
    assert latencies(line)["tpot_ms"] == Latency()
    assert latencies(line)["itl_ms"] == Latency()


def test_a_failed_point_has_reasons_and_no_figures(tmp_path: Path) -> None:
    found = report(factory.failed_point_run(tmp_path))
    good, bad, never = found.points
    assert good.ok and good.output_tok_s
    assert (bad.completed, bad.requested) == (31, 48)
    assert bad.why == ["31 of 48 requests completed", "server prefill-0 ended during the point (signal 9)"]
    assert len(bad.error_lines) == 2
    assert (bad.output_tok_s, bad.peak_output_tok_s, bad.total_tok_s) == (None, None, None)
    assert bad.ttft_ms == bad.tpot_ms == bad.itl_ms == bad.e2e_ms == Latency()
    assert never.why == ["the benchmark stopped before this point was measured"]
    assert not never.measured
    assert (found.ok, found.exit_code, found.stopped_at) == (False, 6, "benchmark")
    assert verdict(found) == "Failed at benchmark: point c16-n48: server prefill-0 ended during the point (signal 9)"


def test_a_point_that_failed_without_a_reason_names_its_failed_checks(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.measure(1, 8, ok=False, why=[], checks=[{"id": "text", "ok": False, "seen": "0 tokens", "wanted": "text"}])
    point = report(run.end("failed", 6)).points[0]
    assert point.why == ["check text failed"]
    assert point.output_tok_s is None


def test_a_run_that_died_is_reported_up_to_where_it_got(tmp_path: Path) -> None:
    found = report(factory.died_run(tmp_path))
    assert (found.status, found.ok, found.stopped_at) == ("died", False, "benchmark")
    assert (found.stages[-1].seconds, found.stages[-1].ok, found.stages[-1].finished) == (None, False, False)
    assert found.points[0].output_tok_s is not None
    assert [point.why for point in found.points[1:]] == [["the run ended before this point was measured"]] * 2
    assert verdict(found) == "Died at benchmark: its controller is gone and it wrote no end"


def test_a_veto_has_no_points_and_says_so(tmp_path: Path) -> None:
    found = report(factory.veto_run(tmp_path))
    assert (found.points, found.answers, found.oracle, found.kv_transfer) == ([], [], None, None)
    assert verdict(found) == "Vetoed at preflight: preflight vetoed localhost: port_taken"


def test_a_run_marked_ok_with_a_failed_point_is_not_ok(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.measure(1, 8, completed=7)
    assert not report(run.end("ok", 0)).ok


def test_the_sample_sizes_follow_from_their_rule() -> None:
    for name, wanted in SAMPLES_NEEDED.items():
        fraction = float(name[1:]) / 100

        def confidence(n: int, p: float = fraction) -> float:
            return 1 - p**n - n * (1 - p) * p ** (n - 1)

        assert confidence(wanted) >= 0.99 > confidence(wanted - 1)


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=800))
def test_percentiles_agree_with_the_standard_library_and_stay_in_range(values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    for fraction in (0.5, 0.9, 0.95, 0.99):
        assert percentile(values, fraction) == pytest.approx(cuts[round(fraction * 100) - 1])
    found = latency_of(values)
    assert found.max == max(values)
    assert (found.p90 is None) == (len(values) < 64)
    assert (found.p99 is None) == (len(values) < 662)


ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.sampled_from(["", "x", "<b>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ok", "id", "errors"]), inner),
    max_leaves=6,
)
ODD_KEYS = ["ok", "cases", "answers", "bytes", "why", "checks", "result", "errors", "ttfts", "itls", "completed"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(ODD_KEYS), ODD_VALUES))
def test_no_record_however_odd_breaks_a_report(odd: dict[str, object]) -> None:
    names = ("answers", "stability", "oracle", "kv_transfer", "engine-x", "model-x", "ready")
    contents = RunContents(
        name="20260131T120000Z-1a2b3c",
        path=Path("/runs/20260131T120000Z-1a2b3c"),
        run=odd,
        plan=odd,
        stages=(Stage("benchmark", 0.0, 1.0, True),),
        records=dict.fromkeys(names, odd),
        points=(PointFiles("c1-n8", odd, odd, odd), PointFiles("c16-n48", None, odd, None)),
        logs={},
        files=(),
        damaged=(),
        controller_alive=None,
    )
    found = build_report(contents)
    assert verdict(found)
    assert Report.model_validate_json(found.model_dump_json()) == found


def test_a_report_made_inside_a_run_is_not_judged_by_its_own_open_stage(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.start_now()
    run.stage("preflight")
    run.stage("report", ok=None)
    found = report(run.folder)
    assert (found.status, found.ok, [stage.name for stage in found.stages]) == ("ok", True, ["preflight"])


def test_a_run_of_ansible_playbook_is_judged_by_its_stages_as_nobody_writes_its_end(tmp_path: Path) -> None:
    for name, ok in (("20260131T120000Z-000001", True), ("20260131T120000Z-000002", False)):
        run = factory.RunMaker(tmp_path, name=name)
        run.stage("preflight")
        run.stage("verify", ok=ok)
        gone = {**run.run["controller"], "pid": factory.DEAD_PID}
        run.write_run(command=["ansible-playbook"], controller=gone)
        assert report(run.folder).status == ("ok" if ok else "failed")
        run.stage("benchmark", ok=None)
        assert report(run.folder).status == "died"


def test_a_running_run_says_where_it_is(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.start_now()
    run.stage("preflight")
    run.stage("benchmark", ok=None)
    found = report(run.folder)
    assert (found.status, found.ok) == ("running", False)
    assert [point.why for point in found.points] == [["not measured yet"]] * 3
    assert verdict(found) == "Running: in benchmark"


def test_whether_it_is_a_rehearsal_follows_from_the_plan_when_run_json_does_not_know(tmp_path: Path) -> None:
    for rehearsal in (True, False):
        run = factory.RunMaker(tmp_path / str(rehearsal), rehearsal)
        run.write_run(rehearsal=None)
        assert report(run.folder).rehearsal is rehearsal


def test_a_failed_point_fails_the_run_even_where_the_chain_went_on(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.start_now()
    run.measure(1, 8, completed=7)
    run.stage("benchmark")
    run.stage("report")
    found = report(run.folder)
    assert (found.status, found.ok, found.stopped_at) == ("failed", False, "benchmark")
    assert verdict(found) == "Failed at benchmark: point c1-n8: 7 of 8 requests completed"


def test_a_wrong_answer_fails_the_run(tmp_path: Path) -> None:
    for record in ("answers", "stability"):
        run = factory.RunMaker(tmp_path / record)
        run.record(record, factory.answers_record([("17 times 23?", "391", "392")]))
        run.stage("verify")
        assert not report(run.end("ok", 0)).ok


def test_what_a_failed_part_said_is_kept_and_explains_a_stopped_playbook(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.record("server-prefill-0", {"name": "prefill-0", "failed": True, "msg": "port 30000 is held by PID 811\nmore"})
    run.stage("deploy", ok=None)
    run.write_run(command=["ansible-playbook"], controller={**run.run["controller"], "pid": factory.DEAD_PID})
    found = report(run.folder)
    assert [(failure.record, failure.message[:10]) for failure in found.failures] == [
        ("server-prefill-0", "port 30000")
    ]
    assert verdict(found) == "Stopped at deploy: port 30000 is held by PID 811"
