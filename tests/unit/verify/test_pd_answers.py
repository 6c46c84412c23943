# SPDX-License-Identifier: Apache-2.0
"""Known answers through the chat endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.modules import pd_answers

from tests.unit.verify.module_runner import run_module
from tests.unit.verify.replay_server import ReplayServer, recorded, replay

Capture = pytest.CaptureFixture[str]
QUESTIONS = [
    {"prompt": "What is 17*23? Answer with the number only.", "expected": "391"},
    {"prompt": "What is the capital of France? Answer in one word.", "expected": "Paris"},
    {"prompt": "List the first five prime numbers, separated by commas.", "expected": "2, 3, 5, 7, 11"},
]


def completion(text: str | None) -> dict[str, Any]:
    """The recorded chat completion with another text."""
    body: dict[str, Any] = recorded("chat-completion.json")
    body["choices"][0]["message"]["content"] = text
    return body


def answering(server: ReplayServer, texts: dict[str, str | None]) -> None:
    """Answer each question by its expected text, or by the one given here."""

    def route(body: Any) -> tuple[int, Any]:
        prompt = body["messages"][-1]["content"]
        expected = next(q["expected"] for q in QUESTIONS if q["prompt"] == prompt)
        return 200, completion(texts.get(expected, expected))

    server.routes["POST /v1/chat/completions"] = route


def ask(server: ReplayServer, capsys: Capture, check: bool = False, **more: Any) -> dict[str, Any]:
    return run_module(pd_answers, capsys, {"url": server.url, "model": "canary", "answers": QUESTIONS, **more}, check)


def test_right_answers_pass_and_are_all_in_the_record(capsys: Capture) -> None:
    with replay() as server:
        answering(server, {})
        result = ask(server, capsys)
    assert (result["failed"], result["ok"], result["why"], result["changed"]) == (False, True, None, False)
    assert [entry["got"] for entry in result["answers"]] == [q["expected"] for q in QUESTIONS]
    assert all(set(e) == {"prompt", "expected", "got", "ok", "seconds", "why"} for e in result["answers"])


def test_the_recorded_answer_of_the_engine_passes(capsys: Capture) -> None:
    with replay() as server:
        server.routes["POST /v1/chat/completions"] = (200, recorded("chat-completion.json"))
        result = ask(server, capsys, answers=QUESTIONS[:1])
    assert result["ok"], result["why"]


def test_questions_are_asked_at_temperature_0_whatever_the_extra_fields_say(capsys: Capture) -> None:
    extra = {"temperature": 1, "chat_template_kwargs": {"enable_thinking": False}}
    with replay() as server:
        answering(server, {})
        ask(server, capsys, request=extra, max_tokens=7)
        bodies = server.asked("POST /v1/chat/completions")
    assert [body["temperature"] for body in bodies] == [0, 0, 0]
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert (bodies[0]["model"], bodies[0]["max_tokens"]) == ("canary", 7)


def test_a_wrong_answer_fails_and_the_others_are_asked_all_the_same(capsys: Capture) -> None:
    with replay() as server:
        answering(server, {"391": "3910"})
        result = ask(server, capsys)
    assert result["failed"] and result["ok"] is False
    assert [entry["ok"] for entry in result["answers"]] == [False, True, True]
    assert "1 of 3 answers are wrong" in result["msg"] and "3910" in result["msg"]


def test_a_server_error_is_a_wrong_answer_with_its_text(capsys: Capture) -> None:
    with replay() as server:
        server.routes["POST /v1/chat/completions"] = (503, {"error": {"message": "all circuits open"}})
        result = ask(server, capsys)
    assert [entry["got"] for entry in result["answers"]] == [None] * 3
    assert "all circuits open" in result["answers"][0]["why"]


@pytest.mark.parametrize("body", [{}, {"choices": []}, [], "nonsense", {"choices": [{"message": {"content": None}}]}])
def test_what_is_no_completion_is_a_wrong_answer(capsys: Capture, body: Any) -> None:
    with replay() as server:
        server.routes["POST /v1/chat/completions"] = (200, body)
        assert ask(server, capsys)["failed"]


def test_thoughts_before_the_answer_are_not_part_of_it(capsys: Capture) -> None:
    with replay() as server:
        answering(server, {"391": "<think>17*20=340, 17*3=51</think>\n\n391"})
        result = ask(server, capsys)
    assert result["ok"], result["why"]
    assert "340" in result["answers"][0]["got"]


def test_an_unfinished_thought_is_not_an_answer(capsys: Capture) -> None:
    with replay() as server:
        answering(server, {"391": "<think>maybe 340, or"})
        assert ask(server, capsys)["answers"][0]["ok"] is False


def test_an_expected_answer_that_passes_everything_is_refused(capsys: Capture) -> None:
    with replay() as server:
        result = ask(server, capsys, answers=[{"prompt": "?", "expected": "..."}, {"prompt": "?", "expected": ""}])
    assert "answers[0].expected" in result["msg"] and "answers[1].expected" in result["msg"]
    assert not server.requests


def test_check_mode_asks_nothing(capsys: Capture) -> None:
    with replay() as server:
        assert ask(server, capsys, check=True)["skipped"]
    assert not server.requests
