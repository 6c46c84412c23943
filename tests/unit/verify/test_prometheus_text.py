# SPDX-License-Identifier: Apache-2.0
"""Reading /metrics pages."""

from __future__ import annotations

import math

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.prometheus_text import Sample, parse, total
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.verify.replay_server import recorded


def test_the_engines_own_page_is_read() -> None:
    samples = parse(recorded("metrics-prefill.txt"))
    assert total(samples, "sglang:kv_transfer_total_mb_count") == 4.0
    assert total(samples, "sglang:kv_transfer_total_mb_sum") == pytest.approx(0.044921875)
    labels = next(s.labels for s in samples if s.name == "sglang:kv_transfer_total_mb_sum")
    assert labels["engine_type"] == "prefill"


def test_values_are_summed_over_labels() -> None:
    samples = parse('a{tp_rank="0"} 1\na{tp_rank="1"} 2.5\na_total 9\n')
    assert total(samples, "a") == 3.5


def test_a_metric_that_is_not_there_is_none_and_not_zero() -> None:
    assert total(parse("a 0\n"), "a") == 0.0
    assert total(parse("a 0\n"), "b") is None


def test_escapes_time_stamps_and_special_values_are_read() -> None:
    text = 'a{x="q\\"uo}te\\\\",y="new\\nline",} 1e3 1700000000000\nb{} +Inf\nc NaN\n'
    first, second, third = parse(text)
    assert first == Sample("a", {"x": 'q"uo}te\\', "y": "new\nline"}, 1000.0)
    assert second.value == math.inf
    assert math.isnan(third.value)


def test_what_is_no_sample_is_left_out() -> None:
    assert parse('# HELP a b\n# TYPE a counter\n\n<html>nope</html>\na one\n{x="1"} 2\n') == []


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    parse(text)


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), st.text(max_size=8), max_size=3))
def test_labels_survive_escaping(labels: dict[str, str]) -> None:
    # splitlines() also splits at characters that the format has no escape for; exporters do not emit them.
    labels = {k: "".join(c for c in v if c == "\n" or len(f"a{c}a".splitlines()) == 1) for k, v in labels.items()}
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    line = "m{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "} 1"
    assert parse(line) == [Sample("m", labels, 1.0)]
