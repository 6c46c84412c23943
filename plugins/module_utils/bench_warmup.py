# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes right before a measurement: the path is warmed up, then every prefix cache is emptied.

The client's own warm-up sends one prompt again and again, through a router that may have a favourite server, and is
called a success when one of its requests was. So pdlab warms up itself: first each pair of prefill and decode by name,
then the router at the point's concurrency with prompts of the point's length that have nothing in common.
"""

from __future__ import annotations

import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json

# The first request over a pair may set up its UCX connection, which took 38 s in a public report (sglang#28737).
REQUEST_TIMEOUT_S = 180.0
FLUSH_TIMEOUT_S = 30.0
OUTPUT_TOKENS = 32
PAIR_OUTPUT_TOKENS = 4
PAIRS_AT_ONCE = 8
# Ids of prompts are drawn from here up to the vocabulary's end, and not far: what lies below are control tokens in most
# vocabularies, and what lies above may be pictures.
FIRST_ID, LAST_ID = 16, 16384
ROOMS = 2**63 - 1


class Prompts:
    """Prompts of random ids, no two alike. Safe for threads."""

    def __init__(self, seed: int | str, input_len: int, vocabulary: int | None) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._length = input_len
        self._ids = range(FIRST_ID, max(FIRST_ID + 2, min(LAST_ID, vocabulary or 256)))

    def ids(self) -> list[int]:
        """The next prompt."""
        with self._lock:
            return self._random.choices(self._ids, k=self._length)

    def room(self) -> int:
        """A number that the two halves of one request know each other by."""
        with self._lock:
            return self._random.randrange(ROOMS)


def request(ids: Sequence[int], output_tokens: int) -> dict[str, Any]:
    """A /generate request for exactly `output_tokens` tokens."""
    sampling = {"temperature": 0.0, "max_new_tokens": output_tokens, "ignore_eos": True}
    return {"input_ids": list(ids), "sampling_params": sampling}


def pairs(workers: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], ...]]:
    """What a request may meet: each (prefill, decode), and each colocated server alone."""
    by_role: dict[str, list[Mapping[str, Any]]] = {}
    for worker in workers:
        by_role.setdefault(worker.get("role") or "colocated", []).append(worker)
    found: list[tuple[Mapping[str, Any], ...]] = [
        (prefill, decode) for prefill in by_role.get("prefill", []) for decode in by_role.get("decode", [])
    ]
    return found + [(worker,) for worker in by_role.get("colocated", [])]


def touch(pair: Sequence[Mapping[str, Any]], prompts: Prompts) -> str | None:
    """One request over one pair, sent to both as the router does; why it failed, or None."""
    body = request(prompts.ids(), PAIR_OUTPUT_TOKENS)
    if len(pair) == 2:
        prefill = pair[0]
        body["bootstrap_host"] = urllib.parse.urlsplit(prefill["url"]).hostname
        body["bootstrap_port"] = prefill.get("bootstrap_port")
        body["bootstrap_room"] = prompts.room()
    with ThreadPoolExecutor(len(pair)) as pool:
        replies = list(pool.map(lambda server: _generate(server["url"], body), pair))
    said = [f"{server['name']}: {why}" for server, why in zip(pair, replies) if why]  # noqa: B905  3.9 has no strict=
    return "; ".join(said) or None


def _generate(url: str, body: Mapping[str, Any]) -> str | None:
    reply = http_json.post(url.rstrip("/") + "/generate", body, REQUEST_TIMEOUT_S)
    if not reply.ok:
        return reply.describe()
    meta = reply.body.get("meta_info") if isinstance(reply.body, Mapping) else None
    return None if isinstance(meta, Mapping) else f"no answer of /generate: {reply.text[:200]}"


def _together(work: Callable[[Any], str | None], items: Sequence[Any], at_once: int) -> list[str | None]:
    with ThreadPoolExecutor(max(1, min(at_once, len(items)))) as pool:
        return list(pool.map(work, items))


def touch_pairs(workers: Sequence[Mapping[str, Any]], prompts: Prompts) -> dict[str, Any]:
    """One request over every pair: {"pairs", "touched", "faults", "seconds"}."""
    started, wanted = time.monotonic(), pairs(workers)
    faults = [why for why in _together(lambda pair: touch(pair, prompts), wanted, PAIRS_AT_ONCE) if why]
    return {
        "pairs": len(wanted),
        "touched": len(wanted) - len(faults),
        "faults": faults,
        "seconds": round(time.monotonic() - started, 3),
    }


def through_router(base_url: str, requests: int, at_once: int, output_tokens: int, prompts: Prompts) -> dict[str, Any]:
    """`requests` requests through the router, `at_once` in flight: {"requests", "concurrency", "answered", …}."""
    started = time.monotonic()
    output = min(output_tokens, OUTPUT_TOKENS)
    said = _together(lambda _: _generate(base_url, request(prompts.ids(), output)), range(requests), at_once)
    faults = [why for why in said if why]
    return {
        "requests": requests,
        "concurrency": min(at_once, requests),
        "answered": requests - len(faults),
        "faults": list(dict.fromkeys(faults))[:5],
        "seconds": round(time.monotonic() - started, 3),
    }


def flush(workers: Sequence[Mapping[str, Any]], patience_s: float | None = None) -> list[str]:
    """Empty every worker's prefix cache; one sentence for each that would not.

    Each worker is asked itself: a router may answer before its workers did (sglang#27612). One that refuses, because it
    is not idle, is asked again for `patience_s`, FLUSH_TIMEOUT_S when it is None.
    """

    def one(worker: Mapping[str, Any]) -> str | None:
        url = f"{worker['url'].rstrip('/')}/flush_cache?timeout={FLUSH_TIMEOUT_S:g}"
        deadline = time.monotonic() + (FLUSH_TIMEOUT_S if patience_s is None else patience_s)
        while True:
            reply = http_json.post(url, timeout_s=FLUSH_TIMEOUT_S + 5)
            # An engine that does not wait itself (0.5.17) refuses while its last request is still on its way out.
            if reply.ok or reply.status is None or time.monotonic() >= deadline:
                return None if reply.ok else f"{worker['name']}: POST {url}: {reply.describe()}"
            time.sleep(0.2)

    return [why for why in _together(one, list(workers), PAIRS_AT_ONCE) if why]
