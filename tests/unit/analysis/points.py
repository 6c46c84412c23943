# SPDX-License-Identifier: Apache-2.0
"""Points for the analysis' tests: made up, of the campaign, and of two H200s (tests/unit/data/gpu-h200x2)."""

from __future__ import annotations

import functools
import json
from collections import Counter
from importlib import resources
from pathlib import Path

import yaml

from pdlab.analysis.baseline_points import baseline_points
from pdlab.analysis.measurement import KvFacts, Measurement, Requests, Servers

DATA = Path(__file__).parents[1] / "data" / "gpu-h200x2"
H200_SERVERS = {
    "pd": Servers(1, 1, gpus=2),
    "pd64": Servers(1, 1, gpus=2),
    "pdtcp": Servers(1, 1, gpus=2),
    "tp2": Servers(0, 0, colocated=1, gpus=2),
    "tp2c": Servers(0, 0, colocated=1, gpus=2),
    "dp2": Servers(0, 0, colocated=2, gpus=2),
}
# 128 KiB of KV cache a token; --max-total-tokens 200000; GB/s: the engine's kv_transfer_speed_gb_s of lone requests
# over cuda_ipc, and the NIXL probe over tcp,cuda_copy with 256 MiB.
H200_KV = {
    "pd": KvFacts(131072, 57.5, 200_000),
    "pd64": KvFacts(131072, 57.5, 200_000),
    "pdtcp": KvFacts(131072, 0.38, 200_000),
}


def point(**changes) -> Measurement:
    """A point whose figures agree with each other, with changes."""
    fields = {
        "label": "made-up",
        "request_s": 10.0,
        "input_len": 256,
        "output_len": 101,
        "ttft_ms": 100.0,
        "tpot_ms": 5.0,
        "concurrency": 6,
        "requested": 100,
        "completed": 100,
        "duration_s": 10.0,
    }
    return Measurement(**{**fields, **changes})


@functools.cache
def campaign() -> dict[str, dict[int, Measurement]]:
    """The campaign's points by arm and concurrency."""
    file = resources.files("pdlab.bench") / "baselines" / "rtx-pro-6000-campaign.yml"
    found: dict[str, dict[int, Measurement]] = {}
    for one in baseline_points(yaml.safe_load(file.read_text(encoding="utf-8"))):
        found.setdefault(one.arm, {})[int(one.concurrency)] = one
    return found


@functools.cache
def h200() -> tuple[Measurement, ...]:
    """The closed-loop points of two H200s; repeats are numbered in the order in which they ran."""
    seen: Counter = Counter()
    found = []
    for line in (DATA / "bench.jsonl").read_text().splitlines():
        raw = json.loads(line)
        lengths = (raw["random_input_len"], raw["random_output_len"])
        key = (raw["tag"], raw["max_concurrency"], *lengths)
        found.append(
            Measurement(
                label=f"{key[0]}-c{key[1]}-{key[2]}-{key[3]}",
                arm=raw["tag"],
                repeat=seen[key],
                concurrency=raw["max_concurrency"],
                input_len=lengths[0],
                output_len=lengths[1],
                request_s=raw["request_throughput"],
                ttft_ms=raw["mean_ttft_ms"],
                tpot_ms=raw["mean_tpot_ms"],
                e2e_ms=raw["mean_e2e_latency_ms"],
                requested=raw["completed"],
                completed=raw["completed"],
                duration_s=raw["duration"],
                servers=H200_SERVERS[raw["tag"]],
                kv=H200_KV.get(raw["tag"], KvFacts()),
            )
        )
        seen[key] += 1
    return tuple(found)


def repeats(arm: str, concurrency: int, input_len: int, output_len: int) -> list[Measurement]:
    """The runs of one H200 point in the order of their seeds."""
    wanted = (arm, concurrency, input_len, output_len)
    return [one for one in h200() if (one.arm, one.concurrency, one.input_len, one.output_len) == wanted]


@functools.cache
def h200_rates() -> tuple[Measurement, ...]:
    """The open-loop points of two H200s, with per-request TTFT and TPOT."""
    found = []
    for line in (DATA / "goodput.jsonl").read_text().splitlines():
        raw = json.loads(line)
        found.append(
            Measurement(
                label=f"{raw['tag']}-r{raw['rate']}-{raw['i']}-{raw['o']}",
                arm=raw["tag"],
                rate_s=raw["rate"],
                input_len=raw["i"],
                output_len=raw["o"],
                request_s=raw["completed"] / raw["duration"],
                ttft_ms=sum(raw["ttft"]) / len(raw["ttft"]),
                tpot_ms=sum(raw["tpot"]) / len(raw["tpot"]),
                requested=raw["n"],
                completed=raw["completed"],
                duration_s=raw["duration"],
                servers=H200_SERVERS[raw["tag"]],
                requests=Requests(tuple(raw["ttft"]), tuple(raw["tpot"])),
            )
        )
    return tuple(found)


def rates(arm: str, input_len: int, output_len: int) -> list[Measurement]:
    """One arm's open-loop points of one length mix."""
    return [one for one in h200_rates() if (one.arm, one.input_len, one.output_len) == (arm, input_len, output_len)]
