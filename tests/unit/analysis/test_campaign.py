# SPDX-License-Identifier: Apache-2.0
"""The campaign's own numbers lead to its conclusions, with figures, and what they cannot support is flagged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdlab.analysis.advice import (
    breakeven_output_len,
    copies,
    one_server_more,
    prefill_to_feed_decode,
    tok_s_per_gpu,
)
from pdlab.analysis.bounds import context_of, name_bound
from pdlab.analysis.closed_loop import model_of
from pdlab.analysis.comparison import compare
from pdlab.analysis.measurement import KvFacts
from pdlab.analysis.support import unlike
from pdlab.analysis.sweep import analyse
from tests.unit.analysis.points import campaign

PD, TP4 = campaign()["pd"], campaign()["tp4"]


def analysed(arm: str = "pd"):
    found = next(one for one in analyse([*PD.values(), *TP4.values()]) if one.arm == arm)
    return found, {int(one.point.concurrency): one for one in found.points}


def test_pd_is_prefill_bound_at_64_and_the_evidence_says_why() -> None:
    _arm, points = analysed()
    verdict = points[64].verdict
    assert verdict.name == "prefill-bound"
    evidence = {item.name: item for item in verdict.of("prefill-bound")}
    assert evidence["queue_share"].value == pytest.approx(0.97, abs=0.01)
    assert evidence["prompt_use"].value == pytest.approx(0.92, abs=0.01)
    assert evidence["before_first_token"].value == pytest.approx(0.73, abs=0.01)
    # It is not all one way: the rate still grew by 17 % with each doubling from 16 to 64.
    assert evidence["flat"].side == "against" and evidence["flat"].value == pytest.approx(0.17, abs=0.01)
    assert evidence["prefill_queue"].side == "not seen"


def test_the_name_rests_on_what_the_kv_path_can_carry_at_least_and_without_that_it_cannot_say() -> None:
    bare = [replace(one, kv=KvFacts()) for one in PD.values()]
    verdict = name_bound(bare[-1], context_of(bare[-1], bare))
    assert verdict.name == "cannot say"
    assert "tells a queue for prefill from one for the KV transfer" in verdict.words
    assert "engine's queues" in verdict.settle
    _arm, points = analysed()
    assert any("assumed, not recorded" in flag.seen for flag in points[64].flags)


def test_pd_at_16_has_no_ttft_and_so_no_name() -> None:
    _arm, points = analysed()
    assert points[16].verdict.name == "cannot say"
    assert "no_ttft" in {flag.id for flag in points[16].flags}


@pytest.mark.parametrize(("load", "gain"), [(16, 1.69), (64, 2.75)])
def test_the_tpot_gains_are_the_campaigns_and_one_run_cannot_claim_them(load: int, gain: float) -> None:
    found = compare("TPOT ms", [TP4[load].tpot_ms], [PD[load].tpot_ms])
    assert found.ratio == pytest.approx(gain, abs=0.005)
    assert found.claim == "cannot support a claim"


def test_pd_gives_24_percent_less_throughput_at_64_on_twice_the_gpus_and_one_run_cannot_claim_it() -> None:
    found = compare("output tok/s", [PD[64].output_tok_s], [TP4[64].output_tok_s])
    assert 1 - found.ratio == pytest.approx(0.24, abs=0.005)
    assert found.claim == "cannot support a claim"
    assert [flag.id for flag in unlike(PD[64], TP4[64])] == ["unlike_gpus"]
    assert tok_s_per_gpu(PD[64]) == pytest.approx(48.2, abs=0.1)
    assert tok_s_per_gpu(TP4[64]) == pytest.approx(127.3, abs=0.1)


def test_decodes_capacity_lies_between_what_ran_and_the_naive_2000_and_the_fit_does_not_reach() -> None:
    _arm, points = analysed()
    capacity = points[64].capacity
    assert capacity.naive_tok_s == pytest.approx(2000)
    assert capacity.ran_tok_s == pytest.approx(379, abs=1)
    assert capacity.fitted_tok_s is None and "measured from 0.83" in capacity.refused
    assert 500 < capacity.extrapolated_tok_s < 650
    assert "12.1 did on average" in capacity.why_naive_misleads


def test_pd_is_for_long_outputs_from_a_length_between_52_and_97_tokens() -> None:
    found = breakeven_output_len(PD[64], TP4[64])
    assert (found.low, found.high) == pytest.approx((52, 97), abs=0.5)
    assert "was not recorded" in found.words


def test_two_data_parallel_servers_are_for_short_output_throughput() -> None:
    found = copies(list(TP4.values()), 2, 64)
    assert (found.low, found.high) == pytest.approx((558, 1018))
    assert found.low > 1.4 * PD[64].output_tok_s


def test_a_second_prefill_server_is_advised_with_a_number_and_a_second_decode_server_is_not() -> None:
    arm, _points = analysed()
    fit = arm.fitted.prefill_fit
    model = model_of(fit.latency, fit.service, arm.fitted.tpot, PD[64].input_len, 1, 1)
    prefill = one_server_more(PD[64], model, arm.fitted.tpot, "prefill")
    assert (prefill.low, prefill.high) == (1.0, 2.0)
    assert prefill.guess == pytest.approx(1.39, abs=0.02)
    assert "385 to at most 771 output tok/s" in prefill.words
    assert "measure longer outputs at this load first" in prefill.words
    decode = one_server_more(PD[64], model, arm.fitted.tpot, "decode")
    assert decode.guess == pytest.approx(1.0, abs=0.001)
    feed = prefill_to_feed_decode(PD[64], arm.fitted.tpot)
    assert (feed.low, feed.high) == pytest.approx((1, 5.3), abs=0.05)


def test_what_the_numbers_cannot_support_is_flagged() -> None:
    for arm in ("pd", "tp4"):
        _arm, points = analysed(arm)
        for load, one in points.items():
            ids = {flag.id for flag in one.flags}
            assert {"one_run", "uniform_lengths", "few_prompts"} <= ids, (arm, load)
    _arm, points = analysed()
    flags = {flag.id: flag for flag in points[1].flags}
    assert flags["few_prompts"].seen == "8 prompts"
    assert flags["no_percentiles"].seen == "8 requests"
    assert "not_steady" in {flag.id for flag in points[64].flags}
    assert points[64].little.in_flight == pytest.approx(44.4, abs=0.1)
