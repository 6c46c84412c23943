# SPDX-License-Identifier: Apache-2.0
"""The oracle's prompts, comparison and reference document."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import oracle_cases as oracle
from ansible_collections.pdlab.pdlab.plugins.module_utils.oracle_cases import Answer, Reference, Vocabulary
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.verify.replay_server import recorded

VOCABULARY = Vocabulary(64, 384, frozenset({100, 101}))


def test_lengths_stand_around_page_and_chunk_and_at_2000() -> None:
    lengths, dropped = oracle.case_lengths(64, 4096, 8000)
    assert lengths == [1, 63, 64, 65, 2000, 4095, 4096, 4097]
    assert dropped == []


def test_a_page_of_one_token_drops_what_is_none_or_doubled_and_says_so() -> None:
    lengths, dropped = oracle.case_lengths(1, 4096, 8000)
    assert lengths == [1, 2, 2000, 4095, 4096, 4097]
    assert any("page-1 = 0" in reason for reason in dropped)
    assert any("page = 1: the same as 1" in reason for reason in dropped)


def test_without_chunking_there_are_no_chunk_lengths() -> None:
    lengths, dropped = oracle.case_lengths(16, -1, 8000)
    assert lengths == [1, 15, 16, 17, 2000]
    assert any("chunked prefill is off" in reason for reason in dropped)


def test_what_the_context_cannot_hold_is_dropped_with_the_limit() -> None:
    lengths, dropped = oracle.case_lengths(16, 8192, 1000)
    assert lengths == [1, 15, 16, 17]
    assert sum("longer than 1000" in reason for reason in dropped) == 4


def test_given_lengths_are_taken_as_they_are() -> None:
    assert oracle.given_lengths([5, 3, 5, 0], 100)[0] == [3, 5]


def test_the_limit_leaves_room_for_the_answer() -> None:
    assert oracle.prompt_limit(recorded("server_info-prefill.json"), 32) < 8186 - 32


@given(st.integers(1, 512), st.integers(-1, 9000), st.integers(1, 10000))
def test_lengths_are_distinct_ascending_and_fit(page: int, chunk: int, limit: int) -> None:
    lengths, _ = oracle.case_lengths(page, chunk, limit)
    assert lengths == sorted(set(lengths))
    assert all(1 <= length <= limit for length in lengths)


@given(st.integers(1, 300), st.integers(0, 10**6))
def test_a_prompt_is_always_the_same_and_avoids_special_ids(length: int, seed: int) -> None:
    ids = oracle.prompt(length, seed, VOCABULARY)
    assert ids == oracle.prompt(length, seed, VOCABULARY)
    assert len(ids) == length
    assert all(64 <= token < 384 and token not in (100, 101) for token in ids)


@given(st.integers(2, 300), st.integers(0, 10**6))
def test_a_control_changes_every_id_of_the_first_half_and_none_of_the_second(length: int, seed: int) -> None:
    base = oracle.prompt(length, seed, VOCABULARY)
    control = oracle.control_prompt(base, seed, VOCABULARY)
    half = length // 2
    assert all(old != new for old, new in zip(base[:half], control[:half], strict=True))
    assert control[half:] == base[half:]
    assert not VOCABULARY.excluded & set(control)


@pytest.mark.parametrize(
    ("lengths", "index"), [([1, 17, 2000, 4096], 2), ([1, 15, 16, 17], 3), ([1, 2, 5], 2), ([1], None)]
)
def test_the_control_is_made_of_the_shortest_prompt_that_is_long_enough(lengths: list[int], index: int | None) -> None:
    assert oracle.control_index(lengths) == index


def model(path: Path, **files: Any) -> str:
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return str(path)


def test_special_tokens_of_every_file_are_left_out(tmp_path: Path) -> None:
    path = model(
        tmp_path,
        config={"vocab_size": 512, "eos_token_id": [70, 2], "bos_token_id": 71},
        generation_config={"pad_token_id": 72},
        tokenizer={"added_tokens": [{"id": 73, "content": "<x>", "special": True}]},
        tokenizer_config={"added_tokens_decoder": {"74": {"content": "<y>"}, "3": {}}},
    )
    assert oracle.read_vocabulary(path) == Vocabulary(64, 384, frozenset({70, 71, 72, 73, 74}))


def test_a_multimodal_config_names_its_vocabulary_one_level_down(tmp_path: Path) -> None:
    assert oracle.read_vocabulary(model(tmp_path, config={"text_config": {"vocab_size": 800}})).high == 600


def test_a_config_without_a_vocabulary_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give id_range"):
        oracle.read_vocabulary(model(tmp_path, config={"hidden_size": 1}))


def test_the_engines_answer_is_read() -> None:
    answer = oracle.read_answer(recorded("generate-input-ids.json"), 6)
    assert answer.ids == [389, 333, 389, 333, 389, 333]
    assert answer.logprobs[0] == pytest.approx(-0.01494591)


@pytest.mark.parametrize(
    "rows", [None, [], [[-0.1, 5, None]], [[None, 5, None]] * 2, [[math.nan, 5, None]] * 2, [["x", 5, None]] * 2]
)
def test_an_answer_that_is_short_or_has_no_numbers_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError):
        oracle.read_answer({"meta_info": {"output_token_logprobs": rows}}, 2)


def test_an_answer_from_a_cache_is_refused() -> None:
    body = recorded("generate-input-ids.json")
    body["meta_info"]["cached_tokens"] = 3
    with pytest.raises(ValueError, match="3 tokens of the prompt came from a cache"):
        oracle.read_answer(body, 6)


REFERENCE = Answer([1, 2, 3], [-0.5, -0.25, -0.125])


def test_equal_answers_are_identical() -> None:
    assert oracle.compare(REFERENCE, REFERENCE, 0.0) == (True, None, 0.0, None)


def test_the_first_other_token_is_named() -> None:
    result = oracle.compare(REFERENCE, Answer([1, 9, 9], [-0.5, -9.0, -9.0]), 1e-3)
    assert (result.identical, result.first_difference, result.max_logprob_diff) == (False, 1, 0.0)
    assert result.why == "new token 1 is 9 instead of 2"


def test_logprobs_that_drift_are_a_difference_even_with_equal_tokens() -> None:
    result = oracle.compare(REFERENCE, Answer([1, 2, 3], [-0.5, -0.25, -0.127]), 1e-3)
    assert (result.identical, result.first_difference) == (False, None)
    assert result.max_logprob_diff == pytest.approx(0.002)


def test_logprobs_within_the_tolerance_agree() -> None:
    assert oracle.compare(REFERENCE, Answer([1, 2, 3], [-0.5, -0.25, -0.1255]), 1e-3).identical


def test_a_reference_that_ends_early_is_compared_as_far_as_it_goes() -> None:
    assert oracle.compare(Answer([1, 2], [-0.5, -0.25]), REFERENCE, 1e-3).identical


def test_what_two_runs_agree_on_is_kept_with_their_difference() -> None:
    other = Answer([1, 2, 9], [-0.5, -0.2501, -0.125])
    answer, noise = oracle.stable(REFERENCE, other)
    assert answer == Answer([1, 2], [-0.5, -0.25])
    assert noise == pytest.approx(1e-4)
    assert oracle.stable(REFERENCE, REFERENCE) == (REFERENCE, 0.0)


def test_two_runs_that_part_before_decode_has_begun_are_no_reference() -> None:
    with pytest.raises(ValueError, match="differ from new token 1 on"):
        oracle.stable(REFERENCE, Answer([1, 9, 9], [-0.5, -0.1, -0.1]))


def test_the_tolerance_grows_with_the_engines_own_noise_and_is_never_nothing() -> None:
    assert oracle.tolerance_for(0.0) == 1e-6
    assert oracle.tolerance_for(0.01) == pytest.approx(0.04)


def test_a_shorter_answer_differs_where_it_ends() -> None:
    assert oracle.compare(REFERENCE, Answer([1, 2], [-0.5, -0.25]), 1e-3).first_difference == 2


def test_a_control_differs_by_tokens_or_by_ten_times_the_tolerance() -> None:
    assert oracle.control_differs(REFERENCE, Answer([1, 2, 4], REFERENCE.logprobs), 1e-3)
    assert oracle.control_differs(REFERENCE, Answer([1, 2, 3], [-0.5, -0.25, -0.136]), 1e-3)
    assert not oracle.control_differs(REFERENCE, Answer([1, 2, 3], [-0.5, -0.25, -0.134]), 1e-3)


INFO = recorded("server_info-prefill.json")
PROMPTS = [[70, 71], [72]]


def identity(**changed: Any) -> dict[str, Any]:
    given_: dict[str, Any] = {
        "model_fingerprint": "m",
        "engine_fingerprint": "e",
        "info": INFO,
        "prompts": PROMPTS,
        "new_tokens": 3,
        **changed,
    }
    return oracle.identity(**given_)


@pytest.mark.parametrize(
    "changed",
    [
        {"model_fingerprint": "m2"},
        {"engine_fingerprint": "e2"},
        {"info": {**INFO, "page_size": 64}},
        {"info": {**INFO, "attention_backend": "fa3"}},
        {"prompts": [[70, 71], [73]]},
        {"new_tokens": 4},
    ],
)
def test_whatever_can_change_an_answer_changes_the_fingerprint(changed: dict[str, Any]) -> None:
    assert oracle.digest(identity(**changed)) != oracle.digest(identity())


def test_prefill_decode_and_colocated_have_one_identity() -> None:
    roles = [recorded("server_info-prefill.json"), recorded("server_info-decode.json")]
    assert identity(info=roles[0]) == identity(info=roles[1])


def test_a_reference_survives_its_file() -> None:
    reference = Reference([REFERENCE, Answer([7], [-1.0000000123])], 1.5e-9)
    document = json.loads(json.dumps(oracle.reference_document(identity(), reference, "2026-01-31T00:00:00Z")))
    assert oracle.read_reference(document, identity()) == reference


def test_a_damaged_or_foreign_reference_is_refused() -> None:
    document = oracle.reference_document(identity(), Reference([REFERENCE, REFERENCE], 0.0), "2026-01-31T00:00:00Z")
    damaged = json.loads(json.dumps(document))
    damaged["answers"][0]["ids"][0] = 9
    with pytest.raises(ValueError, match="checksum"):
        oracle.read_reference(damaged, identity())
    with pytest.raises(ValueError, match="something else"):
        oracle.read_reference(document, identity(new_tokens=4))
    with pytest.raises(ValueError):
        oracle.read_reference([], identity())


def test_differences_of_two_identities_are_named_by_key() -> None:
    other = identity(info={**INFO, "page_size": 64}, model_fingerprint="m2", prompts=[[70]])
    assert oracle.differences(identity(), other) == [
        "cases: other prompts",
        "engine_args.page_size: 1 → 64",
        "model: 'm' → 'm2'",
    ]
