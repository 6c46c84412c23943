# SPDX-License-Identifier: Apache-2.0
"""What makes a point doubtful, each planted alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_checks

from tests.unit.bench.recorded import GOOD_POINT, output

CONDUCTED: dict[str, Any] = {
    "unread": [],
    "pairs": {"pairs": 2, "touched": 2, "faults": []},
    "warmup": {"requests": 4, "concurrency": 4, "answered": 4, "faults": []},
    "flush": [],
    "start": {"prefill-0": {}},
    "go": 1.0,
    "end": {"prefill-0": {}},
}
WATCHED: dict[str, Any] = {
    "engine": {
        "prompt_tokens": 12 * 64.0,
        "generation_tokens": 12 * 32.0,
        "cached_tokens": 0.0,
        "kv_transfer_failures": 0.0,
    },
    "client": {"window_s": None, "cpu_share": 0.2, "loop_lag_ms": {"n": 9, "mean": 0.6, "p99": 2.0, "max": 9.0}},
}
COLD = {"cached_tokens": [0] * 12}


def judged(
    conducted: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
    point: Mapping[str, Any] | None = None,
    **said: Any,
) -> dict[str, dict[str, Any]]:
    """The checks that failed, by id."""
    watched = {
        "engine": {**WATCHED["engine"], **(engine or {})},
        "client": {**WATCHED["client"], **(client or {})},
    }
    whole = {**output("good"), **COLD, **said}
    checks = bench_checks.judge({**GOOD_POINT, **(point or {})}, whole, {**CONDUCTED, **(conducted or {})}, watched)
    return {check["id"]: check for check in checks if not check["ok"]}


def test_a_sound_point_raises_no_doubt() -> None:
    assert judged() == {}


SLOW = {"n": 9, "mean": 400.0, "p99": 900.0, "max": 990.0}
LATE_CLIENT = {"loop_lag_ms": SLOW}


@pytest.mark.parametrize(
    ("changes", "fault", "words"),
    [
        (
            {"conducted": {"pairs": {"pairs": 2, "touched": 1, "faults": ["x: no"]}}},
            "warmup_incomplete",
            "1 of 2 pairs",
        ),
        ({"conducted": {"pairs": {}}}, "warmup_incomplete", "0 of 0 pairs"),
        (
            {"conducted": {"warmup": {"requests": 4, "concurrency": 4, "answered": 3, "faults": ["HTTP 503"]}}},
            "warmup_incomplete",
            "3 of 4 requests at concurrency 4: HTTP 503",
        ),
        ({"conducted": {"flush": ["decode-0: HTTP 400"]}}, "cache_not_flushed", "decode-0: HTTP 400"),
        ({"engine": {"cached_tokens": 64.0}}, "cache_warm", "64 of 768 input tokens"),
        ({"cached_tokens": [48, *([0] * 11)]}, "cache_warm", "48 of 768 input tokens"),
        ({"conducted": {"unread": ["decode-0"]}}, "engine_not_read", "decode-0 had no metrics"),
        ({"engine": {"prompt_tokens": 12 * 64.0 - 1}}, "tokens_missing", "767 of 768 input tokens"),
        ({"engine": {"generation_tokens": 383.0}}, "tokens_missing", "383 of 384 output tokens"),
        ({"engine": {"prompt_tokens": 12 * 64.0 + 64}}, "foreign_load", "832 of 768 input tokens"),
        ({"engine": {"kv_transfer_failures": 1.0}}, "kv_transfer_failed", "1"),
        ({"client": {"cpu_share": 0.93}}, "client_slow", "93% of a core"),
        ({"client": LATE_CLIENT}, "client_slow", "400.0 ms late on average"),
        ({"client": {"cpu_share": None}}, "client_slow", "not seen"),
        ({"client": {"window_s": 30.0}}, "loop_not_full", "with a full loop (-"),
        ({"point": {"concurrency": 2}}, "loop_not_full", "with a full loop (+"),
    ],
)
def test_each_doubt_is_found_by_its_own_check(changes: dict[str, Any], fault: str, words: str) -> None:
    found = judged(**changes)
    assert list(found) == [fault]
    assert words in found[fault]["seen"]
    assert found[fault]["grade"] == ("fault" if fault == "tokens_missing" else "doubt")


def test_a_few_tokens_more_than_asked_are_a_routers_health_checks() -> None:
    assert judged(engine={"prompt_tokens": 12 * 64.0 + 3, "generation_tokens": 12 * 32.0 + 3}) == {}


def test_a_few_tokens_from_a_cache_are_chance() -> None:
    assert judged(engine={"cached_tokens": 3.0}) == {}


def test_prompts_that_share_prefixes_want_the_cache() -> None:
    shared = {"dataset": "shared-prefix"}
    assert list(judged(point=shared)) == ["cache_unused"]
    assert judged(point=shared, engine={"cached_tokens": 400.0}) == {}


def test_drawn_lengths_are_held_to_what_was_drawn() -> None:
    drawn = {"input_lens": [10] * 12, "output_lens": [8] * 12}
    assert judged(point={"range_ratio": 0.0}, engine={"prompt_tokens": 120.0, "generation_tokens": 96.0}, **drawn) == {}
    assert list(
        judged(point={"range_ratio": 0.0}, engine={"prompt_tokens": 120.0, "generation_tokens": 90.0}, **drawn)
    ) == ["tokens_missing"]


def test_an_open_loop_is_held_to_its_arrivals_and_not_to_a_limit() -> None:
    whole = output("good")
    many = {name: whole[name] * 5 for name in ("ttfts", "itls", "errors", "input_lens", "output_lens")}
    point = {"loop": "open", "concurrency": None, "rate_s": 60 / whole["duration"], "prompts": 60}
    engine = {"prompt_tokens": 60 * 64.0, "generation_tokens": 60 * 32.0}
    assert judged(point=point, engine=engine, client={"window_s": whole["duration"]}, **many) == {}
    found = judged(point=point, engine=engine, client={"window_s": whole["duration"] * 10}, **many)
    assert list(found) == ["arrivals_off"]


def test_a_point_that_was_ended_early_gets_no_doubts_on_top() -> None:
    assert bench_checks.judge(GOOD_POINT, None, {}, {}) == []
    assert bench_checks.judge(GOOD_POINT, output("good"), {"go": 1.0, "start": {}}, {}) == []
