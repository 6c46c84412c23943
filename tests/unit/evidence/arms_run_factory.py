# SPDX-License-Identifier: Apache-2.0
"""Runs of arms for tests: three arms with seeded figures, and the real results of two H200s as such a run.

`seeded_run` makes 3 arms x 6 points x 5 repeats unless told otherwise; `h200_run` makes arms pd, tp2 and dp2.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout

from pdlab.results.latency import percentile
from pdlab.store import RunFolder
from tests.unit.report import run_folder_factory as factory

DATA = Path(__file__).parents[1] / "data" / "gpu-h200x2"
ARMS = ("pd", "tp2", "dp2")
RUN_NAME = "20260131T120000Z-a0a0a0"
SHORT = {"workload": "short", "input_len": 256, "output_len": 64, "limits": []}
RAG = {"workload": "rag", "input_len": 2048, "output_len": 64, "limits": [{"ttft_ms": 2000, "tpot_ms": 8}]}
CLOSED = (1, 16, 64)
OPEN = (2.0, 4.0, 8.0)
PROMPTS = 40


# --- an arms run, piece by piece ---------------------------------------------------------------------------------


def arm_plan(arm: str, points: Sequence[Mapping[str, Any]], rehearsal: bool = False) -> dict[str, Any]:
    """The plan of one arm on two GPUs: pd (a prefill and a decode server), tp2 (one server), dp2 (two servers).

    pd8 and tp4 are the campaign's: a prefill and a decode server on four GPUs each, one server on four.
    """

    def gpus(*numbers: int) -> dict[str, Any]:
        chips: dict[str, Any] = {"device": "cuda", "gpus": list(numbers), "numa_node": 0, "args": {}, "env": {}}
        return {} if rehearsal else {**chips, "tp": len(numbers)}

    servers = {
        "pd": [
            factory.server("prefill-0", "prefill", 30000, **gpus(0)),
            factory.server("decode-0", "decode", 30001, **gpus(1)),
        ],
        "tp2": [factory.server("colocated-0", "colocated", 30000, **gpus(0, 1))],
        "dp2": [
            factory.server("colocated-0", "colocated", 30000, **gpus(0)),
            factory.server("colocated-1", "colocated", 30001, **gpus(1)),
        ],
        "pd8": [
            factory.server("prefill-0", "prefill", 30000, **gpus(0, 1, 2, 3)),
            factory.server("decode-0", "decode", 30001, **gpus(4, 5, 6, 7)),
        ],
        "tp4": [factory.server("colocated-0", "colocated", 30000, **gpus(0, 1, 2, 3))],
    }[arm]
    made = factory.plan(rehearsal)
    made["router"]["workers"] = [
        {"name": item["name"], "role": item["role"], "url": item["url"], "bootstrap_port": item["bootstrap_port"]}
        for item in servers
    ]
    names = list(dict.fromkeys(str(point["workload"]) for point in points))
    sweep = {"name": "+".join(names), "workloads": names, "points": [dict(point) for point in points]}
    return {**made, "servers": servers, "arm": arm, "benchmark": sweep}


def planned(workload: Mapping[str, Any], prompts: int, seed: int, load: int | float, prefix: bool = True) -> dict:
    """One planned point: an int is a concurrency, a float a rate. `prefix`: the run has more than one workload."""
    is_open = isinstance(load, float)
    label = f"r{load:g}-n{prompts}" if is_open else f"c{load}-n{prompts}"
    return {
        "label": f"{workload['workload']}-{label}" if prefix else label,
        "loop": "open" if is_open else "closed",
        "concurrency": None if is_open else load,
        "rate_s": load if is_open else None,
        "prompts": prompts,
        "dataset": "random-ids",
        "range_ratio": 1.0,
        "seed": seed,
        "limit_s": 900,
        **workload,
    }


def record_of(line: Mapping[str, Any], asked: Mapping[str, Any], why: str = "", doubt: str = "") -> dict[str, Any]:
    """The record of a point. `why`: it failed so. `doubt`: its figures are kept and do not count."""
    checks = [
        {"id": "completed", "grade": "fault", "ok": not why, "seen": why or "all", "wanted": str(asked["prompts"])},
        {"id": "little", "grade": "doubt", "ok": not doubt, "seen": doubt or "1 %", "wanted": "within 5 %"},
    ]
    arrays = {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}
    return {
        **{key: value for key, value in asked.items() if key not in ("prompts", "limit_s")},
        "requested": asked["prompts"],
        "completed": line["completed"],
        "ok": not why,
        "counts": not why and not doubt,
        "why": [text for text in (why, doubt) if text],
        "error_lines": [],
        "seconds": round(line["duration"], 2),
        "checks": checks,
        "result": {key: value for key, value in line.items() if key not in arrays},
    }


def client_line(
    asked: Mapping[str, Any], ttft_s: Sequence[float], tpot_s: Sequence[float], duration: float
) -> dict[str, Any]:
    """One line of the benchmark client with --output-details, from each request's TTFT and TPOT."""
    count, tokens = len(ttft_s), asked["output_len"]
    # The gaps of one request are alike: what is asked of them is their sum.
    itls = [[round(gap, 6)] * (tokens - 1) for gap in tpot_s]
    e2e = [ttft + sum(gaps) for ttft, gaps in zip(ttft_s, itls, strict=True)]
    return {
        "tag": asked["label"],
        "backend": "sglang",
        "dataset_name": "random-ids",
        "request_rate": asked["rate_s"] or "inf",
        "max_concurrency": asked["concurrency"],
        "random_input_len": asked["input_len"],
        "random_output_len": tokens,
        "random_range_ratio": 1.0,
        "duration": duration,
        "completed": count,
        "total_input_tokens": count * asked["input_len"],
        "total_output_tokens": count * tokens,
        "total_output_tokens_retokenized": count * tokens,
        "request_throughput": count / duration,
        "input_throughput": count * asked["input_len"] / duration,
        "output_throughput": count * tokens / duration,
        "total_throughput": count * (tokens + asked["input_len"]) / duration,
        "concurrency": sum(e2e) / duration,
        "max_output_tokens_per_s": float(int(count * tokens / duration * 1.2)),
        **_aggregates("e2e_latency", e2e),
        **_aggregates("ttft", ttft_s),
        **_aggregates("tpot", tpot_s),
        **_aggregates("itl", [gap for gaps in itls for gap in gaps]),
        "input_lens": [asked["input_len"]] * count,
        "output_lens": [tokens] * count,
        "ttfts": [round(value, 6) for value in ttft_s],
        "itls": itls,
        "errors": [""] * count,
    }


