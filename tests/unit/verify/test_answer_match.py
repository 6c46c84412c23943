# SPDX-License-Identifier: Apache-2.0
"""What passes for the expected answer, and what never does."""

from __future__ import annotations

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.answer_match import match, numbers
from hypothesis import assume, given
from hypothesis import strategies as st

PRIMES = "2, 3, 5, 7, 11"


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("391", "391"),
        ("391", " 391\n"),
        ("391", "The answer is 391."),
        ("391", "**391**"),
        ("391", "= 391!"),
        ("391", "$391"),
        ("391", "391.That is it"),
        ("391", "391.0"),
        ("1391", "1,391"),
        ("1391", "1\u202f391"),
        ("1391", "1_391"),
        ("12345678.5", "12,345,678.5"),
        (PRIMES, "2,3,5,7,11"),
        (PRIMES, "2, 3, 5, 7 and 11"),
        (PRIMES, "2, 3, 5, 7, and 11."),
        (PRIMES, "2\n3\n5\n7\n11"),
        (PRIMES, "The first five prime numbers are 2, 3, 5, 7, 11."),
        ("Paris", "paris"),
        ("Paris", "PARIS!"),
        ("Paris", "The capital of France is **Paris**."),
        ("New York", "new-york"),
        ("H2O", "It is h2o."),
        ("São Paulo", "sa\u0303o paulo"),
        ("not 391", "it is not 391"),
        ("-391", "It is -391."),
    ],
)
def test_another_form_of_the_right_answer_passes(expected: str, got: str) -> None:
    assert match(expected, got) == (True, None)


@pytest.mark.parametrize(
    "got",
    [
        "",
        "...",
        "3910",
        "1391",
        "-391",
        "- 391",
        "\u2212391",
        "\u2013391",
        "391.5",
        "391,5",
        "39 1",
        "39\u200b1",
        "3,91",
        "0,391",
        "0391",
        ".391",
        "391,000",
        "391.000",
        "1.391",
        "391px",
        "x391",
        "391e2",
        "391%",
        "391/2",
        "391\u00b2",
        "39\u00b9",
        "391\u00bd",
        "\uff13\uff19\uff11",
        "not 391",
        "it isn't 391",
        "it isn\u2019t 391",
        "391 is wrong",
        "391 or 392",
        "391 and 391",
        "391 thousand",
        "minus 391",
        "391 plus one",
        "391 and seven",
        "17*23=391",
        "three hundred ninety-one",
    ],
)
def test_another_number_than_391_does_not_pass(got: str) -> None:
    verdict = match("391", got)
    assert not verdict.ok
    assert verdict.why


@pytest.mark.parametrize(
    "got",
    [
        "2, 3, 5, 7",
        "2, 3, 5, 7, 11, 13",
        "2, 3, 5, 7, 11 and thirteen",
        "1, 2, 3, 5, 7, 11",
        "2, 3, 5, 11, 7",
        "11, 7, 5, 3, 2",
        "2, 3, 5, 7.11",
        "2, 3, 5, 7 or 11",
        "2 + 3 + 5 + 7 + 11",
        "2=3=5=7=11",
        "2, 3, 5, 7, -11",
        "235711",
        "2, 3, 5, then after a while 7, 11",
    ],
)
def test_another_list_of_primes_does_not_pass(got: str) -> None:
    assert not match(PRIMES, got).ok


@pytest.mark.parametrize(
    "got", ["London", "not Paris", "Parisian", "Paris or London", "Paris 75000", "Comparison", "Par is"]
)
def test_another_word_than_paris_does_not_pass(got: str) -> None:
    assert not match("Paris", got).ok


def test_the_reason_names_the_numbers_found_and_wanted() -> None:
    assert match("391", "17*23 = 3910").why == "numbers found: 17, 23, 3910; wanted: 391"


@pytest.mark.parametrize("expected", ["", "  ", "?!"])
def test_an_expected_answer_that_everything_would_match_is_refused(expected: str) -> None:
    with pytest.raises(ValueError, match="neither a word nor a number"):
        match(expected, "anything")


# Properties. The texts are built from the numbers, so what they say does not depend on the reader under test.

NUMBERS = st.lists(st.integers(0, 10**7), min_size=1, max_size=6)
FILLER = st.text(st.sampled_from("abcxyz ÄÖ\n!?:;\"'()[]*_"), max_size=12).map(lambda text: f" {text} ")
SEPARATOR = st.sampled_from([", ", " ", "\n", "; ", " and ", ", and ", " & "])


@st.composite
def written(draw: st.DrawFn, values: list[int]) -> str:
    """A text with exactly these numbers, in words and separators of some kind."""
    grouped = draw(st.booleans())
    text = ""
    for index, value in enumerate(values):
        text += (draw(SEPARATOR) if index else draw(FILLER)) + (f"{value:,}" if grouped else str(value))
    return text + draw(FILLER)


@given(st.data(), NUMBERS, NUMBERS)
def test_no_answer_with_another_sequence_of_numbers_passes(
    data: st.DataObject, wanted: list[int], given_: list[int]
) -> None:
    assume(wanted != given_)
    assert not match(", ".join(map(str, wanted)), data.draw(written(given_))).ok


@given(st.data(), NUMBERS)
def test_the_same_numbers_pass_however_they_are_separated(data: st.DataObject, wanted: list[int]) -> None:
    separator = data.draw(st.sampled_from([", ", "; ", "\n", " and ", ", and "]))
    template = data.draw(st.sampled_from(["{}", "The answer: {}.", "**{}**", "Sure!\n{}\nEnjoy."]))
    assert match(", ".join(map(str, wanted)), template.format(separator.join(map(str, wanted)))).ok


@given(st.integers(0, 10**9), st.data())
def test_one_character_more_or_less_in_a_number_does_not_pass(value: int, data: st.DataObject) -> None:
    right = str(value)
    position = data.draw(st.integers(0, len(right)))
    character = data.draw(st.sampled_from("0123456789"))
    changed = data.draw(
        st.sampled_from(
            [
                right[:position] + character + right[position:],
                right[:position] + right[position + 1 :],
                right[:position] + character + right[position + 1 :],
                "-" + right,
                right + "." + str(int(character) or 5),
                right + "e" + character,
            ]
        )
    )
    assume(changed != right)
    assert not match(right, f"The answer is {changed}").ok


@given(st.integers(10, 10**9), st.data())
def test_a_number_torn_apart_does_not_pass(value: int, data: st.DataObject) -> None:
    right = str(value)
    position = data.draw(st.integers(1, len(right) - 1))
    gap = data.draw(st.sampled_from([" ", "\n", ". ", "; ", "\u200b", "\u00a0", ", ", "-", "/", ":"]))
    assert not match(right, right[:position] + gap + right[position:]).ok


@given(st.text(max_size=40), st.sampled_from(["391", PRIMES]))
def test_any_text_that_passes_has_the_digits_in_order(text: str, expected: str) -> None:
    if match(expected, text).ok:
        digits = "".join(character for character in text if character.isdigit())
        assert digits == "".join(character for character in expected if character.isdigit())


@given(st.text(max_size=60))
def test_every_text_can_be_read(text: str) -> None:
    numbers(text)
    match("391", text)
