# SPDX-License-Identifier: GPL-3.0-or-later
"""The prompts of the PD oracle, and what makes two answers the same. Pure, apart from reading a model's vocabulary.

The oracle holds prefill/decode against a colocated run of the same engine. A known answer hardly notices a damaged
page; greedy tokens do, and the logprobs of a small model that repeats itself do better still.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

SCHEMA_VERSION = 1
LONG_LENGTH = 2000
# The control is made of a prompt of about this length or more: where a fault is hardest to see.
CONTROL_LENGTH = 1000
# Smallest tolerance for two logprobs. Prefill/decode was bit-equal to colocated on CPU and on GPU; the router's JSON
# alone moves a number by 2e-16. It must be small: with the rehearsal's canary, one wrong page of 16 tokens among 2000
# moves a logprob by 4e-5 and changes no token.
TOLERANCE = 1e-6
# Where two colocated runs differ (kernels that add in another order each time), differences of a few times as much.
NOISE_FACTOR = 4
# Decode makes tokens from the second on, so fewer prove nothing.
LEAST_TOKENS = 2
# sglang refuses a prompt of max_req_input_len tokens or more, and the new ones need room too.
ROOM = 8
# What of /server_info can change a logprob. Equal keys and values, or another reference.
ENGINE_KEYS = (
    "version",
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "page_size",
    "chunked_prefill_size",
    "tp_size",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "moe_runner_backend",
    "fp8_gemm_runner_backend",
    "fp4_gemm_runner_backend",
    "speculative_algorithm",
    "enable_deterministic_inference",
)


class Vocabulary(NamedTuple):
    """Token ids that a prompt may be drawn from: low <= id < high, and none of `excluded`."""

    low: int
    high: int
    excluded: frozenset[int]

    def draw(self, generator: random.Random, count: int) -> list[int]:
        """`count` ids, each as likely as any other."""
        ids: list[int] = []
        while len(ids) < count:
            token = generator.randrange(self.low, self.high)
            if token not in self.excluded:
                ids.append(token)
        return ids


class Setup(NamedTuple):
    """What one run asks: the engine's settings (/server_info), where ids come from, the prompts, what was left out."""

    info: dict[str, Any]
    vocabulary: Vocabulary
    seed: int
    prompts: list[list[int]]
    dropped: list[str]


class Answer(NamedTuple):
    """What a server made of a prompt: its new token ids and their logprobs (natural logarithm)."""

    ids: list[int]
    logprobs: list[float]


class Reference(NamedTuple):
    """What a colocated server answered, and how much the logprobs of two of its runs differed."""

    answers: list[Answer]
    noise: float


class Comparison(NamedTuple):
    """`first_difference` is the index of the first other token. `max_logprob_diff` is over the tokens before it."""

    identical: bool
    first_difference: int | None
    max_logprob_diff: float
    why: str | None


# Lengths -------------------------------------------------------------------------------------------------------------


def case_lengths(page: int, chunk: int, limit: int, long_length: int = LONG_LENGTH) -> tuple[list[int], list[str]]:
    """Prompt lengths at which paging and chunking can go wrong: 1, page and chunk with their neighbours, and a long one.

    `chunk` <= 0 means that prefill is not chunked. `limit`: the longest prompt that leaves room for the answer.
    Returns the lengths, ascending, and what was left out with the reason.
    """
    wanted = [("1", 1), *_around("page", page)]
    dropped = []
    if chunk > 0:
        wanted += _around("chunk", chunk)
    else:
        dropped.append("chunk-1, chunk, chunk+1: chunked prefill is off")
    wanted.append((f"about {long_length}", long_length))
    return _fitting(wanted, limit, dropped)


def given_lengths(lengths: Iterable[int], limit: int) -> tuple[list[int], list[str]]:
    """Lengths that somebody chose, in the same form as `case_lengths`."""
    return _fitting([(str(length), length) for length in lengths], limit, [])


def _around(name: str, size: int) -> list[tuple[str, int]]:
    return [(f"{name}-1", size - 1), (name, size), (f"{name}+1", size + 1)]


def _fitting(wanted: Sequence[tuple[str, int]], limit: int, dropped: list[str]) -> tuple[list[int], list[str]]:
    kept: dict[int, str] = {}
    for name, length in wanted:
        if length < 1:
            dropped.append(f"{name} = {length}: there is no such prompt")
        elif length > limit:
            dropped.append(f"{name} = {length}: longer than {limit}, which the context leaves for a prompt")
        elif length in kept:
            dropped.append(f"{name} = {length}: the same as {kept[length]}")
        else:
            kept[length] = name
    return sorted(kept), dropped


