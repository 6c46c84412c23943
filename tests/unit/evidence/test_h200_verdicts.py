# SPDX-License-Identifier: Apache-2.0
"""Real results of three arms on two H200s show both faces: PD loses throughput, and leads in goodput at long inputs."""

from __future__ import annotations

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Evidence, LimitSet
from tests.unit.evidence.arms_run_factory import h200_run


@pytest.fixture(scope="module")
def evidence(tmp_path_factory) -> Evidence:
    return build_evidence(legs_of(h200_run(tmp_path_factory.mktemp("runs"))), "h200")


def verdict(evidence: Evidence, workload: str, tpot_ms: float | None = None):
    wanted = LimitSet() if tpot_ms is None else LimitSet(ttft_ms=2000, tpot_ms=tpot_ms)
    (found,) = (row for row in evidence.verdicts if (row.workload, row.limits) == (workload, wanted))
    return found


def winner(evidence: Evidence, workload: str, rate_s: float, tpot_ms: float):
    limits = LimitSet(ttft_ms=2000, tpot_ms=tpot_ms)
    (found,) = (
        cell
        for cell in evidence.winners
        if (cell.workload, cell.load.rate_s, cell.limits) == (workload, rate_s, limits)
    )
    return found


def test_in_a_closed_loop_pd_loses_throughput_to_tp2_at_every_load_that_ran_twice(evidence) -> None:
    rows = [
        row for row in evidence.comparisons if (row.a, row.b, row.quantity) == ("pd", "tp2", "output_tok_s_per_gpu")
    ]
    closed = {(row.workload, row.load.concurrency): row for row in rows if row.load.loop == "closed"}
    assert len(closed) == 6
    assert {row.claim for row in closed.values() if row.pairs == 2} == {"lower"}
    assert closed["prefill-only", 1].claim == "cannot support a claim" and closed["prefill-only", 1].difference < 0


@pytest.mark.parametrize(("workload", "share"), [("short", "27 %"), ("long-output", "30 %")])
def test_short_inputs_are_no_reason_for_pd(evidence, workload: str, share: str) -> None:
    found = verdict(evidence, workload)
    assert found.answer == "do not use" and found.repeats == 2
    assert f"serves {share} fewer tokens than tp2" in found.sentence


def test_long_inputs_are_a_trade_that_limits_decide(evidence) -> None:
    found = verdict(evidence, "long-input")
    assert found.answer == "cannot tell" and "it depends on limits, and none are stated" in found.sentence
    assert "pd answers 1.73 times faster per token than tp2 (4.66 against 8.06 ms" in found.sentence
    assert "serves 17 % fewer tokens than tp2" in found.sentence
    assert "its first token takes 2.11 times as long" in found.sentence
    assert "use it when a token has to come within less than 8.06 ms" in found.sentence
    assert "answers are longer than about 173 tokens" in found.sentence
    assert found.effect == pytest.approx(0.828, abs=0.001) and found.high < 1
    assert "open loop" in found.next_measurement


def test_under_6_ms_a_token_pd_leads_6_8_times_at_8_requests_a_second_from_one_run(evidence) -> None:
    cell = winner(evidence, "rag", 8, 6)
    assert cell.winner is None and "one run of each has no spread" in cell.words
    assert cell.goodput["pd"].mean / cell.goodput["tp2"].mean == pytest.approx(6.8, abs=0.05)
    found = verdict(evidence, "rag", 6)
    assert found.answer == "cannot tell" and "this is a lead" in found.sentence and found.repeats == 1
    assert found.effect == pytest.approx(7.55 / 2.85, abs=0.01) and found.low is None
    assert "at 8 requests/s it is 6.82 times (7.55 against 1.11)" in found.sentence
    assert "--repeats 5" in found.next_measurement


@pytest.mark.parametrize(("tpot_ms", "factor"), [(8, 2.3), (12, 1.25)])
def test_the_lead_shrinks_as_the_limit_is_loosened(evidence, tpot_ms: float, factor: float) -> None:
    cell = winner(evidence, "rag", 8, tpot_ms)
    best = max(value.mean for arm, value in cell.goodput.items() if arm != "pd")
    assert cell.goodput["pd"].mean / best == pytest.approx(factor, abs=0.02)


@pytest.mark.parametrize("tpot_ms", [6, 8, 12])
def test_at_2048_in_512_out_nobody_is_told_to_use_pd_and_the_arms_are_about_level(evidence, tpot_ms: float) -> None:
    found = verdict(evidence, "chat", tpot_ms)
    assert found.answer == "cannot tell"
    assert 0.9 < found.effect < 1.1
    assert "keep the limits" in found.sentence or "kept the limits" in found.sentence
    assert found.next_measurement.startswith("chat at ")


def test_no_winner_is_named_from_one_run_and_equal_keepers_do_not_win(evidence) -> None:
    assert {cell.winner for cell in evidence.winners if cell.load.loop == "open"} == {None}
    assert "none wins over the other" in winner(evidence, "rag", 2, 6).words


def test_what_the_runs_cannot_support_is_listed(evidence) -> None:
    ids = {doubt.id for doubt in evidence.doubts}
    assert {"one_run", "few_prompts", "not_steady", "no_percentiles", "engine_not_seen"} <= ids
    assert any(doubt.where == "rag, 8 requests/s, pd" and doubt.id == "one_run" for doubt in evidence.doubts)
