# SPDX-License-Identifier: Apache-2.0
"""What pdlab measured on two H200s (docs/evidence/h200x2), read again: the verdicts that its documentation quotes."""

from __future__ import annotations

import json
import statistics
import tarfile
from pathlib import Path

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Evidence
from pdlab.explain import compared_lines
from pdlab.ledger.figures import Ledger
from pdlab.report.headline import headline
from pdlab.report.markdown import section
from pdlab.results.build import build_report
from pdlab.store import RunFolder

from .raw_lines import good_s

HERE = Path(__file__).parents[3] / "docs" / "evidence" / "h200x2"
RUN = HERE / "rag-repeats"


@pytest.fixture(scope="module")
def found() -> Evidence:
    return build_evidence(legs_of(RunFolder.open(RUN)), RUN.name)


def unpacked(archive: str, into: Path) -> Path:
    """A run folder from its archive."""
    with tarfile.open(HERE / archive) as tar:
        tar.extractall(into, filter="data")
    return into


@pytest.fixture(scope="module")
def rates_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("rates/run.tar.xz", tmp_path_factory.mktemp("rates"))


@pytest.fixture(scope="module")
def rates(rates_run: Path) -> Evidence:
    return build_evidence(legs_of(RunFolder.open(rates_run)), "rates")


def test_three_paired_repeats_of_each_arm_are_whole_and_all_points_count(found: Evidence) -> None:
    assert [leg.id for leg in sorted(found.legs, key=lambda leg: leg.order)] == [
        "pd-r1", "tp2-r1", "tp2-r2", "pd-r2", "tp2-r3", "pd-r3",
    ]  # fmt: skip
    assert not found.rehearsal and all(leg.ok for leg in found.legs)
    assert [(row.counts, row.point.requested, row.point.completed) for row in found.points] == [(True, 72, 72)] * 6


@pytest.mark.parametrize(
    ("tpot_ms", "answer", "effect", "low", "high"),
    [
        (6, "use", 3.01, 2.64, 3.44),
        (8, "use", 1.72, 1.54, 1.92),
        (12, "cannot tell", 0.98, 0.84, 1.16),
    ],
)
def test_the_tighter_the_limit_the_more_prefill_decode_gains(
    found: Evidence, tpot_ms: float, answer: str, effect: float, low: float, high: float
) -> None:
    (row,) = (verdict for verdict in found.verdicts if verdict.limits.tpot_ms == tpot_ms)
    assert (row.answer, row.repeats) == (answer, 3)
    assert [row.effect, row.low, row.high] == pytest.approx([effect, low, high], abs=0.01)


def test_page_and_findings_tell_how_it_went_by_its_legs(found: Evidence) -> None:
    report = build_report(RunFolder.open(RUN).read())
    assert headline(report, found) == "Passed: 6 of 6 legs, 432 of 432 requests completed"


def test_findings_say_which_arms_ran_and_nothing_that_only_a_leg_has(found: Evidence) -> None:
    body = section(RunFolder.open(RUN).read(), evidence=found)
    assert "- Arms: pd (1 prefill, 1 decode), tp2 (1 colocated)\n" in body
    for word in ("- Model:", "- Servers:", "- Engine:"):
        assert word not in body


def test_servers_on_gpus_of_their_own_are_not_said_to_share(found: Evidence) -> None:
    assert found.verdicts and not any("same GPU" in verdict.sentence for verdict in found.verdicts)


def test_the_canary_went_the_whole_way_on_two_gpus() -> None:
    read = {path.stem: json.loads(path.read_text()) for path in (RUN.parent / "canary").glob("*.json")}
    report, oracle, moved = read["results"], read["oracle"], read["kv_transfer"]
    assert (report["ok"], report["exit_code"], report["rehearsal"]) == (True, 0, True)
    assert [stage["name"] for stage in report["stages"] if stage["ok"]] == [
        "preflight", "deploy", "ready", "verify", "benchmark", "report",
    ]  # fmt: skip
    assert [(point["completed"], point["requested"]) for point in report["points"]] == [(4, 4), (12, 12)]
    assert [answer["ok"] for answer in read["answers"]["answers"]] == [True] * 3
    cases = [case for case in oracle["results"] if case["length"] in oracle["lengths"]]
    assert len(cases) == oracle["identical"] == 22 and oracle["control_differs"]
    assert moved["ucx"] == {"prefill-0": ["zero-copy cuda_ipc/cuda"]} and moved["failed"] == 0
    assert moved["nvlink"]["bytes"] / moved["bytes"] == pytest.approx(0.9997, abs=0.0001)


