# SPDX-License-Identifier: Apache-2.0
"""The oracle against servers that answer in the engine's own words."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import oracle_run
from ansible_collections.pdlab.pdlab.plugins.modules import pd_oracle

from tests.unit.verify.module_runner import run_module
from tests.unit.verify.replay_server import ReplayServer, recorded, replay
from tests.unit.verify.stack import Stack

Capture = pytest.CaptureFixture[str]
LENGTHS = [1, 16, 40]


def generate(body: Any) -> tuple[int, Any]:
    """An answer in the recorded shape that depends on every id of the prompt."""
    answer = copy.deepcopy(recorded("generate-input-ids.json"))
    ids, count = body["input_ids"], body["sampling_params"]["max_new_tokens"]
    state = sum((index + 1) * token for index, token in enumerate(ids))
    rows = [[-((state * 31 + step * 17) % 997) / 1000, (state + step) % 300, None] for step in range(count)]
    answer["meta_info"].update(output_token_logprobs=rows, prompt_tokens=len(ids), completion_tokens=count)
    answer["output_ids"] = [row[1] for row in rows]
    return 200, answer


def changing(change: Callable[[list[Any], Any], None]) -> Callable[[Any], tuple[int, Any]]:
    """`generate`, with its rows changed."""

    def route(body: Any) -> tuple[int, Any]:
        status, answer = generate(body)
        change(answer["meta_info"]["output_token_logprobs"], body)
        return status, answer

    return route


class Oracle:
    """One stack, its colocated reference and a place for files."""

    def __init__(self, stack: Stack, colocated: ReplayServer, directory: Path, capsys: Capture) -> None:
        self.stack, self.colocated, self.capsys = stack, colocated, capsys
        self.references = directory / "references"
        model = directory / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"vocab_size": 512, "eos_token_id": 100}))
        self.common: dict[str, Any] = {
            "reference_dir": str(self.references),
            "model_path": str(model),
            "model_fingerprint": "model-1",
            "engine_fingerprint": "engine-1",
            "lengths": LENGTHS,
            "new_tokens": 4,
        }
        info = {**recorded("server_info-prefill.json"), "disaggregation_mode": "null"}
        colocated.routes.update(
            {
                "GET /server_info": (200, info),
                "POST /flush_cache": (200, "Cache flushed.\n"),
                "POST /generate": generate,
            }
        )
        stack.router.routes["POST /generate"] = generate

    def record(self, check: bool = False, **more: Any) -> dict[str, Any]:
        arguments = {**self.common, "state": "recorded", "url": self.colocated.url, **more}
        return run_module(pd_oracle, self.capsys, arguments, check)

    def compare(self, check: bool = False, **more: Any) -> dict[str, Any]:
        workers = [self.stack.prefill.url, self.stack.decode.url]
        arguments = {**self.common, "state": "compared", "url": self.stack.router.url, "worker_urls": workers, **more}
        return run_module(pd_oracle, self.capsys, arguments, check)


@pytest.fixture
def oracle(stack: Stack, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(oracle_run, "FLUSH_TIMEOUT_S", 1.0)
    with replay() as colocated:
        yield Oracle(stack, colocated, tmp_path, capsys)


def test_a_reference_is_written_once_and_then_used_again(oracle: Oracle) -> None:
    first, second = oracle.record(), oracle.record()
    assert (first["changed"], first["ok"], first["present"]) == (True, True, True)
    assert (second["changed"], second["present"], second["reference"]) == (False, True, first["reference"])
    assert len(oracle.colocated.asked("POST /generate")) == 2 * len(LENGTHS)
    assert [p.name for p in oracle.references.iterdir()] == [first["reference"] + ".json"]


def test_equal_answers_pass_with_the_record_of_the_contract(oracle: Oracle) -> None:
    reference = oracle.record()["reference"]
    result = oracle.compare()
    assert (result["failed"], result["ok"], result["why"], result["changed"]) == (False, True, None, False)
    assert (result["cases"], result["identical"], result["max_logprob_diff"]) == (3, 3, 0.0)
    assert (result["control_differs"], result["reference"]) == (True, reference)
    assert [entry["length"] for entry in result["results"]] == LENGTHS
    for entry in result["results"]:
        assert set(entry) == {"length", "identical", "first_difference", "max_logprob_diff", "seconds", "why"}


def test_requests_are_greedy_exact_and_ask_for_logprobs(oracle: Oracle) -> None:
    oracle.record()
    body = oracle.colocated.asked("POST /generate")[2]
    assert len(body["input_ids"]) == 16
    assert body["sampling_params"] == {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
    assert body["return_logprob"] is True


def test_every_worker_is_flushed_before_every_request(oracle: Oracle) -> None:
    oracle.record()
    oracle.compare()
    requests = len(oracle.stack.router.asked("POST /generate"))
    assert requests == len(LENGTHS) + 1  # and the control
    for worker in (oracle.stack.prefill, oracle.stack.decode):
        assert len(worker.asked("POST /flush_cache")) == requests


def test_a_wrong_token_fails_and_names_its_place_and_prompt(oracle: Oracle) -> None:
    def spoil(rows: list[Any], body: Any) -> None:
        if len(body["input_ids"]) == 16:
            rows[2][1] += 1

    oracle.record()
    oracle.stack.router.routes["POST /generate"] = changing(spoil)
    result = oracle.compare()
    assert result["failed"] and result["ok"] is False
    assert (result["identical"], result["results"][1]["first_difference"]) == (2, 2)
    assert "Prompt of 16 tokens" in result["msg"]


def test_logprobs_that_drift_fail_although_the_tokens_are_equal(oracle: Oracle) -> None:
    def drift(rows: list[Any], body: Any) -> None:
        if len(body["input_ids"]) == 40:
            rows[3][0] -= 0.00002

    oracle.record()
    oracle.stack.router.routes["POST /generate"] = changing(drift)
    result = oracle.compare()
    assert (result["ok"], result["identical"]) == (False, 2)
    assert result["max_logprob_diff"] == pytest.approx(0.00002)
    assert result["results"][2]["first_difference"] is None
    assert oracle.compare(tolerance=0.001)["identical"] == 3


def test_an_engine_that_is_noisy_itself_is_compared_with_that_much_tolerance(oracle: Oracle) -> None:
    runs = iter(range(1000))

    def noisy(rows: list[Any], body: Any) -> None:
        rows[0][0] += 0.0001 * (next(runs) % 2)

    oracle.colocated.routes["POST /generate"] = oracle.stack.router.routes["POST /generate"] = changing(noisy)
    assert oracle.record()["noise"] == pytest.approx(0.0001)
    result = oracle.compare()
    assert result["ok"], result["why"]
    assert result["tolerance"] == pytest.approx(0.0004)


def test_an_engine_that_does_not_repeat_itself_is_no_reference(oracle: Oracle) -> None:
    runs = iter(range(1000))

    def random(rows: list[Any], body: Any) -> None:
        rows[0][1] += next(runs)

    oracle.colocated.routes["POST /generate"] = changing(random)
    result = oracle.record()
    assert result["failed"]
    assert "--enable-deterministic-inference" in result["msg"]
    assert not oracle.references.exists()


def test_a_model_that_does_not_look_at_the_first_half_proves_nothing(oracle: Oracle) -> None:
    def route(body: Any) -> tuple[int, Any]:
        ids = body["input_ids"]
        return generate({**body, "input_ids": [0] * (len(ids) // 2) + ids[len(ids) // 2 :]})

    oracle.colocated.routes["POST /generate"] = oracle.stack.router.routes["POST /generate"] = route
    oracle.record()
    result = oracle.compare()
    assert (result["ok"], result["identical"], result["control_differs"]) == (False, 3, False)
    assert "prove nothing" in result["msg"]


def test_a_request_that_fails_is_a_difference_and_the_others_are_asked(oracle: Oracle) -> None:
    def fail(body: Any) -> tuple[int, Any]:
        return (500, "KVTransferError(bootstrap_room=7)") if len(body["input_ids"]) == 1 else generate(body)

    oracle.record()
    oracle.stack.router.routes["POST /generate"] = fail
    result = oracle.compare()
    assert [entry["identical"] for entry in result["results"]] == [False, True, True]
    assert "KVTransferError" in result["results"][0]["why"]
    assert result["results"][0]["max_logprob_diff"] is None


def test_an_answer_from_a_cache_does_not_count(oracle: Oracle) -> None:
    def cached(body: Any) -> tuple[int, Any]:
        status, answer = generate(body)
        answer["meta_info"]["cached_tokens"] = len(body["input_ids"]) - 1
        return status, answer

    oracle.record()
    oracle.stack.router.routes["POST /generate"] = cached
    assert "came from a cache" in oracle.compare()["results"][1]["why"]


def test_a_cache_that_is_busy_is_flushed_when_it_can_be(oracle: Oracle) -> None:
    answers = iter([(400, "Cache not flushed because there are pending requests")] * 2)
    oracle.colocated.routes["POST /flush_cache"] = lambda _body: next(answers, (200, "Cache flushed."))
    assert oracle.record()["changed"]


def test_a_cache_that_cannot_be_flushed_stops_the_recording(oracle: Oracle) -> None:
    oracle.colocated.routes["POST /flush_cache"] = (400, "Cache not flushed because there are pending requests")
    result = oracle.record()
    assert result["failed"]
    assert "pending requests" in result["msg"]
    assert not oracle.references.exists()


def test_comparing_without_a_reference_says_what_to_do(oracle: Oracle) -> None:
    result = oracle.compare()
    assert result["failed"]
    assert "records one from a colocated server" in result["msg"]


def test_a_reference_of_other_settings_is_not_used_and_the_difference_named(oracle: Oracle) -> None:
    oracle.record()
    for server in (oracle.stack.prefill, oracle.stack.decode):
        oracle.stack.change(server, "GET /server_info", attention_backend="fa3")
    assert "attention_backend: 'torch_native' → 'fa3'" in oracle.compare()["msg"]


def test_a_damaged_reference_is_named_and_made_again(oracle: Oracle) -> None:
    first = oracle.record()
    path = Path(first["reference_file"])
    path.write_text(path.read_text().replace("-0.", "-1.", 1))
    assert "checksum" in oracle.compare()["msg"]
    again = oracle.record()
    assert again["changed"] is True
    assert oracle.compare()["ok"] is True


def test_present_asks_for_nothing_but_the_settings(oracle: Oracle) -> None:
    url = oracle.stack.prefill.url
    arguments = {**oracle.common, "state": "present", "url": url}
    before = run_module(pd_oracle, oracle.capsys, arguments)
    reference = oracle.record()["reference"]
    after = run_module(pd_oracle, oracle.capsys, arguments)
    assert (before["present"], before["failed"], after["present"]) == (False, False, True)
    assert before["reference"] == after["reference"] == reference
    assert {key for key, _ in oracle.stack.prefill.requests} == {"GET /server_info"}


def test_a_reference_is_found_by_its_settings_while_no_server_runs(oracle: Oracle) -> None:
    settings = {"args": {"page-size": 16}, "env": {}, "device": "cpu", "tp": 1}

    def present(**more: Any) -> dict[str, Any]:
        arguments = {**oracle.common, "state": "present", "settings": settings, **more}
        return run_module(pd_oracle, oracle.capsys, arguments)

    assert present()["present"] is False
    path = Path(oracle.record(settings=settings)["reference_file"])
    oracle.colocated.close()
    assert present()["present"] is True
    assert present(settings={**settings, "tp": 2})["present"] is False
    assert present(settings={**settings, "args": {"page-size": 32}})["present"] is False
    # What a server logs changes no token.
    assert present(settings={**settings, "args": {"page-size": 16, "log-level": "debug"}})["present"] is True
    assert present(engine_fingerprint="engine-2")["present"] is False
    path.write_text(path.read_text().replace("-0.", "-1.", 1))
    assert present()["present"] is False


def test_lengths_come_from_the_running_engine_unless_given(oracle: Oracle) -> None:
    by_engine = oracle.record(lengths=[])
    assert by_engine["lengths"] == [1, 2, 2000, 4095, 4096, 4097]
    assert by_engine["dropped"]
    overridden = oracle.record(lengths=[], page_size=16, chunked_prefill_size=-1)
    assert overridden["lengths"] == [1, 15, 16, 17, 2000]


def test_a_model_that_is_not_on_this_host_needs_an_id_range(oracle: Oracle) -> None:
    missing: dict[str, Any] = {"model_path": "/nonexistent/model"}
    assert "id_range" in oracle.record(**missing)["msg"]
    assert oracle.record(**missing, id_range=[64, 300])["changed"]


def test_a_server_that_is_not_there_is_an_error_with_its_address(oracle: Oracle) -> None:
    oracle.colocated.close()
    result = oracle.record()
    assert result["failed"]
    assert oracle.colocated.url in result["msg"]


def test_every_fault_of_the_arguments_is_listed_at_once(oracle: Oracle) -> None:
    result = oracle.compare(new_tokens=1, tolerance=-1, id_range=[5], worker_urls=[])
    for words in ("new_tokens", "tolerance", "id_range", "worker_urls"):
        assert words in result["msg"]


def test_check_mode_touches_nothing(oracle: Oracle) -> None:
    assert oracle.record(check=True)["skipped"]
    assert oracle.compare(check=True)["skipped"]
    assert not oracle.references.exists()
    assert not oracle.colocated.requests and not oracle.stack.router.requests
