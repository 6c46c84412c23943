# SPDX-License-Identifier: GPL-3.0-or-later
"""The PD oracle's requests to servers and its files; what to ask and how to compare is in oracle_cases."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json, oracle_cases, processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.oracle_cases import Answer, Reference, Setup, Vocabulary
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json

# A worker flushes only when it has nothing to do; prefill may still be tidying up after the last answer.
FLUSH_TIMEOUT_S = 15.0
FLUSH_POLL_S = 0.05
INFO_TIMEOUT_S = 10.0
# What decides over the prompts, with the defaults.
CASES: dict[str, Any] = {"lengths": [], "page_size": None, "chunked_prefill_size": None, "new_tokens": 32, "seed": 1}
# Flags that change what a server tells and how it waits, and no token: for these no reference is made anew.
WITHOUT_EFFECT = (
    "admin-api-key",
    "api-key",
    "crash-dump-folder",
    "decode-log-interval",
    "enable-metrics",
    "enable-metrics-for-all-schedulers",
    "enable-request-time-stats-logging",
    "log-level",
    "log-level-http",
    "log-requests",
    "log-requests-format",
    "log-requests-level",
    "sleep-on-idle",
    "watchdog-timeout",
)


class OracleError(Exception):
    """The oracle cannot be asked; the message says why and what to do."""


class Control(NamedTuple):
    """Did the control differ? `why` is None when it did."""

    differs: bool
    why: str | None


class Runner:
    """Asks one server, or the router in front of several, one prompt at a time, every cache flushed before each."""

    def __init__(
        self, url: str, worker_urls: Sequence[str], new_tokens: int, timeout_s: float, api_key: str | None
    ) -> None:
        self.url = url.rstrip("/")
        self.worker_urls = [worker.rstrip("/") for worker in worker_urls]
        self.new_tokens = new_tokens
        self.timeout_s = timeout_s
        self.api_key = api_key

    def setup(self, options: Mapping[str, Any]) -> Setup:
        """Read the first worker's settings and make the prompts. Raises OracleError."""
        url = self.worker_urls[0] + "/server_info"
        reply = http_json.get(url, INFO_TIMEOUT_S, self.api_key)
        if not reply.ok or not isinstance(reply.body, dict):
            raise OracleError(f"{url}: {reply.describe()}. Start the server, or correct the address.")
        info = {**reply.body}
        for key in ("page_size", "chunked_prefill_size"):
            if options.get(key) is not None:
                info[key] = options[key]
        try:
            vocabulary = _vocabulary(options, info)
            limit = oracle_cases.prompt_limit(info, self.new_tokens)
            if options["lengths"]:
                lengths, dropped = oracle_cases.given_lengths(options["lengths"], limit)
            else:
                page, chunk = int(info["page_size"] or 1), int(info["chunked_prefill_size"] or -1)
                lengths, dropped = oracle_cases.case_lengths(page, chunk, limit)
        except KeyError as error:
            raise OracleError(f"{url} does not name {error}; give it as an option where there is one") from error
        if not lengths:
            raise OracleError(f"No prompt length fits: {'; '.join(dropped)}. Give other lengths.")
        prompts = [oracle_cases.prompt(length, options["seed"], vocabulary) for length in lengths]
        return Setup(info, vocabulary, options["seed"], prompts, dropped)

    def record(self, prompts: Sequence[Sequence[int]]) -> Reference:
        """Ask each prompt twice and keep what both runs agree on. Raises OracleError."""
        answers, noise = [], 0.0
        for ids in prompts:
            try:
                answer, difference = oracle_cases.stable(self._timed(ids)[0], self._timed(ids)[0])
            except ValueError as error:
                raise OracleError(
                    f"{self.url}, {len(ids)} tokens: {error}. Start the servers with --enable-deterministic-inference, "
                    "or leave this length out."
                ) from error
            answers.append(answer)
            noise = max(noise, difference)
        return Reference(answers, noise)

    def compare(self, ids: Sequence[int], reference: Answer, tolerance: float) -> dict[str, Any]:
        """One entry of the result. A request that fails is a difference, not an exception."""
        result = {"length": len(ids), "identical": False, "first_difference": None, "max_logprob_diff": None}
        started = time.monotonic()
        try:
            answer, seconds = self._timed(ids)
        except OracleError as error:
            return {**result, "seconds": round(time.monotonic() - started, 3), "why": str(error)}
        comparison = oracle_cases.compare(reference, answer, tolerance)
        return {**result, **comparison._asdict(), "seconds": round(seconds, 3)}

    def control(self, setup: Setup, answers: Sequence[Answer], tolerance: float) -> Control:
        """Ask a prompt with its first half changed; hold it against the reference of the unchanged one."""
        index = oracle_cases.control_index([len(ids) for ids in setup.prompts])
        if index is None:
            return Control(False, "No prompt is long enough for a control; give a length of 2 or more.")
        base = setup.prompts[index]
        try:
            answer, _ = self._timed(oracle_cases.control_prompt(base, setup.seed, setup.vocabulary))
        except OracleError as error:
            return Control(False, f"The control could not be asked: {error}")
        if oracle_cases.control_differs(answers[index], answer, tolerance):
            return Control(True, None)
        return Control(
            False,
            f"The control, the prompt of {len(base)} tokens with its first half changed, gives the same answer: equal "
            "answers prove nothing here. Check that the answers come from this model.",
        )

    def _timed(self, ids: Sequence[int]) -> tuple[Answer, float]:
        if processes.controller_gone():
            raise OracleError("The controller is gone.")
        self._flush()
        reply = http_json.post(
            self.url + "/generate", oracle_cases.request(ids, self.new_tokens), self.timeout_s, self.api_key
        )
        if not reply.ok:
            raise OracleError(f"{self.url}/generate, {len(ids)} tokens: {reply.describe()}")
        try:
            return oracle_cases.read_answer(reply.body, self.new_tokens), reply.seconds
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            raise OracleError(f"{self.url}/generate, {len(ids)} tokens: {error}") from error

    def _flush(self) -> None:
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        for url in self.worker_urls:
            while True:
                reply = http_json.post(url + "/flush_cache", None, FLUSH_TIMEOUT_S, self.api_key)
                if reply.ok:
                    break
                if time.monotonic() > deadline:
                    raise OracleError(
                        f"{url}/flush_cache: {reply.describe()}. The server must have nothing else to do meanwhile."
                    )
                time.sleep(FLUSH_POLL_S)


