# SPDX-License-Identifier: Apache-2.0
"""Verdicts on seeded runs of arms: what is claimed, from how many repeats, and what would settle the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.analysis.goodput import Limits
from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.evidence.limit_ladder import _up
from pdlab.evidence.model import Evidence, LimitSet, Load, VerdictRow
from tests.unit.evidence import arms_run_factory
from tests.unit.evidence.arms_run_factory import seeded_run
from tests.unit.report import run_folder_factory as factory


@pytest.fixture(scope="module")
def legs(tmp_path_factory):
    return legs_of(seeded_run(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def evidence(legs) -> Evidence:
    return build_evidence(legs, "seeded")


def verdict(evidence: Evidence, workload: str) -> VerdictRow:
    (found,) = (row for row in evidence.verdicts if row.workload == workload)
    return found


def of_run(folder, limits: Limits | None = None) -> Evidence:
    return build_evidence(legs_of(folder), folder.name, limits)


def test_pd_that_serves_more_good_requests_is_to_be_used_with_effect_interval_and_repeats(evidence) -> None:
    found = verdict(evidence, "rag")
    assert found.answer == "use" and found.sentence.startswith("Use PD: under TTFT <= 2000 ms, TPOT <= 8 ms pd serves")
    assert found.quantity == "goodput_s" and found.repeats == 5
    assert 1 < found.low < found.effect < found.high
    assert f"{found.effect:.3g} times the good requests of tp2" in found.sentence
    assert f"95 % interval {found.low:.3g} to {found.high:.3g} times, 5 repeats" in found.sentence


def test_without_limits_fewer_and_slower_tokens_speak_against_pd(evidence) -> None:
    found = verdict(evidence, "short")
    assert found.answer == "do not use" and found.quantity == "output_tok_s_per_gpu"
    assert found.low < found.effect < found.high < 1
    assert "26 % fewer tokens than tp2" in found.sentence and "slower per token" in found.sentence
    assert "the same holds at the other 2 loads" in found.sentence
    assert "goodput under limits" in found.next_measurement


def test_limits_asked_of_a_finished_run_replace_those_that_workloads_state(legs) -> None:
    found = build_evidence(legs, "seeded", Limits(ttft_ms=1000, tpot_ms=5.6))
    assert {row.limits.tpot_ms for row in (*found.verdicts, *found.winners, *found.rates)} == {5.6}
    assert {row.workload for row in found.verdicts} == {"short", "rag"}


def test_a_closed_loop_in_which_both_keep_the_limits_says_who_answers_faster(legs) -> None:
    found = verdict(build_evidence(legs, "seeded", Limits(tpot_ms=1000)), "short")
    assert found.answer == "do not use"
    assert "both keep these limits there, and pd answers 1.14 times slower per token" in found.sentence


def test_one_repeat_supports_no_claim_and_five_are_advised(tmp_path: Path) -> None:
    found = of_run(seeded_run(tmp_path, repeats=1))
    for row in found.verdicts:
        assert row.answer == "cannot tell" and row.repeats == 1 and row.low is None and row.high is None
        assert "one run of each has no spread" in row.sentence
        assert (
            f"`pdlab bench -i inventory/gpu --arms pd,tp2,dp2 --workload {row.workload} --repeats 5`"
            in row.next_measurement
        )
    assert {row.claim for row in found.comparisons} == {"cannot support a claim"}
    assert {cell.winner for cell in found.winners} == {None}


def test_an_interval_that_includes_no_effect_is_called_that_and_the_repeats_that_would_settle_it_are_named(
    tmp_path: Path,
) -> None:
    found = verdict(of_run(seeded_run(tmp_path, repeats=3, spread=0.2)), "short")
    assert found.low < 1 < found.high
    assert found.answer == "cannot tell" and "no effect shown" in found.sentence
    wanted = re.search(r"about (\d+) more repeats \((\d+) in all\)", found.next_measurement)
    assert wanted and int(wanted[2]) == int(wanted[1]) + 3
    assert f"--repeats {wanted[2]}`" in found.next_measurement


def test_points_that_do_not_count_are_left_out_of_verdicts_and_it_is_said(tmp_path: Path) -> None:
    run = seeded_run(tmp_path, repeats=3, failed=[("pd-r1", "rag-r8-n40")], doubtful=[("tp2-r2", "rag-r4-n40")])
    found = of_run(run)
    assert "; 2 points are left out, since a check failed" in verdict(found, "rag").sentence
    assert "left out" not in verdict(found, "short").sentence
    assert verdict(found, "rag").repeats == 1
    out = {doubt.where: doubt.seen for doubt in found.doubts if doubt.id == "left_out"}
    assert out.keys() == {"pd-r1:rag-r8-n40", "tp2-r2:rag-r4-n40"}
    assert "signal 9" in out["pd-r1:rag-r8-n40"]
    cell = next(c for c in found.winners if c.load == Load(loop="open", rate_s=8.0))
    assert cell.goodput["pd"].n == 2 and cell.goodput["tp2"].n == 3


def test_arms_that_keep_the_limits_at_every_rate_cannot_be_told_apart_and_higher_rates_are_advised(legs) -> None:
    found = verdict(build_evidence(legs, "seeded", Limits(ttft_ms=9000, tpot_ms=100)), "rag")
    assert found.answer == "cannot tell"
    assert "pd and tp2 and dp2 kept the limits at every rate measured" in found.sentence
    assert "rag at 12 and 16 requests/s" in found.next_measurement


def test_limits_that_nobody_meets_lead_to_lower_rates(legs) -> None:
    found = verdict(build_evidence(legs, "seeded", Limits(ttft_ms=1)), "rag")
    assert found.answer == "cannot tell" and "no request met the limits on any arm" in found.sentence
    assert "rag at 1 requests/s and less" in found.next_measurement


def test_the_winners_grid_has_a_cell_for_each_load_and_limit_and_names_only_shown_winners(evidence) -> None:
    judged = {(row.workload, row.limits) for row in evidence.verdicts}
    cells = {
        (cell.workload, cell.load.concurrency or cell.load.rate_s): cell
        for cell in evidence.winners
        if (cell.workload, cell.limits) in judged
    }
    assert cells.keys() == {("short", 1), ("short", 16), ("short", 64), ("rag", 2.0), ("rag", 4.0), ("rag", 8.0)}
    assert cells["rag", 2.0].winner is None and "keep the limits" in cells["rag", 2.0].words
    assert cells["rag", 4.0].winner == cells["rag", 8.0].winner == "pd"
    assert cells["short", 1].winner == "tp2"
    assert cells["rag", 8.0].goodput["tp2"].mean == 0


def test_each_arms_highest_rate_is_searched_over_rates(evidence) -> None:
    rates = {row.arm: row for row in evidence.rates}
    assert rates.keys() == {"pd", "tp2", "dp2"}
    assert rates["pd"].kept_s == 8 and rates["pd"].failed_s is None and not rates["pd"].settled
    assert (rates["tp2"].kept_s, rates["tp2"].failed_s) == (2, 4)
    assert 2 < rates["tp2"].estimate_s < 4 and rates["tp2"].settled


def test_a_run_of_one_arm_asks_for_something_to_compare_with(tmp_path: Path) -> None:
    (found,) = of_run(factory.good_run(tmp_path)).verdicts
    assert found.answer == "cannot tell" and "no arm to compare with" in found.sentence
    assert "colocated servers" in found.next_measurement
    only = of_run(seeded_run(tmp_path, arms=("tp2", "dp2"), repeats=2))
    assert all("prefill and decode apart" in row.sentence for row in only.verdicts)


def test_a_rehearsals_verdict_says_that_it_is_one(tmp_path: Path) -> None:
    for row in of_run(seeded_run(tmp_path, repeats=2, rehearsal=True)).verdicts:
        assert "says nothing about any GPU" in row.sentence


def test_every_verdict_is_one_sentence(evidence) -> None:
    for row in evidence.verdicts:
        assert row.sentence.endswith(".") and not re.search(r"\.\s", row.sentence), row.sentence


@pytest.mark.parametrize(
    ("pd", "answer", "said"),
    [
        ((60.0, 4.0), "use", "times faster per token than tp2"),
        ((185.0, 4.0), "cannot tell", "not when the first has to come within"),
        ((60.0, 6.0), "do not use", "as many tokens as tp2"),
        ((60.0, 8.5), "do not use", "slower per token"),
    ],
)
def test_a_closed_loop_without_limits_weighs_rate_tokens_and_first_token(
    tmp_path: Path, monkeypatch, pd: tuple[float, float], answer: str, said: str
) -> None:
    times = {"pd": pd, "tp2": (60.0, 6.0)}
    monkeypatch.setattr(arms_run_factory, "_closed_ms", lambda arm, _load: times[arm])
    found = verdict(of_run(seeded_run(tmp_path, arms=("pd", "tp2"), repeats=4, spread=0.004, prompts=60)), "short")
    assert found.answer == answer, found.sentence
    assert said in found.sentence


def test_the_grid_also_has_limits_at_which_arms_part_unless_the_user_asked_for_some(legs, evidence) -> None:
    rag = {cell.limits for cell in evidence.winners if cell.workload == "rag"}
    assert len(rag) == 5 and LimitSet(ttft_ms=2000, tpot_ms=8) in rag
    # The TTFT limit is the workload's own, TPOT limits lie between the quickest and the slowest arm.
    assert {one.ttft_ms for one in rag} == {2000} and all(5 < one.tpot_ms < 13 for one in rag)
    short = {cell.limits for cell in evidence.winners if cell.workload == "short"}
    assert LimitSet() in short and {one.ttft_ms for one in short} == {None}
    winners = {
        (cell.limits.tpot_ms, cell.load.rate_s): cell.winner for cell in evidence.winners if cell.workload == "rag"
    }
    assert len({winners[limit, 4.0] for limit, _rate in winners}) > 1
    asked = build_evidence(legs, "seeded", Limits(tpot_ms=7))
    assert {cell.limits for cell in asked.winners} == {LimitSet(tpot_ms=7)}


@given(st.floats(0.01, 9999, allow_subnormal=False))
def test_a_limit_rounded_up_is_kept_by_its_value_and_at_most_a_tenth_above(value: float) -> None:
    up = _up(value)
    assert value * (1 - 1e-6) <= up <= value * 1.1 + 1e-9
    assert _up(up) == up