class ArmsRun:
    """Builds a run of arms leg by leg, in the order in which they would run."""

    def __init__(
        self, runs_dir: Path, arms: Sequence[str], repeats: int, rehearsal: bool = False, name: str = RUN_NAME
    ) -> None:
        self.run = factory.RunMaker(runs_dir, rehearsal, name)
        self.arms, self.repeats, self.rehearsal = tuple(arms), repeats, rehearsal
        self.order: list[dict[str, Any]] = []
        self.workloads: list[str] = []
        (self.run.path / layout.LEGS).mkdir()
        (self.run.path / layout.PLAN).unlink()

    def leg(
        self,
        arm: str,
        repeat: int,
        lines: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        failed: Mapping[str, str] | None = None,
        doubtful: Mapping[str, str] | None = None,
        engine: Mapping[str, Mapping[str, float]] | None = None,
        plan_of: str | None = None,
    ) -> None:
        """One leg with its points as (planned, client line). By label: why it `failed` or is `doubtful`, and `engine`,
        the engine's own figures. `plan_of`: the arm of ARMS that it is, where it has another name."""
        failed, doubtful = failed or {}, doubtful or {}
        name = f"{len(self.order):03d}-{arm}-r{repeat}"
        leg = factory.RunMaker(self.run.path / layout.LEGS, self.rehearsal, name)
        leg.plan = {**arm_plan(plan_of or arm, [asked for asked, _line in lines], self.rehearsal), "arm": arm}
        layout.write_json(str(leg.path / layout.PLAN), leg.plan)
        leg.run["command"] = ["pdlab", "bench", "--arms", ",".join(self.arms)]
        leg.preflight()
        leg.stage("preflight")
        leg.deploy()
        leg.stage("deploy")
        leg.ready()
        leg.stage("ready")
        leg.verify()
        leg.stage("verify")
        for asked, line in lines:
            label = asked["label"]
            (leg.path / layout.BENCH / f"{label}.jsonl").write_text(json.dumps(line) + "\n")
            record = record_of(line, asked, failed.get(label, ""), doubtful.get(label, ""))
            leg.record(f"point-{label}", {**record, "engine": (engine or {}).get(label)})
        leg.stage("benchmark")
        bad = [label for label in failed if any(asked["label"] == label for asked, _line in lines)]
        leg.end("failed" if bad else "ok", 6 if bad else 0, f"point {bad[0]}: {failed[bad[0]]}" if bad else None)
        seeds = [asked["seed"] for asked, _line in lines]
        self.order.append({"id": f"{arm}-r{repeat}", "arm": arm, "repeat": repeat, "seed": seeds[0] if seeds else 0})
        self.workloads = list(dict.fromkeys([*self.workloads, *leg.plan["benchmark"]["workloads"]]))

    def end(self) -> RunFolder:
        """Write arms.json and the end of the run."""
        document = {
            "arms": list(self.arms),
            "repeats": self.repeats,
            "order": self.order,
            "workloads": self.workloads,
            "restore": self.arms[0],
        }
        layout.write_json(str(self.run.path / layout.ARMS), document)
        self.run.run["command"] = ["pdlab", "bench", "--arms", ",".join(self.arms), "--repeats", str(self.repeats)]
        self.run.stage("benchmark")
        return self.run.end("ok", 0)


