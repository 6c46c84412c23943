# SPDX-License-Identifier: Apache-2.0
"""What is read of recorded pages (sglang 0.5.23, sglang-router 0.3.2), and what it becomes in a record."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_metrics

PAGES = Path(__file__).parents[1] / "data" / "metrics"
PD = [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}]


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text()


def test_a_prefill_servers_page_tells_queues_tokens_and_transfers() -> None:
    read = engine_metrics.read_engine(page("prefill"))
    assert read is not None
    assert {*engine_metrics.QUEUES, *engine_metrics.SHARES, *engine_metrics.SIZES, *engine_metrics.COUNTERS} == set(
        read
    )
    # Summed over streamed and other requests: 42 + 8.
    assert read["prompt_tokens_total"] == 50 and read["num_requests_total"] == 5 and read["cached_tokens_total"] == 10
    assert read["kv_transfer_total_mb_count"] == 4 and read["num_transfer_failed_reqs_total"] == 0


def test_a_decode_servers_page_has_no_transfers_and_they_are_0() -> None:
    read = engine_metrics.read_engine(page("decode"))
    assert read is not None and read["kv_transfer_total_mb_count"] == 0 and read["generation_tokens_total"] == 23


def test_the_routers_page_tells_its_workers_and_requests() -> None:
    read = engine_metrics.read_router(page("router"))
    assert read is not None and set(read) == set(engine_metrics.ROUTER)
    assert read["worker_health"] == 2


def test_what_is_no_metrics_page_is_not_read_as_zeros() -> None:
    assert engine_metrics.read_engine("<html>") is None and engine_metrics.read_router("") is None
    assert engine_metrics.read_engine("# HELP x\nother_metric 1\n") is None


def test_ranks_are_summed_and_shares_are_averaged_and_nan_is_left_out() -> None:
    text = "\n".join(
        f'sglang:{name}{{dp_rank="{rank}"}} {value}'
        for rank in (0, 1)
        for name, value in (("num_running_reqs", 3.0), ("token_usage", 0.2 + 0.4 * rank), ("num_queue_reqs", "NaN"))
    )
    read = engine_metrics.read_engine(text)
    assert read is not None and read["num_running_reqs"] == 6 and read["token_usage"] == pytest.approx(0.4)
    assert "num_queue_reqs" not in read


def test_counters_are_held_against_the_earlier_ones_and_a_restart_counts_from_0() -> None:
    before = {"p": {"prompt_tokens_total": 50.0}, "d": {"prompt_tokens_total": 90.0}}
    after = {"p": {"prompt_tokens_total": 70.0}, "d": {"prompt_tokens_total": 5.0}}
    gained = engine_metrics.gained(before, after)
    assert gained["p"]["prompt_tokens_total"] == 20 and gained["d"]["prompt_tokens_total"] == 5


def sample(prefill: dict[str, float], decode: dict[str, float]) -> dict[str, object]:
    queues = dict.fromkeys((*engine_metrics.QUEUES, "token_usage"), 0.0)
    return {"servers": {"p": {**queues, **prefill}, "d": {**queues, **decode}}}


def test_a_points_figures_take_each_queue_from_the_role_that_has_it() -> None:
    samples = [
        sample({"num_queue_reqs": 4, "num_running_reqs": 99}, {"num_running_reqs": 8, "token_usage": 0.2}),
        sample({"num_queue_reqs": 6, "num_running_reqs": 99}, {"num_running_reqs": 12, "token_usage": 0.4}),
    ] * 3
    zero = dict.fromkeys(engine_metrics.COUNTERS, 0.0)
    counted = {
        "p": {
            **zero,
            "prompt_tokens_total": 640.0,
            "kv_transfer_latency_ms_sum": 90.0,
            "kv_transfer_latency_ms_count": 10.0,
            "kv_transfer_total_mb_sum": 2.0,
            "kv_transfer_total_mb_count": 10.0,
        },
        "d": {**zero, "prompt_tokens_total": 640.0, "generation_tokens_total": 320.0, "max_total_num_tokens": 65536.0},
    }
    figures = engine_metrics.figures(samples, {"p": zero, "d": zero}, counted, PD, 4096.0)
    assert (figures["prefill_waiting"], figures["decode_running"], figures["token_usage"]) == (5, 10, 0.3)
    assert (figures["kv_transfer_ms"], figures["kv_transfer_bytes"], figures["kv_transfers"]) == (9, 2 * 2**20, 10)
    # Prefill counts a token of each answer, too, and decode each prompt: neither is counted twice.
    assert (figures["prompt_tokens"], figures["generation_tokens"]) == (640, 320)
    assert (figures["samples"], figures["decode_places"], figures["pool_tokens"]) == (6, 4096, 65536)


def test_a_colocated_server_plays_both_parts() -> None:
    workers = [{"name": "p", "role": "colocated"}, {"name": "d", "role": "colocated"}]
    figures = engine_metrics.figures([sample({"num_running_reqs": 3}, {"num_running_reqs": 5})] * 5, {}, {}, workers)
    assert figures["decode_running"] == 8 and figures["kv_transfers"] is None


def test_a_point_without_a_sample_has_no_means_and_keeps_what_was_counted() -> None:
    figures = engine_metrics.figures([], {"p": {"prompt_tokens_total": 2.0}}, {"p": {"prompt_tokens_total": 7.0}}, PD)
    assert figures["decode_running"] is None and figures["prompt_tokens"] == 5 and figures["kv_transfer_ms"] is None


def test_a_server_that_could_not_be_read_leaves_its_queues_unknown() -> None:
    broken = {"servers": {"d": dict.fromkeys((*engine_metrics.QUEUES, "token_usage"), 1.0)}}
    figures = engine_metrics.figures([broken] * 5, {}, {}, PD)
    assert figures["prefill_waiting"] is None and figures["decode_running"] == 1


def test_a_mean_of_a_few_samples_is_no_mean() -> None:
    figures = engine_metrics.figures([sample({}, {"num_running_reqs": 5})] * 4, {}, {}, PD)
    assert figures["decode_running"] is None and figures["samples"] == 4