def test_three_arms_at_all_loads_are_whole_and_all_points_count(rates: Evidence, rates_run: Path) -> None:
    assert [leg.id for leg in sorted(rates.legs, key=lambda leg: leg.order)] == [
        "pd-r1", "tp2-r1", "dp2-r1", "dp2-r2", "tp2-r2", "pd-r2", "tp2-r3", "dp2-r3", "pd-r3",
    ]  # fmt: skip
    assert len(rates.points) == 63 and all(row.counts for row in rates.points)
    report = build_report(RunFolder.open(rates_run).read())
    assert headline(report, rates) == "Passed: 9 of 9 legs, 3258 of 3258 requests completed"


# Ratio and interval: the t-interval of the logarithms of three paired ratios, worked out beside pdlab from the raw lines.
@pytest.mark.parametrize(
    ("workload", "tpot_ms", "answer", "effect", "low", "high"),
    [
        ("short", 6, "do not use", 0.750, 0.715, 0.787),
        ("short", 8, "do not use", 0.750, 0.715, 0.787),
        ("short", 12, "do not use", 0.750, 0.715, 0.787),
        ("long-input", 6, "use", 3.905, 3.673, 4.152),
        ("long-input", 8, "use", 1.369, 1.171, 1.600),
        ("long-input", 12, "do not use", 0.737, 0.726, 0.748),
        ("rag", 6, "use", 2.206, 1.452, 3.351),
        ("rag", 8, "use", 1.755, 1.666, 1.849),
        ("rag", 12, "use", 1.272, 1.005, 1.610),
        ("chat", 6, "do not use", 0.204, 0.058, 0.708),
        ("chat", 8, "cannot tell", 0.920, 0.892, 0.949),
        ("chat", 12, "cannot tell", 0.920, 0.892, 0.949),
    ],
)
def test_both_faces_of_prefill_decode_are_found_in_one_run(
    rates: Evidence, workload: str, tpot_ms: float, answer: str, effect: float, low: float, high: float
) -> None:
    (row,) = (one for one in rates.verdicts if (one.workload, one.limits.tpot_ms) == (workload, tpot_ms))
    assert (row.answer, row.repeats) == (answer, 3)
    assert [row.effect, row.low, row.high] == pytest.approx([effect, low, high], abs=0.001)


@pytest.mark.parametrize(
    ("rate", "tpot_ms", "pd", "tp2", "dp2", "winner"),
    [
        (4, 6, 3.74, 3.25, 2.31, None),
        (6, 8, 5.03, 4.84, 4.39, None),
        (8, 6, 6.24, 2.21, 0.62, "pd"),
        (8, 12, 6.79, 6.71, 6.65, None),
        (10, 6, 7.86, 0.87, 0.26, "pd"),
        (10, 12, 8.49, 6.48, 6.40, "pd"),
    ],
)
def test_the_higher_the_rate_the_more_good_requests_only_prefill_decode_serves(
    rates: Evidence, rates_run: Path, rate: int, tpot_ms: float, pd: float, tp2: float, dp2: float, winner: str | None
) -> None:
    (row,) = (
        row for row in rates.winners if (row.workload, row.load.rate_s, row.limits.tpot_ms) == ("rag", rate, tpot_ms)
    )
    assert row.winner == winner
    for arm, value in (("pd", pd), ("tp2", tp2), ("dp2", dp2)):
        counted = [good_s(path, tpot_ms) for path in rates_run.glob(f"legs/*-{arm}-r?/bench/rag-r{rate}-n*[0-9].jsonl")]
        assert len(counted) == 3
        assert statistics.mean(counted) == pytest.approx(row.goodput[arm].mean)
        assert row.goodput[arm].mean == pytest.approx(value, abs=0.006)