def prompt_limit(info: Mapping[str, Any], new_tokens: int) -> int:
    """The longest prompt, in tokens, that a server with this /server_info takes and answers in full."""
    return int(info["max_req_input_len"]) - new_tokens - ROOM


# Prompts -------------------------------------------------------------------------------------------------------------


def read_vocabulary(model_path: str) -> Vocabulary:
    """Ids from the middle of a model's vocabulary, special tokens left out.

    The ends are left alone: bytes and control tokens come first in most vocabularies, added tokens and padding last.
    Raises OSError or ValueError (with what to do) when config.json cannot be used.
    """
    config = _read_json(os.path.join(model_path, "config.json"))
    text_config = config.get("text_config") or {}
    size = config.get("vocab_size") or text_config.get("vocab_size")
    if not isinstance(size, int) or size < 16:
        raise ValueError(f"{model_path}/config.json names no usable vocab_size; give id_range")
    excluded = set(_token_ids(config)) | set(_token_ids(text_config))
    for name, reader in (
        ("generation_config.json", _token_ids),
        ("tokenizer.json", _added_tokens),
        ("tokenizer_config.json", _added_tokens),
    ):
        path = os.path.join(model_path, name)
        if os.path.isfile(path):
            excluded |= set(reader(_read_json(path)))
    low, high = size // 8, size * 3 // 4
    excluded = {token for token in excluded if low <= token < high}
    if len(excluded) > (high - low) // 2:
        raise ValueError(f"most ids of {model_path} between {low} and {high} are special tokens; give id_range")
    return Vocabulary(low, high, frozenset(excluded))


def _read_json(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a JSON object")
    return document


def _token_ids(config: Mapping[str, Any]) -> list[int]:
    ids: list[int] = []
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        ids += [token for token in (value if isinstance(value, list) else [value]) if isinstance(token, int)]
    return ids


def _added_tokens(tokenizer: Mapping[str, Any]) -> list[int]:
    listed = [entry.get("id") for entry in tokenizer.get("added_tokens") or [] if isinstance(entry, dict)]
    keyed = list(tokenizer.get("added_tokens_decoder") or {})
    return [int(token) for token in (*listed, *keyed) if token is not None]


def prompt(length: int, seed: int, vocabulary: Vocabulary) -> list[int]:
    """The prompt of one case: always the same for the same length, seed and vocabulary."""
    return vocabulary.draw(random.Random(f"pdlab {seed} {length}"), length)


def control_prompt(ids: Sequence[int], seed: int, vocabulary: Vocabulary) -> list[int]:
    """The same prompt with every id of its first half changed."""
    half = len(ids) // 2
    generator = random.Random(f"pdlab control {seed} {len(ids)}")
    changed = []
    for old in ids[:half]:
        new = old
        while new == old:
            new = vocabulary.draw(generator, 1)[0]
        changed.append(new)
    return changed + list(ids[half:])


def request(ids: Sequence[int], new_tokens: int) -> dict[str, Any]:
    """The body for /generate: greedy, exactly `new_tokens` new tokens, with their logprobs."""
    return {
        "input_ids": list(ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True},
        "return_logprob": True,
    }


def read_answer(body: Any, new_tokens: int) -> Answer:
    """Take ids and logprobs out of a /generate answer (meta_info.output_token_logprobs: [logprob, id, text]).

    Raises ValueError when they are not all there, not all numbers, or made with the help of a cache.
    """
    body = body[0] if isinstance(body, list) and len(body) == 1 else body
    meta = (body.get("meta_info") or {}) if isinstance(body, dict) else {}
    if meta.get("cached_tokens"):
        raise ValueError(f"{meta['cached_tokens']} tokens of the prompt came from a cache, although it was flushed")
    rows = meta.get("output_token_logprobs")
    if not isinstance(rows, list):
        raise ValueError("the answer has no meta_info.output_token_logprobs")
    if len(rows) != new_tokens:
        raise ValueError(f"{len(rows)} new tokens came instead of {new_tokens}")
    ids, logprobs = [], []
    for index, row in enumerate(rows):
        value = row[0]
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"the logprob of new token {index} is {value!r}")
        logprobs.append(float(value))
        ids.append(int(row[1]))
    return Answer(ids, logprobs)


# Comparing -----------------------------------------------------------------------------------------------------------


