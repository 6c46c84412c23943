# SPDX-License-Identifier: GPL-3.0-or-later
"""From one benchmark point to the command line of SGLang's own client. Pure: no I/O, no shell.

Flags are those of sglang 0.5.23 (`python -m sglang.benchmark.serving --help`).
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH, flag_arguments
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_versions import client_flags, draws_each_id

CLIENT_MODULE = "sglang.benchmark.serving"
# The client's name for prompts of which each is a run of consecutive ids.
RANDOM_IDS = "random-ids"

# What makes a point the point that was asked for; `args` may not say otherwise.
OWN_FLAGS = frozenset(
    {
        "backend",
        "base-url",
        "cache-report",
        "dataset-name",
        "disable-ignore-eos",
        "disable-stream",
        "disable-tqdm",
        "extra-request-body",
        "gsp-num-groups",
        "gsp-output-len",
        "gsp-prompts-per-group",
        "gsp-question-len",
        "gsp-range-ratio",
        "gsp-system-prompt-len",
        "rust-client",
        "flush-cache",
        "host",
        "max-concurrency",
        "model",
        "num-prompts",
        "output-details",
        "output-file",
        "port",
        "random-input-len",
        "random-output-len",
        "random-range-ratio",
        "request-rate",
        "seed",
        "served-model-name",
        "tokenize-prompt",
        "tokenizer",
        "warmup-requests",
    }
)

READY_CHECK_S = 10
# An open loop's concurrency is what comes of it; its warm-up has what arrives in so many seconds, so many at most.
OPEN_WARMUP_S, OPEN_WARMUP_MOST = 4.0, 64


def warmup_load(point: Mapping[str, Any], pairs: int = 1, requests: int | None = None) -> tuple[int, int]:
    """How many requests warm the router up before a point is measured, and how many of them are in flight at once.

    A closed loop is warmed up at its own concurrency, with two requests for each pair of prefill and decode at least.
    They are short (32 output tokens), so this costs little even at high concurrency.
    """
    if is_open(point):
        at_once = min(OPEN_WARMUP_MOST, max(1, math.ceil(point["rate_s"] * OPEN_WARMUP_S)))
    else:
        at_once = int(point["concurrency"])
    return (requests if requests is not None else max(at_once, 2 * pairs)), at_once


def refused_flags(args: Mapping[str, Any]) -> list[str]:
    """The keys of `args` that name a flag which the point itself decides."""
    return [key for key in args if _flag_name(key) in OWN_FLAGS]


def client_argv(point: Mapping[str, Any], target: Mapping[str, Any]) -> list[str]:
    """The client's command line for one point.

    `point` is a POINT: concurrency, prompts, input_len, output_len (tokens), range_ratio, seed.
    `target` has: python (of the engine), base_url (the router's), served_name, tokenizer (directory),
    output_file (JSONL, appended to by the client) and may have sglang (its version: flags that an older client lacks are
    left out) and args (further flags).

    Why these flags:
    - Prompts of random ids need no data set from the network, and `--tokenize-prompt` sends the ids themselves, so that
      the prompt's length is exact; as text it would be tokenized anew. See _dataset for who draws them.
    - `--random-range-ratio` always: the client's default, 0.0, draws lengths uniformly from one token up.
    - No warm-up and no flush: bench_warmup does both before the client is let go, for every pair and every worker.
      `--cache-report` shows what was cached nevertheless.
    - `--goodput` with the first of the point's limits. Any other limit can be asked of the times kept per request.
    - `--model` is the tokenizer's directory: the client looks for a chat template there before all else, and a
      served name is no place to look. Native /generate requests carry no model name.

    Raises ValueError when `args` names a flag that the point decides (see refused_flags).
    """
    args = target.get("args") or {}
    refused = refused_flags(args)
    if refused:
        raise ValueError("the point itself decides: " + ", ".join(refused))
    own: dict[str, Any] = {
        "backend": "sglang",
        "base-url": target["base_url"],
        "model": target["tokenizer"],
        "served-model-name": target["served_name"],
        "tokenizer": target["tokenizer"],
        **_dataset(point, target.get("sglang")),
        "tokenize-prompt": True,
        "seed": point["seed"],
        "num-prompts": point["prompts"],
        **_load(point),
        **_goodput(point),
        "warmup-requests": 0,
        "ready-check-timeout-sec": READY_CHECK_S,
        "cache-report": True,
        "output-file": target["output_file"],
        "output-details": True,
    }
    own = client_flags(own, target.get("sglang"))
    own.update({_flag_name(key): value for key, value in args.items()})
    return [target["python"], "-m", CLIENT_MODULE, *flag_arguments(own)]


def is_open(point: Mapping[str, Any]) -> bool:
    """Whether requests arrive on their own time instead of when others end."""
    return point.get("loop") == "open"


def _load(point: Mapping[str, Any]) -> dict[str, Any]:
    """The client draws exponential gaps between requests: Poisson arrivals, with no limit of requests in flight."""
    if is_open(point):
        return {"request-rate": float(point["rate_s"])}
    return {"max-concurrency": point["concurrency"]}


# The client's words for the names of limits.
_LIMITS = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2el"}


def _goodput(point: Mapping[str, Any]) -> dict[str, Any]:
    first: Mapping[str, Any] = next(iter(point.get("limits") or []), {})
    slos = [f"{_LIMITS[name]}:{value:g}" for name, value in first.items() if name in _LIMITS and value is not None]
    return {"goodput": slos} if slos else {}


def _dataset(point: Mapping[str, Any], sglang: str | None) -> dict[str, Any]:
    """Prompts that have nothing in common, or that begin with one of some prefixes.

    The client's own `random-ids` gives consecutive ids from a random start (0.5.23, sglang/benchmark/datasets/random.py):
    there are as many prompts as ids, and with many prompts or a small vocabulary some come twice, which the prefix cache
    then answers. Its shared-prefix generator draws each id by itself. With a prefix of one token for each prompt it
    gives prompts of random ids of exactly the length that is asked for. An older one takes no ids (0.5.17).
    """
    if point.get("dataset") == "shared-prefix":
        groups, prefix = point["prefix_groups"], point["prefix_len"]
    elif point["range_ratio"] >= 1.0 and point["input_len"] > 1 and draws_each_id(sglang):
        groups, prefix = point["prompts"], 1
    else:
        return {
            "dataset-name": RANDOM_IDS,
            "random-input-len": point["input_len"],
            "random-output-len": point["output_len"],
            "random-range-ratio": float(point["range_ratio"]),
        }
    return {
        "dataset-name": "generated-shared-prefix",
        "gsp-num-groups": groups,
        "gsp-prompts-per-group": point["prompts"] // groups,
        "gsp-system-prompt-len": prefix,
        "gsp-question-len": point["input_len"] - prefix,
        "gsp-output-len": point["output_len"],
        "gsp-range-ratio": 1.0,
    }


def client_environment(
    python: str, pythonpath: Sequence[str] = (), engine: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The client's whole environment, less HOME. It never asks a model hub: all that it needs lies on the target.

    `engine`: variables without which this engine cannot be imported.
    """
    return {
        "PATH": posixpath.dirname(python) + ":" + SYSTEM_PATH,
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **({"PYTHONPATH": ":".join(pythonpath)} if pythonpath else {}),
        **(engine or {}),
    }


def _flag_name(key: str) -> str:
    return key.lstrip("-").replace("_", "-")