def test_an_advice_that_several_verdicts_give_is_printed_once(rates: Evidence) -> None:
    shown = "\n".join(compared_lines(rates))
    assert shown.count("next:") == len({row.next_measurement for row in rates.verdicts}) == 5


def test_no_advice_is_lost_where_verdicts_alike_give_different_ones(rates: Evidence) -> None:
    own = [row.model_copy(update={"next_measurement": f"measure {at}."}) for at, row in enumerate(rates.verdicts)]
    shown = "\n".join(compared_lines(rates.model_copy(update={"verdicts": own})))
    assert [f"next: measure {at}." in shown for at in range(12)] == [True] * 12


def test_verdicts_that_differ_in_their_limits_alone_are_one_sentence_that_names_them_all(rates: Evidence) -> None:
    shown = " ".join(" ".join(compared_lines(rates)).split())
    assert shown.count("short: Do not use PD: ") == 1
    assert "short: Do not use PD: under TTFT <= 2000 ms, TPOT <= 6, 8 or 12 ms pd serves 25 % fewer" in shown
    assert shown.count("rag: Use PD: ") == shown.count("long-input: Use PD: ") + 1 == 3
    assert "under TTFT <= 2000 ms, TPOT <= 8 or 12 ms pd serves 8 % fewer" in shown
    assert shown.count("short, good requests/s") == 1
    assert "short, good requests/s (TTFT <= 2000 ms, TPOT <= 6, 8 or 12 ms) load pd tp2 dp2 winner 16 20.44" in shown


def test_findings_show_what_to_measure_next_as_code(rates: Evidence, rates_run: Path) -> None:
    body = section(RunFolder.open(rates_run).read(), evidence=rates)
    layers = " ".join(
        f"-e @docs/evidence/h200x2/layers/{name}.yml" for name in ("machine", "eight-billion", "arms", "rates")
    )
    assert f" Next: 5 repeats would narrow the interval: `pdlab bench -i two-gpus {layers} --arms pd,tp2,dp2 " in body
    assert "\\`" not in body


def test_a_verdict_that_no_limits_change_is_printed_once(tmp_path: Path) -> None:
    found = build_evidence(legs_of(RunFolder.open(unpacked("tuning/run.tar.xz", tmp_path))), "tuning")
    assert len(found.verdicts) == 3
    shown = "\n".join(compared_lines(found))
    assert shown.count("Cannot tell: no arm with prefill and decode apart") == shown.count("next:") == 1


@pytest.mark.parametrize(
    ("setting", "good"),
    [
        ("tp2", (2.00, 4.23, 8.02)),
        ("chunk-2048", (0.22, 0.65, 3.26)),
        ("chunk-16384", (2.00, 4.12, 8.02)),
        ("mixed", (2.34, 4.57, 8.02)),
        ("prefill-graphs", (2.23, 4.23, 8.02)),
    ],
)
def test_no_setting_of_the_colocated_server_comes_near_prefill_decode_at_six_ms(
    rates: Evidence, tmp_path: Path, setting: str, good: tuple[float, float, float]
) -> None:
    alone = setting == "prefill-graphs"
    run = unpacked("tuning/prefill-graphs.tar.xz" if alone else "tuning/run.tar.xz", tmp_path)
    (path,) = run.glob("bench/r8-n72.jsonl" if alone else f"legs/*-{setting}-r1/bench/r8-n72.jsonl")
    assert [good_s(path, tpot_ms) for tpot_ms in (6, 8, 12)] == pytest.approx(good, abs=0.006)
    (pd,) = (row for row in rates.winners if (row.workload, row.load.rate_s, row.limits.tpot_ms) == ("rag", 8, 6))
    assert good[0] < pd.goodput["pd"].mean / 2


@pytest.mark.parametrize("archive", ["rates/run.tar.xz", "tuning/run.tar.xz"])
def test_every_figure_of_a_packed_run_follows_from_its_raw_lines(archive: str, tmp_path: Path) -> None:
    ledger = Ledger(RunFolder(unpacked(archive, tmp_path)))
    assert [id for id in ledger.every_id() if not ledger.explain(id).agrees] == []
