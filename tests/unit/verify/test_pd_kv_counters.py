# SPDX-License-Identifier: Apache-2.0
"""KV-transfer counters: bytes must move, failures must not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import kv_metrics
from ansible_collections.pdlab.pdlab.plugins.modules import pd_kv_counters

from tests.unit.verify.module_runner import run_module
from tests.unit.verify.stack import Stack

Capture = pytest.CaptureFixture[str]


def read(stack: Stack, capsys: Capture, before: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return run_module(pd_kv_counters, capsys, {"workers": stack.servers(), "before": before, **more})


def test_the_first_reading_is_a_snapshot_and_judges_nothing(stack: Stack, capsys: Capture) -> None:
    result = read(stack, capsys)
    assert (result["failed"], result["ok"], result["before"]) == (False, True, {})
    assert result["after"]["prefill-0"][kv_metrics.REQUESTS_METRIC] == 4.0
    assert set(result["after"]) == {"prefill-0", "decode-0"}


def test_bytes_are_whole_mebibytes_of_the_engine_turned_into_bytes(stack: Stack, capsys: Capture) -> None:
    before = read(stack, capsys)["after"]
    stack.transfers += 3
    result = read(stack, capsys, before)
    assert result["ok"], result["why"]
    assert (result["bytes"], result["requests"], result["failed_requests"]) == (3 * 65536, 3, 0)
    assert result["metrics"]["bytes"] == "sglang:kv_transfer_total_mb_sum"
    assert result["before"] == before


def test_the_engines_own_numbers_give_one_kibibyte_a_token() -> None:
    # 46 prompt tokens on two layers of two heads of 64, keys and values, two bytes each: recorded from the engine.
    after = {"p": {kv_metrics.BYTES_METRIC: 0.044921875, kv_metrics.REQUESTS_METRIC: 4.0}}
    assert kv_metrics.movement({}, after).bytes == 46 * 1024


def test_counters_that_do_not_move_fail(stack: Stack, capsys: Capture) -> None:
    result = read(stack, capsys, read(stack, capsys)["after"])
    assert result["failed"] is True
    assert result["ok"] is False
    assert (result["bytes"], "No KV cache moved" in result["why"]) == (0, True)


def test_failures_are_counted_over_all_workers_and_kinds(stack: Stack, capsys: Capture) -> None:
    before = read(stack, capsys)["after"]
    stack.transfers += 1
    stack.failed += 2
    page = stack.decode.routes["GET /metrics"]
    assert not callable(page)
    stack.decode.routes["GET /metrics"] = (200, page[1] + 'sglang:num_bootstrap_failed_reqs_total{tp_rank="0"} 3\n')
    result = read(stack, capsys, before)
    assert (result["ok"], result["failed_requests"]) == (False, 5)
    assert "5 KV transfers failed" in result["why"]


def test_failures_of_before_do_not_count(stack: Stack, capsys: Capture) -> None:
    stack.failed = 7
    before = read(stack, capsys)["after"]
    stack.transfers += 1
    assert read(stack, capsys, before)["ok"] is True


def test_a_worker_that_was_restarted_counts_from_zero_and_is_named(stack: Stack, capsys: Capture) -> None:
    before = read(stack, capsys)["after"]
    stack.transfers = 2
    result = read(stack, capsys, before)
    assert result["ok"] is True
    assert (result["requests"], "prefill-0" in result["why"]) == (2, True)


def test_a_worker_that_cannot_be_read_fails_with_its_name(stack: Stack, capsys: Capture) -> None:
    stack.decode.close()
    result = read(stack, capsys)
    assert result["ok"] is False
    assert "decode-0" in result["why"]


def test_a_page_without_engine_metrics_names_the_flag(stack: Stack, capsys: Capture) -> None:
    stack.prefill.routes["GET /metrics"] = (200, "# nothing\nprocess_cpu_seconds_total 1\n")
    assert "--enable-metrics" in read(stack, capsys)["why"]


def test_colocated_servers_have_no_transfer_to_count(stack: Stack, capsys: Capture) -> None:
    workers = [{**stack.servers()[0], "role": "colocated"}]
    result = read(stack, capsys, {"x": {}}, workers=workers)
    assert (result["ok"], result["applicable"], result["bytes"]) == (True, False, 0)
    assert "Not applicable" in result["why"]


def test_a_worker_without_a_url_is_refused(capsys: Capture) -> None:
    result = run_module(pd_kv_counters, capsys, {"workers": [{"name": "a"}]})
    assert "workers[0]: role missing" in result["msg"] and "workers[0]: url missing" in result["msg"]


def test_check_mode_reads_nothing(stack: Stack, capsys: Capture) -> None:
    assert run_module(pd_kv_counters, capsys, {"workers": stack.servers()}, check=True)["skipped"]
    assert not stack.prefill.requests


def test_where_nothing_can_be_asked_random_prompts_are_sent_and_counted(stack: Stack, capsys: Capture) -> None:
    sent = []

    def generate(body: Any) -> tuple[int, Any]:
        sent.append(body["input_ids"])
        stack.transfers += 1
        return 200, {"text": "", "output_ids": [1, 2]}

    stack.router.routes["POST /generate"] = generate
    ask = {"url": stack.router.url, "count": 3, "tokens": 64}
    result = read(stack, capsys, ask=ask)
    assert result["ok"], result["why"]
    assert (result["requests"], result["bytes"], [len(ids) for ids in sent]) == (3, 3 * 65536, [64, 64, 64])
    assert len({tuple(ids) for ids in sent}) == 3


def test_a_prompt_that_is_not_answered_fails_with_its_number(stack: Stack, capsys: Capture) -> None:
    stack.router.routes["POST /generate"] = (503, {"error": "no worker"})
    result = read(stack, capsys, ask={"url": stack.router.url, "count": 3, "tokens": 64})
    assert result["ok"] is False
    assert "Prompt 1 of 3" in result["why"]
