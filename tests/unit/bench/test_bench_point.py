# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_point, bench_progress
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bench.recorded import GOOD_POINT, KILLED_POINT, WELL_ENDED, log, output, output_text


def failed(checks: list[dict[str, Any]]) -> set[str]:
    return {check["id"] for check in checks if not check["ok"]}


def judged(**changes: Any) -> set[str]:
    """The faults found in the good recording after `changes` to the client's object."""
    return failed(bench_point.judge(GOOD_POINT, {**output("good"), **changes}, WELL_ENDED))


def test_a_real_point_whose_requests_all_came_back_counts() -> None:
    asked = bench_progress.asked_tokens(log("good"))
    checks = bench_point.judge(GOOD_POINT, output("good"), WELL_ENDED, asked=asked)
    assert failed(checks) == set()
    record = bench_point.record(GOOD_POINT, output("good"), WELL_ENDED, checks)
    assert record["ok"] and record["why"] == [] and record["error_lines"] == []
    assert (record["requested"], record["completed"]) == (12, 12)
    assert record["result"]["output_throughput"] == output("good")["output_throughput"]


def test_the_result_keeps_every_field_of_the_client_but_those_per_request() -> None:
    whole = output("good")
    kept = bench_point.figures(whole)
    assert set(whole) - set(kept) == {*bench_point.PER_REQUEST, "server_info"}
    assert not [name for name, value in kept.items() if isinstance(value, list)]


def test_a_record_is_strict_json_although_the_client_writes_infinity() -> None:
    whole = {**output("good"), "mean_tpot_ms": math.nan}
    assert whole["request_rate"] == math.inf
    kept = json.loads(json.dumps(bench_point.figures(whole), allow_nan=False))
    assert kept["request_rate"] == "inf" and kept["mean_tpot_ms"] is None


def test_prefill_killed_in_mid_run_fails_the_point_although_the_client_exited_with_0() -> None:
    checks = bench_point.judge(KILLED_POINT, output("prefill_killed"), WELL_ENDED)
    assert failed(checks) == {
        "requests_missing",
        "request_errors",
        "output_length_wrong",
        "ttft_zero",
        "tokens_without_text",
    }
    record = bench_point.record(KILLED_POINT, output("prefill_killed"), WELL_ENDED, checks)
    assert record["result"] is None
    assert record["completed"] == 8
    assert any("prefill_server_error" in line for line in record["error_lines"])
    assert any(line.startswith("client: 14 × Service Unavailable") for line in record["error_lines"])


def test_requests_that_the_client_calls_successful_without_any_text_are_found() -> None:
    """Three requests of this recording: success, 64 tokens as asked, TTFT 0.0, no text."""
    whole = output("prefill_killed")
    survivors = [i for i, error in enumerate(whole["errors"]) if not error]
    only = {name: [whole[name][i] for i in survivors] for name in bench_point.PER_REQUEST if name in whole}
    point = {**KILLED_POINT, "prompts": len(survivors)}
    checks = bench_point.judge(point, {**whole, **only}, WELL_ENDED)
    assert failed(checks) == {"ttft_zero", "tokens_without_text"}
    assert {check["seen"] for check in checks if not check["ok"]} == {"3 requests"}


def test_a_client_that_was_ended_leaves_no_figure_and_says_how_far_it_had_come() -> None:
    died = [{"name": "prefill-0", "why": "PID 4711 is gone"}]
    job = {"reason": "stopped", "exit_code": -15, "seconds": 90.6}
    came_back = bench_progress.progress(log("prefill_killed_ended"))["done"]
    checks = bench_point.judge(KILLED_POINT, None, job, died, came_back=came_back)
    assert failed(checks) == {"server_died", "client_failed", "no_output"}
    record = bench_point.record(KILLED_POINT, None, job, checks, ["prefill-0: killed"])
    assert record["why"][0].startswith("server_died: prefill-0: PID 4711 is gone")
    assert "none (5 of 24 requests had come back)" in " ".join(record["why"])
    assert record["result"] is None and record["completed"] == 0
    assert record["error_lines"] == ["prefill-0: killed"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"completed": 11}, "requests_missing"),
        ({"errors": ["boom"] + [""] * 11}, "request_errors"),
        ({"output_lens": [32] * 11 + [31]}, "output_length_wrong"),
        ({"input_lens": [64] * 11 + [65]}, "input_length_wrong"),
        ({"ttfts": [0.0] + [0.1] * 11}, "ttft_zero"),
        ({"generated_texts": [""] + ["x"] * 11}, "tokens_without_text"),
        ({"random_input_len": 1024}, "wrong_point"),
        ({"random_range_ratio": 0.0}, "wrong_point"),
        ({"max_concurrency": None}, "wrong_point"),
    ],
)
def test_each_silent_fault_fails_its_own_check(changes: dict[str, Any], fault: str) -> None:
    assert judged(**changes) == {fault}


def test_output_without_the_details_is_no_output() -> None:
    whole = output("good")
    del whole["errors"]
    assert failed(bench_point.judge(GOOD_POINT, whole, WELL_ENDED)) == {"no_output"}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"reason": "exited", "exit_code": 1, "seconds": 3.0}, "exit status 1"),
        ({"reason": "exited", "exit_code": -9, "seconds": 3.0}, "ended by signal 9"),
        ({"reason": "lease", "exit_code": -15, "seconds": 3.0}, "the controller had not asked"),
        ({"reason": "vanished", "exit_code": None, "seconds": None}, "gone without a word"),
        ({"reason": "not started: [Errno 2] no such file", "exit_code": None, "seconds": 0.0}, "no such file"),
    ],
)
def test_a_client_that_did_not_end_well_fails_the_point_and_says_how(job: dict[str, Any], words: str) -> None:
    checks = bench_point.judge(GOOD_POINT, output("good"), job)
    assert failed(checks) == {"client_failed"}
    assert words in bench_point.reasons(checks)[0]