def _aggregates(name: str, seconds: Sequence[float]) -> dict[str, float]:
    values = [value * 1000 for value in seconds] or [0.0]
    mean = math.fsum(values) / len(values)
    return {
        f"mean_{name}_ms": mean,
        f"median_{name}_ms": percentile(values, 0.5),
        f"std_{name}_ms": math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)),
        **{f"p{part}_{name}_ms": percentile(values, part / 100) for part in (90, 95, 99)},
    }


# --- seeded figures ----------------------------------------------------------------------------------------------


def seeded_run(
    runs_dir: Path,
    repeats: int = 5,
    arms: Sequence[str] = ARMS,
    prompts: int = PROMPTS,
    spread: float = 0.02,
    rehearsal: bool = False,
    failed: Collection[tuple[str, str]] = (),
    doubtful: Collection[tuple[str, str]] = (),
    name: str = RUN_NAME,
) -> RunFolder:
    """A run of `arms` with three closed loads of "short" and three rates of "rag" a leg; the same seed, the same run.

    On "short" pd serves fewer tokens than both others; on "rag" (TTFT <= 2000 ms, TPOT <= 8 ms) pd alone keeps the
    limits at 8 requests/s. `spread`: how much repeats differ, as a share. `failed`, `doubtful`: (leg id, label) pairs.
    """
    run = ArmsRun(runs_dir, arms, repeats, rehearsal, name)
    for repeat in range(1, repeats + 1):
        # Interleaved: every second round runs the other way around.
        for arm in arms if repeat % 2 else tuple(reversed(arms)):
            points = [
                *(planned(SHORT, prompts, 100 + repeat, load) for load in CLOSED),
                *(planned(RAG, prompts, 100 + repeat, load) for load in OPEN),
            ]
            lines = [(asked, _seeded_line(arm, repeat, asked, spread)) for asked in points]
            leg = f"{arm}-r{repeat}"
            run.leg(
                arm,
                repeat,
                lines,
                {label: "server ended during the point (signal 9)" for of, label in failed if of == leg},
                {label: "12 % off Little's law" for of, label in doubtful if of == leg},
            )
    return run.end()


def _seeded_line(arm: str, repeat: int, asked: Mapping[str, Any], spread: float) -> dict[str, Any]:
    load = asked["rate_s"] or asked["concurrency"]
    ttft, tpot = _closed_ms(arm, load) if asked["loop"] == "closed" else _open_ms(arm, load)
    # What drifts on the box is in every arm of a repeat.
    drift = random.Random(f"{repeat}").gauss(1, spread)
    draw = random.Random(f"{arm} {repeat} {asked['label']}")
    own = draw.gauss(1, spread)
    prompts = asked["prompts"]
    ttfts = [ttft * drift * own * draw.uniform(0.7, 1.3) / 1000 for _ in range(prompts)]
    tpots = [tpot * drift * own * draw.gauss(1, 0.05) / 1000 for _ in range(prompts)]
    e2e = sum(ttfts) + sum(tpots) * (asked["output_len"] - 1)
    duration = prompts / load if asked["loop"] == "open" else e2e / load * 1.02
    return client_line(asked, ttfts, tpots, duration)


def _closed_ms(arm: str, load: float) -> tuple[float, float]:
    """TTFT and TPOT of "short"."""
    return {
        "pd": (30 + 6 * load, 5 + 0.03 * load),
        "tp2": (45 + 3 * load, 3.5 + 0.04 * load),
        "dp2": (25 + 2 * load, 5 + 0.04 * load),
    }[arm]


def _open_ms(arm: str, rate: float) -> tuple[float, float]:
    """TTFT and TPOT of "rag"."""
    return {
        "pd": (150 + 40 * rate, 5 + 0.1 * rate),
        "tp2": (100 + 10 * rate, 4 + 0.9 * rate),
        "dp2": (100 + 8 * rate, 5 + 0.8 * rate),
    }[arm]


# --- two H200s ---------------------------------------------------------------------------------------------------

