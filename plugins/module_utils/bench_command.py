# SPDX-License-Identifier: GPL-3.0-or-later
"""From one benchmark point to the command line of SGLang's own client. Pure: no I/O, no shell.

Flags are those of sglang 0.5.23 (`python -m sglang.benchmark.serving --help`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH, flag_arguments
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_versions import client_flags

CLIENT_MODULE = "sglang.benchmark.serving"

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
FLUSH_WAIT_S = 30


def warmup_requests(concurrency: int, pairs: int = 1) -> int:
    """How many requests warm the path up before a point of this concurrency is measured.

    Every prefill-decode pair is met twice (the first request over a pair sets up its UCX connection), and the load
    comes near to the point's own, without a long warm-up at high concurrency. The client runs them at the point's
    concurrency, with 32 output tokens at most each.
    """
    return max(2 * pairs, min(concurrency, 16))


def refused_flags(args: Mapping[str, Any]) -> list[str]:
    """The keys of `args` that name a flag which the point itself decides."""
    return [key for key in args if _flag_name(key) in OWN_FLAGS]


def client_argv(point: Mapping[str, Any], target: Mapping[str, Any]) -> list[str]:
    """The client's command line for one point.

    `point` is a POINT: concurrency, prompts, input_len, output_len (tokens), range_ratio, seed.
    `target` has: python (of the engine), base_url (the router's), served_name, tokenizer (directory),
    output_file (JSONL, appended to by the client) and may have warmup (requests), pairs (of prefill and decode),
    sglang (its version: flags that an older client lacks are left out) and args (further flags, such as {"goodput": ["ttft:500", "tpot:50"]}).

    Why these flags:
    - random-ids needs no data set from the network, and `--tokenize-prompt` sends the ids themselves, so that the
      prompt's length is exact; as text it would be tokenized anew.
    - `--random-range-ratio` always: the client's default, 0.0, draws lengths uniformly from one token up.
    - `--flush-cache` after the warm-up, whose prompt is the first one measured; `--cache-report` shows what was
      cached nevertheless.
    - `--model` is the tokenizer's directory: the client looks for a chat template there before all else, and a
      served name is no place to look. Native /generate requests carry no model name.

    Raises ValueError when `args` names a flag that the point decides (see refused_flags).
    """
    args = target.get("args") or {}
    refused = refused_flags(args)
    if refused:
        raise ValueError("the point itself decides: " + ", ".join(refused))
    warmup = target.get("warmup")
    if warmup is None:
        warmup = warmup_requests(point.get("concurrency") or 8, target.get("pairs") or 1)
    own: dict[str, Any] = {
        "backend": "sglang",
        "base-url": target["base_url"],
        "model": target["tokenizer"],
        "served-model-name": target["served_name"],
        "tokenizer": target["tokenizer"],
        **_dataset(point),
        "tokenize-prompt": True,
        "seed": point["seed"],
        "num-prompts": point["prompts"],
        **_load(point),
        "warmup-requests": warmup,
        "ready-check-timeout-sec": READY_CHECK_S,
        "flush-cache": True,
        "flush-cache-timeout": FLUSH_WAIT_S,
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


def _dataset(point: Mapping[str, Any]) -> dict[str, Any]:
    """Prompts that have nothing in common, or that begin with one of some prefixes."""
    if point.get("dataset") != "shared-prefix":
        return {
            "dataset-name": "random-ids",
            "random-input-len": point["input_len"],
            "random-output-len": point["output_len"],
            "random-range-ratio": float(point["range_ratio"]),
        }
    return {
        "dataset-name": "generated-shared-prefix",
        "gsp-num-groups": point["prefix_groups"],
        "gsp-prompts-per-group": point["prompts"] // point["prefix_groups"],
        "gsp-system-prompt-len": point["prefix_len"],
        "gsp-question-len": point["input_len"] - point["prefix_len"],
        "gsp-output-len": point["output_len"],
        "gsp-range-ratio": 1.0,
    }


def client_environment(python: str, home: str, pythonpath: Sequence[str] = ()) -> dict[str, str]:
    """The client's whole environment. It never asks a model hub: all that it needs lies on the target."""
    return {
        "PATH": posixpath.dirname(python) + ":" + SYSTEM_PATH,
        "HOME": home,
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **({"PYTHONPATH": ":".join(pythonpath)} if pythonpath else {}),
    }


def _flag_name(key: str) -> str:
    return key.lstrip("-").replace("_", "-")