def test_a_point_over_its_time_limit_says_so() -> None:
    job = {"reason": "limit", "exit_code": -15, "seconds": 180.2}
    checks = bench_point.judge(GOOD_POINT, None, job)
    assert "over_time_limit" in failed(checks)
    assert any("180.2 s (wanted: at most 180 s)" in why for why in bench_point.reasons(checks))


def test_uniform_lengths_are_held_to_their_bounds_and_to_what_the_client_drew() -> None:
    point = {**GOOD_POINT, "range_ratio": 0.0}
    lens = [1, 64, *([30] * 10)]
    whole = {**output("good"), "random_range_ratio": 0.0, "input_lens": lens, "output_lens": [9] * 12}
    asked = {"input": sum(lens), "output": 108}
    assert failed(bench_point.judge(point, whole, WELL_ENDED, asked=asked)) == set()
    assert failed(bench_point.judge(point, whole, WELL_ENDED, asked={**asked, "output": 109})) == {
        "output_length_wrong"
    }
    assert failed(bench_point.judge(point, {**whole, "input_lens": [0, *lens[1:]]}, WELL_ENDED)) == {
        "input_length_wrong"
    }


def test_retokenized_drift_is_noted_and_never_fails() -> None:
    (noted,) = (c for c in bench_point.judge(GOOD_POINT, output("good"), WELL_ENDED) if "noted" in c["wanted"])
    assert (noted["id"], noted["seen"], noted["ok"]) == ("retokenized_drift", "399 of 384 tokens (+3.9%)", True)


def test_an_open_loop_is_held_to_its_rate() -> None:
    point = {**GOOD_POINT, "loop": "open", "concurrency": None, "rate_s": 4.0}
    whole = {**output("good"), "max_concurrency": None, "request_rate": 4.0}
    assert failed(bench_point.judge(point, whole, WELL_ENDED)) == set()
    assert failed(bench_point.judge({**point, "rate_s": 5.0}, whole, WELL_ENDED)) == {"wrong_point"}
    assert failed(bench_point.judge(point, output("good"), WELL_ENDED)) == {"wrong_point"}


def test_prompts_that_share_prefixes_are_not_held_to_the_lengths_of_random_ones() -> None:
    point = {**GOOD_POINT, "dataset": "shared-prefix"}
    defaults = {"dataset_name": "generated-shared-prefix", "random_input_len": 1024, "random_range_ratio": 0.0}
    whole = {**output("good"), **defaults}
    assert failed(bench_point.judge(point, whole, WELL_ENDED)) == set()


def test_a_doubt_keeps_the_figures_and_a_fault_does_not() -> None:
    checks = bench_point.judge(GOOD_POINT, output("good"), WELL_ENDED)
    doubt = bench_point.check("client_slow", False, "97% of a core", "at most 80%", bench_point.DOUBT)
    record = bench_point.record(GOOD_POINT, output("good"), WELL_ENDED, [*checks, doubt])
    assert (record["ok"], record["counts"]) == (True, False) and record["result"]
    assert record["why"] == ["client_slow: 97% of a core (wanted: at most 80%)"]
    fault = bench_point.check("tokens_missing", False, "1 of 2", "2 of 2")
    record = bench_point.record(GOOD_POINT, output("good"), WELL_ENDED, [*checks, doubt, fault])
    assert (record["ok"], record["counts"], record["result"]) == (False, False, None)
    assert record["why"][0].startswith("tokens_missing")


def test_the_last_whole_line_of_the_output_file_is_the_result() -> None:
    text = output_text("good")
    assert bench_point.read_output('{"completed": 1}\n' + text) == output("good")
    assert bench_point.read_output(text[: len(text) // 2]) is None
    assert bench_point.read_output("") is None
    assert bench_point.read_output("[1]\n") is None


def test_the_clients_log_of_a_good_run_tells_of_no_fault() -> None:
    assert bench_point.client_log_errors(log("good"), 20) == []


def test_the_same_exception_of_many_requests_is_told_once_with_its_last_line() -> None:
    printed = (
        "output.error='Traceback (most recent call last):\\n  File \"x\", line 1\\naiohttp.ClientError: closed\\n'\n"
    )
    assert bench_point.client_log_errors(printed * 3, 20) == ["3 × aiohttp.ClientError: closed"]


@given(st.integers(1, 512), st.floats(0.0, 1.0), st.data())
def test_any_length_that_the_client_may_draw_is_accepted(full: int, ratio: float, data: st.DataObject) -> None:
    """The client draws from randint(max(int(full * ratio), 1), full + 1), upper bound excluded."""
    lens = data.draw(st.lists(st.integers(max(int(full * ratio), 1), full), min_size=12, max_size=12))
    point = {**GOOD_POINT, "output_len": full, "range_ratio": ratio}
    whole = {**output("good"), "random_output_len": full, "random_range_ratio": ratio, "output_lens": lens}
    assert "output_length_wrong" not in failed(bench_point.judge(point, whole, WELL_ENDED))