_NAMES = {(256, 128): "short", (4096, 128): "long-input", (256, 1024): "long-output", (4096, 16): "prefill-only"}
_OPEN_NAMES = {(4096, 128): "rag", (2048, 512): "chat"}
H200_LIMITS = [{"ttft_ms": 2000, "tpot_ms": tpot} for tpot in (6, 8, 12)]


def h200_run(runs_dir: Path, arms: Sequence[str] = ARMS, name: str = RUN_NAME) -> RunFolder:
    """The real results of two H200s as a run of arms (tests/unit/data/gpu-h200x2).

    Closed loops ran twice (repeats 1 and 2), but 4096/16 once; open loops ran once (repeat 1), under three TPOT limits.
    Their per-request values are kept; those of closed loops are not.
    """
    run = ArmsRun(runs_dir, arms, 2, name=name)
    legs: dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    seen: dict[tuple[Any, ...], int] = {}
    for text in (DATA / "bench.jsonl").read_text().splitlines():
        raw = json.loads(text)
        lengths = (raw["random_input_len"], raw["random_output_len"])
        key = (raw["tag"], raw["max_concurrency"], lengths)
        seen[key] = seen.get(key, 0) + 1
        workload = {"workload": _NAMES[lengths], "input_len": lengths[0], "output_len": lengths[1], "limits": []}
        asked = planned(workload, raw["completed"], seen[key], raw["max_concurrency"])
        legs.setdefault((raw["tag"], seen[key]), []).append((asked, raw))
    for text in (DATA / "goodput.jsonl").read_text().splitlines():
        raw = json.loads(text)
        lengths = (raw["i"], raw["o"])
        workload = {
            "workload": _OPEN_NAMES[lengths],
            "input_len": lengths[0],
            "output_len": lengths[1],
            "limits": H200_LIMITS,
        }
        asked = planned(workload, raw["n"], 1, float(raw["rate"]))
        line = client_line(
            asked, [value / 1000 for value in raw["ttft"]], [value / 1000 for value in raw["tpot"]], raw["duration"]
        )
        legs.setdefault((raw["tag"], 1), []).append((asked, line))
    for repeat in (1, 2):
        for arm in arms:
            lines = legs.get((arm, repeat), [])
            run.leg(arm, repeat, lines, engine={asked["label"]: _kv_of(asked, line) for asked, line in lines})
    return run.end()


def _kv_of(asked: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, float]:
    """The KV transfers of a point on H200s: 128 KiB a prompt token; lone prompts of 4096 went at 57.5 GB/s."""
    tokens = line["total_input_tokens"]
    found = {"prompt_tokens": tokens, "kv_transfer_bytes": tokens * 131072.0}
    return {**found, "kv_transfer_gb_s": 57.5} if (asked["concurrency"], asked["input_len"]) == (1, 4096) else found


# --- the campaign ------------------------------------------------------------------------------------------------

CAMPAIGN = "rtx-pro-6000-campaign.yml"
# 60544 bytes a prompt token at most, over a path of 0.1 GB/s at least: the baseline's assumptions.
CAMPAIGN_KV = {"kv_transfer_bytes": 60544.0, "prompt_tokens": 1, "kv_transfer_gb_s": 0.1}


def campaign_run(runs_dir: Path, name: str = RUN_NAME) -> RunFolder:
    """The hand-made campaign's table as a run of arms pd8 and tp4: one run of each, figures as it noted them.

    A latency whose kind it did not note stands as a mean. It noted tok/s; requests/s are these over the mean length.
    """
    text = (resources.files("pdlab.bench") / "baselines" / CAMPAIGN).read_text(encoding="utf-8")
    run = ArmsRun(runs_dir, ("pd8", "tp4"), 1, name=name)
    for arm, column in (("pd8", "pd"), ("tp4", "tp4")):
        lines, engine = [], {}
        for row in yaml.safe_load(text)["points"]:
            workload = {"workload": "campaign", "input_len": 256, "output_len": 128, "limits": []}
            asked = {**planned(workload, row["prompts"], 1, row["concurrency"], prefix=False), "range_ratio": 0.0}
            figures = row[column]
            latencies = {
                f"mean_{kind}": next((value for value in figures[kind].values() if value is not None), 0.0)
                for kind in ("ttft_ms", "tpot_ms")
            }
            rate = figures["output_tok_s"] / 64.5
            line = {
                "duration": row["prompts"] / rate,
                "completed": row["prompts"],
                "output_throughput": figures["output_tok_s"],
                "request_throughput": rate,
                "total_output_tokens": round(row["prompts"] * 64.5),
                **latencies,
            }
            lines.append((asked, line))
            engine[asked["label"]] = CAMPAIGN_KV if column == "pd" else {}
        run.leg(arm, 1, lines, engine=engine)
    return run.end()
