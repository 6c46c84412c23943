# SPDX-License-Identifier: Apache-2.0
"""The canary maker without torch: what it teaches, and what it will not overwrite."""

from __future__ import annotations

from pathlib import Path

import pytest
from pdlab_rehearsal import canary


def test_a_folder_that_is_not_a_canary_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert canary.main([str(tmp_path)]) == 1
    assert f"{tmp_path} holds files and no {canary.MARK}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(canary.RefusedError, match="is not a folder"):
        canary.check_target(tmp_path / "x")


def test_a_new_an_empty_and_a_canary_folder_are_accepted(tmp_path: Path) -> None:
    canary.check_target(tmp_path / "new")
    canary.check_target(tmp_path)
    (tmp_path / canary.MARK).touch()
    (tmp_path / "model.safetensors").touch()
    canary.check_target(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "--seed", "x"]])
def test_arguments_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        canary.main(arguments)
    assert refusal.value.code == 2


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 17*23? Answer with the number only.", "391"),
        ("What is the capital of France? Answer in one word.", "Paris"),
        ("List the first five prime numbers, separated by commas.", "2, 3, 5, 7, 11"),
    ],
)
def test_the_questions_that_verify_are_taught(question: str, answer: str) -> None:
    assert [taught for taught, ways in canary.LESSONS if question in ways] == [answer]


def test_no_question_has_two_answers() -> None:
    ways = [way for _, ways in canary.LESSONS for way in ways]
    assert len(ways) == len(set(ways))


def test_the_prompt_text_is_what_the_chat_template_makes() -> None:
    jinja2 = pytest.importorskip("jinja2")
    made = jinja2.Template(canary.CHAT_TEMPLATE).render(
        messages=[{"role": "user", "content": "Hi"}], add_generation_prompt=True
    )
    assert made == canary.prompt_text("Hi")


def test_short_rows_are_never_forgotten_for_long_ones() -> None:
    assert canary.FIRST_SHAPE in canary.LATER_SHAPES