def stable(first: Answer, second: Answer) -> tuple[Answer, float]:
    """What two runs of one server agree on: the answer up to the first other token, and the largest difference there.

    Raises ValueError when they agree on too little to compare anything with.
    """
    comparison = compare(first, second, math.inf)
    end = comparison.first_difference
    if end is not None and end < LEAST_TOKENS:
        raise ValueError(f"two runs differ from new token {end} on, so there is nothing to hold another server against")
    return Answer(first.ids[:end], first.logprobs[:end]), comparison.max_logprob_diff


def tolerance_for(noise: float) -> float:
    """The largest difference of two logprobs that is still the engine's own."""
    return max(TOLERANCE, NOISE_FACTOR * noise)


def compare(reference: Answer, got: Answer, tolerance: float) -> Comparison:
    """Equal token ids as far as the reference goes, and logprobs there that differ by no more than `tolerance`."""
    shared = min(len(reference.ids), len(got.ids))
    first = next((i for i in range(shared) if reference.ids[i] != got.ids[i]), None)
    if first is None and shared < len(reference.ids):
        first = shared
    equal = shared if first is None else first
    largest = max((abs(reference.logprobs[i] - got.logprobs[i]) for i in range(equal)), default=0.0)
    if first is not None:
        why = f"new token {first} is {_at(got.ids, first)} instead of {_at(reference.ids, first)}"
        return Comparison(False, first, largest, why)
    if largest > tolerance:
        return Comparison(False, None, largest, f"the logprobs differ by {largest:.3g}, more than {tolerance:g}")
    return Comparison(True, None, largest, None)


def control_index(lengths: Sequence[int]) -> int | None:
    """Which case the control is made of: the shortest of CONTROL_LENGTH tokens or more, else the longest one.

    None when no prompt has two halves.
    """
    usable = [index for index, length in enumerate(lengths) if length >= 2]
    long_enough = [index for index in usable if lengths[index] >= CONTROL_LENGTH]
    return min(long_enough, default=max(usable, default=None), key=lambda index: lengths[index])


def control_differs(base: Answer, control: Answer, tolerance: float) -> bool:
    """Did another first half give another answer, by tokens or by ten times the tolerance in logprobs?

    Only then does equality elsewhere say that the first half's KV arrived.
    """
    comparison = compare(base, control, 10 * tolerance)
    return not comparison.identical


def _at(ids: Sequence[int], index: int) -> str:
    return str(ids[index]) if index < len(ids) else "missing"


# The reference file --------------------------------------------------------------------------------------------------


def identity(
    model_fingerprint: str,
    engine_fingerprint: str,
    info: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
) -> dict[str, Any]:
    """Everything that a reference depends on, in words; `info` is a /server_info answer."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model_fingerprint,
        "engine": engine_fingerprint,
        "engine_args": {key: info.get(key) for key in ENGINE_KEYS},
        "cases": [{"length": len(ids), "ids_sha256": digest(list(ids))} for ids in prompts],
        "new_tokens": new_tokens,
    }


def digest(document: Any) -> str:
    """SHA-256 of a document's canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def reference_document(identity_: Mapping[str, Any], reference: Reference, recorded: str) -> dict[str, Any]:
    """The reference file's content, sealed: `sha256` is over all the rest."""
    body = {
        "fingerprint": digest(identity_),
        "identity": dict(identity_),
        "recorded": recorded,
        "noise": reference.noise,
        "answers": [{"ids": answer.ids, "logprobs": answer.logprobs} for answer in reference.answers],
    }
    return {**body, "sha256": digest(body)}


def read_reference(document: Any, identity_: Mapping[str, Any]) -> Reference:
    """The content of a reference file. Raises ValueError when it is damaged or another identity's."""
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    body = {key: value for key, value in document.items() if key != "sha256"}
    if document.get("sha256") != digest(body):
        raise ValueError("its content does not match its own checksum")
    if body.get("fingerprint") != digest(identity_):
        raise ValueError("it was recorded for something else")
    answers = [Answer(entry["ids"], entry["logprobs"]) for entry in body["answers"]]
    if len(answers) != len(identity_["cases"]):
        raise ValueError(f"it has {len(answers)} answers for {len(identity_['cases'])} cases")
    return Reference(answers, float(body["noise"]))


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Where two identities differ, as `key: one → other`."""
    found = []
    for key in sorted(set(one) | set(other)):
        left, right = one.get(key), other.get(key)
        if left == right:
            continue
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, f"{prefix}{key}.")
        elif key == "cases":
            found.append(f"{prefix}{key}: other prompts")
        else:
            found.append(f"{prefix}{key}: {left!r} → {right!r}")
    return found
