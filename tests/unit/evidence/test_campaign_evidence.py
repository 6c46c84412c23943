# SPDX-License-Identifier: Apache-2.0
"""The campaign's table as a run of arms: its conclusions with figures, and no claim that one run cannot carry."""

from __future__ import annotations

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import Leg, legs_of
from pdlab.evidence.model import Evidence
from tests.unit.evidence.arms_run_factory import campaign_run, h200_run


@pytest.fixture(scope="module")
def legs(tmp_path_factory) -> tuple[Leg, ...]:
    return legs_of(campaign_run(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def evidence(legs) -> Evidence:
    return build_evidence(legs, "campaign", allow_unlike=True)


def compared(evidence: Evidence, quantity: str, concurrency: int):
    (found,) = (row for row in evidence.comparisons if (row.quantity, row.load.concurrency) == (quantity, concurrency))
    return found


def test_eight_gpus_against_four_are_refused_unless_told(legs, evidence) -> None:
    found = build_evidence(legs, "campaign")
    assert found.refused == ["other GPUs: 8 (pd8-r1) against 4 (tp4-r1)"]
    assert found.comparisons == [] and found.advice == []
    assert [doubt.seen for doubt in evidence.doubts if doubt.id == "unlike"] == found.refused


def test_pd_is_prefill_bound_at_64(evidence) -> None:
    bounds = {(cell.arm, cell.load.concurrency): cell.bound for cell in evidence.cells}
    assert bounds["pd8", 64] == "prefill-bound"
    assert bounds["pd8", 16] == bounds["tp4", 64] == "cannot say"


@pytest.mark.parametrize(("load", "gain"), [(16, 1.69), (64, 2.75)])
def test_tpot_is_1_69_and_2_75_times_better(evidence, load: int, gain: float) -> None:
    found = compared(evidence, "tpot_ms.mean", load)
    assert 1 / found.ratio == pytest.approx(gain, abs=0.005)
    assert found.claim == "cannot support a claim"


def test_throughput_is_24_percent_lower_and_62_percent_per_gpu(evidence) -> None:
    assert 1 - compared(evidence, "output_tok_s", 64).ratio == pytest.approx(0.24, abs=0.005)
    assert 1 - compared(evidence, "output_tok_s_per_gpu", 64).ratio == pytest.approx(0.62, abs=0.005)


def test_the_verdict_tells_both_effects_and_that_one_run_is_a_lead(evidence) -> None:
    (found,) = evidence.verdicts
    assert found.answer == "cannot tell" and found.repeats == 1
    assert "pd8 answers 2.75 times faster per token than tp4 (32 against 88 ms" in found.sentence
    assert "serves 62 % fewer tokens than tp4 (48.18 against 127.2 output tok/s and GPU" in found.sentence
    assert "one run of each has no spread: this is a lead" in found.sentence
    assert "`pdlab bench -i inventory/gpu --arms pd8,tp4 --workload campaign --repeats 5`" in found.next_measurement


def test_advice_has_numbers(evidence) -> None:
    advice = {row.id: row for row in evidence.advice}
    more = advice["one_prefill_more"]
    assert (more.arm, more.low, more.high) == ("pd8", 1, 2) and more.guess == pytest.approx(1.39, abs=0.01)
    assert "measure longer outputs at this load first" in more.words
    assert "one_decode_more" not in advice
    feed = advice["prefill_servers"]
    assert (feed.low, feed.high) == pytest.approx((1, 5.3), abs=0.05)
    two = advice["copies"]
    assert two.arm == "tp4" and (two.low, two.high) == pytest.approx((558, 1018))
    even = advice["breakeven_output_len"]
    assert (even.low, even.high) == pytest.approx((52, 97), abs=0.5)


def test_what_the_numbers_cannot_support_is_flagged(evidence) -> None:
    at = {}
    for doubt in evidence.doubts:
        at.setdefault(doubt.id, []).append((doubt.where, doubt.seen))
    assert len(at["one_run"]) == len(at["uniform_lengths"]) == 6
    assert ("campaign, 1 request at once, pd8", "8 prompts") in at["few_prompts"]
    assert [where for where, _seen in at["not_steady"]] == ["campaign, 64 requests at once, pd8"]
    assert len(at["no_ttft"]) == 4


def test_advice_on_h200s_names_a_second_prefill_server_and_no_copies_of_arms_on_all_gpus(tmp_path) -> None:
    advice = build_evidence(legs_of(h200_run(tmp_path)), "h200").advice
    assert {row.id for row in advice} == {"one_prefill_more", "prefill_servers", "breakeven_output_len"}
    assert {row.workload for row in advice} == {"long-input"}
    (feed,) = (row for row in advice if row.id == "prefill_servers")
    assert feed.low == feed.high == pytest.approx(2.8, abs=0.05)
