# SPDX-License-Identifier: Apache-2.0
"""Figures and command lines as a person reads them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.report import formatting


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "n/a"), (0.0, "0.00"), (14.956, "14.96"), (182.54, "182.5"), (5391.2, "5,391"), (28000, "28,000")],
)
def test_a_figure_keeps_the_digits_that_matter(value: float | None, shown: str) -> None:
    assert formatting.ms(value) == shown
    assert formatting.tok_s(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "n/a"), (0.84, "0.8 s"), (99.96, "1 min 40 s"), (108.4, "1 min 48 s"), (3840, "1 h 4 min")],
)
def test_a_duration_reads_well(value: float | None, shown: str) -> None:
    assert formatting.seconds(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(None, "n/a"), (0, "0 B"), (912_384, "891.0 KiB"), (2**41, "2.0 TiB")])
def test_bytes_are_in_binary_units(value: int | None, shown: str) -> None:
    assert formatting.size(value) == shown


@given(
    st.lists(st.text(min_size=1).filter(lambda item: not item.startswith("--") and "\0" not in item), min_size=1),
    st.dictionaries(st.sampled_from(["A", "PATH", "LANG"]), st.text().filter(lambda item: "\0" not in item)),
)
def test_a_copied_command_line_is_the_same_command(argv: list[str], environment: dict[str, str]) -> None:
    shown = formatting.shell_block([*argv, "--port", "1", "--flag"], environment)
    wanted = [*argv, "--port", "1", "--flag"]
    if environment:
        wanted = ["env", "-i", *(f"{key}={value}" for key, value in sorted(environment.items())), *wanted]
    assert shlex.split(shown.replace(" \\\n  ", " ")) == wanted or "\\\n" in "".join([*argv, *environment.values()])


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["x", "--api-key", "s3", "--port", "1"], ["x", "--api-key", "(hidden)", "--port", "1"]),
        (["x", "--admin-api-key=s3"], ["x", "--admin-api-key=(hidden)"]),
        (["x", "--max-total-tokens", "65536"], ["x", "--max-total-tokens", "65536"]),
        (["x", "--tokenizer-path", "/m"], ["x", "--tokenizer-path", "/m"]),
        (["x", "--skip-tokenizer-init"], ["x", "--skip-tokenizer-init"]),
        (["x", "-e", "hf_token=s3"], ["x", "-e", "hf_token=(hidden)"]),
        (["x", "--extra-vars", "port=1"], ["x", "--extra-vars", "port=1"]),
        (["x", "-e", '{"api_key": "s\\"3", "a": "b"}'], ["x", "-e", '{"api_key": "(hidden)", "a": "b"}']),
    ],
)
def test_secrets_are_hidden_and_token_counts_are_not(argv: list[str], shown: list[str]) -> None:
    assert formatting.without_secrets(argv) == shown


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SGLANG_API_KEY", "DB_PASSWORD"])
def test_environment_values_that_look_like_secrets_are_hidden(name: str) -> None:
    assert "s3cr3t" not in formatting.shell_block(["x"], {name: "s3cr3t"})


def test_a_model_with_random_weights_is_called_so() -> None:
    plan = {"model": {"served_name": "m8b", "weights": "dummy"}}
    assert formatting.model_name(plan) == "m8b (random weights)"
    assert formatting.model_name({"model": {"served_name": "m8b"}}) == "m8b"
    assert formatting.model_name(None) is None


@pytest.mark.parametrize(
    ("value", "shown"), [(0.004, "0.0040"), (0.0000123, "0.000012"), (0.5, "0.50"), (-0.004, "-0.0040")]
)
def test_a_small_figure_is_not_shown_as_none(value: float, shown: str) -> None:
    assert formatting.tok_s(value) == shown
    assert float(formatting.rounded(value)) == pytest.approx(value, rel=0.05)