def _vocabulary(options: Mapping[str, Any], info: Mapping[str, Any]) -> Vocabulary:
    if options.get("id_range"):
        return Vocabulary(options["id_range"][0], options["id_range"][1], frozenset())
    path = options.get("model_path") or info.get("model_path")
    if not path:
        raise OracleError("The engine names no model path; give model_path or id_range.")
    try:
        return oracle_cases.read_vocabulary(path)
    except (OSError, ValueError) as error:
        raise OracleError(
            f"The vocabulary of {path} cannot be read here: {error}. Give model_path or id_range."
        ) from error


def find_identity(options: Mapping[str, Any], setup: Setup) -> dict[str, Any]:
    """What the reference of this run depends on."""
    return oracle_cases.identity(
        options["model_fingerprint"], options["engine_fingerprint"], setup.info, setup.prompts, options["new_tokens"]
    )


def reference_path(directory: str, identity: Mapping[str, Any]) -> str:
    """The file of a reference."""
    return os.path.join(directory, oracle_cases.digest(identity) + ".json")


def load_reference(path: str, identity: Mapping[str, Any]) -> tuple[Reference | None, str | None]:
    """A reference from its file; None when there is none, with the reason when one is there but cannot be used."""
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        return oracle_cases.read_reference(document, identity), None
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{path} cannot be used: {error}"


def nearest_reference(directory: str, identity: Mapping[str, Any]) -> str:
    """A sentence on how the newest reference there differs from the wanted one; empty when there is none."""
    try:
        paths = [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".json")]
        newest = max(paths, key=os.path.getmtime)
        with open(newest, encoding="utf-8") as stream:
            other = json.load(stream)["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"The newest one differs in {'; '.join(oracle_cases.differences(other, identity))}. "


# By settings -------------------------------------------------------------------------------------------------------


def settings_path(options: Mapping[str, Any]) -> str:
    """The file that says which reference was recorded for this model, engine, server settings and these cases.

    A reference itself is named by what the running engine made of its settings; this finds it before one runs.
    """
    settings = {key: options["settings"].get(key) for key in ("args", "env", "device", "tp")}
    settings["args"] = {flag: v for flag, v in (settings["args"] or {}).items() if flag not in WITHOUT_EFFECT}
    cases = {key: options[key] for key in CASES}
    key = oracle_cases.digest(
        {
            "model": options["model_fingerprint"],
            "engine": options["engine_fingerprint"],
            "settings": settings,
            "cases": cases,
        }
    )
    return os.path.join(settings_dir(options["reference_dir"]), key + ".json")


def settings_dir(reference_dir: str) -> str:
    """The directory of those files."""
    return os.path.join(reference_dir, "by-settings")


def note_settings(options: Mapping[str, Any], reference: str) -> None:
    """Keep which reference belongs to these settings. Raises OSError."""
    path = settings_path(options)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_json(path, {"reference": os.path.basename(reference)})


def find_by_settings(index: str) -> tuple[str | None, str | None]:
    """The intact reference that an index file names; None, and why, when there is none."""
    try:
        with open(index, encoding="utf-8") as stream:
            name = json.load(stream)["reference"]
        path = os.path.join(os.path.dirname(os.path.dirname(index)), os.path.basename(name))
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        oracle_cases.read_reference(document, document["identity"])
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"the reference that {index} names cannot be used: {error}"
    return path, None
