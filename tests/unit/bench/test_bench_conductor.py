# SPDX-License-Identifier: Apache-2.0
"""The order of one point: pairs, warm-up, flush, counters, measurement; and what is known of it afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    bench_checks,
    bench_conductor,
    bench_warmup,
    bench_watched,
    engine_metrics,
)

from tests.unit.bench.engine_standin import Server
from tests.unit.bench.recorded import GOOD_POINT, output

# A client that sends the measured requests: 12 prompts of 64 ids, and lets the test say more.
CLIENT = """
import json, sys, urllib.request

def send(url, ids):
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 32}}
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url + "/generate", json.dumps(body).encode(), headers)).read()

if __name__ == "__main__":
    for index in range(int(sys.argv[2])):
        send(sys.argv[1], [7] * 64 if sys.argv[3:] == ["alike"] else [1000 + index] * 64)
"""


COLLECTIONS = Path(__file__).parents[3] / ".collections"
# In a process of its own, which forks: this one has threads.
DRIVER = f"""
import json, sys
import client_script
from {bench_conductor.__name__.rpartition(".")[0]} import bench_conductor, bench_warmup
bench_conductor.SETTLE_S, bench_warmup.FLUSH_TIMEOUT_S = 0.3, 0.2
# The patience is a default, which was taken when the module was read.
bench_warmup.flush.__defaults__ = (0.2,)
sys.exit(bench_conductor.conduct(json.load(open(sys.argv[1]))))
"""


@dataclass
class Stack:
    folder: Path
    events: list[str]
    prefill: list[Server]
    decode: list[Server]
    router: Server

    def setup(self, *more: str, prompts: int = 12, every_s: float = 0.1) -> dict[str, Any]:
        (self.folder / "client_script.py").write_text(CLIENT)
        script = ["client_script", self.router.url, str(prompts), *more]
        return {
            "client": {"argv": script, "report": str(self.folder / "report")},
            "environment": {},
            "base_url": self.router.url,
            "workers": [server.worker for server in (*self.prefill, *self.decode)],
            "router_metrics": None,
            "warmup": {
                "requests": 4,
                "concurrency": 4,
                "input_len": 64,
                "output_len": 128,
                "vocabulary": 512,
                "seed": "a seed",
            },
            "prompts": 12,
            "every_s": every_s,
            "samples": str(self.folder / "samples.jsonl"),
            "result": str(self.folder / "conducted.json"),
        }

    def conduct(
        self, *more: str, prompts: int = 12, every_s: float = 0.1, driver: str = DRIVER
    ) -> tuple[int, dict[str, Any]]:
        setup = self.folder / "setup.json"
        setup.write_text(json.dumps(self.setup(*more, prompts=prompts, every_s=every_s)))
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}:{COLLECTIONS}"}
        command = [sys.executable, "-c", driver, str(setup)]
        code = subprocess.run(command, env=environment, cwd=self.folder, timeout=60).returncode
        return code, json.loads((self.folder / "conducted.json").read_text())

    def engine(self, conducted: dict[str, Any]) -> dict[str, Any]:
        samples = bench_watched.read_samples((self.folder / "samples.jsonl").read_text())
        workers = [server.worker for server in (*self.prefill, *self.decode)]
        return bench_watched.watched(conducted, {}, samples, workers)

    def doubts(self, conducted: dict[str, Any]) -> set[str]:
        whole = {**output("good"), "cached_tokens": [0] * 12}
        watched = {
            **self.engine(conducted),
            "client": {"cpu_share": 0.1, "loop_lag_ms": {"mean": 0.1, "p99": 0.1, "max": 0.1}},
        }
        return {check["id"] for check in bench_checks.judge(GOOD_POINT, whole, conducted, watched) if not check["ok"]}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    events: list[str] = []
    prefill = [Server(f"prefill-{n}", "prefill", events) for n in (0, 1)]
    decode = [Server(f"decode-{n}", "decode", events) for n in (0, 1, 2)]
    router = Server("router", "router", events, (prefill[0], decode[0]))
    yield Stack(tmp_path, events, prefill, decode, router)
    for server in (*prefill, *decode, router):
        server.shutdown()
        server.server_close()


def test_every_pair_is_touched_then_the_router_at_the_points_concurrency_then_every_cache_is_emptied(
    stack: Stack,
) -> None:
    code, conducted = stack.conduct()
    assert code == 0
    rooms: dict[str, set[str]] = {}
    for event in stack.events:
        if event.startswith("pair "):
            _, name, room = event.split()
            rooms.setdefault(room, set()).add(name)
    wanted = {frozenset((p.name, d.name)) for p in stack.prefill for d in stack.decode}
    assert {frozenset(names) for names in rooms.values()} == wanted and len(rooms) == 6
    assert (conducted["pairs"]["touched"], conducted["pairs"]["pairs"]) == (6, 6)
    assert (conducted["warmup"]["answered"], conducted["warmup"]["concurrency"]) == (4, 4)
    assert stack.router.most_in_flight == 4
    flushed = [index for index, event in enumerate(stack.events) if event.startswith("flush")]
    warmed = [index for index, event in enumerate(stack.events) if event == "request router"]
    assert len(flushed) == 5 and warmed[3] < min(flushed) and max(flushed) < warmed[4]


def test_between_the_two_counts_lies_the_measurement_and_nothing_else(stack: Stack) -> None:
    _code, conducted = stack.conduct()
    gained = engine_metrics.gained(conducted["start"], conducted["end"])
    assert gained["prefill-0"]["prompt_tokens_total"] == 12 * 64
    assert gained["decode-0"]["generation_tokens_total"] == 12 * 32
    assert stack.doubts(conducted) == set()


def test_samples_tell_each_phase_and_what_every_server_said(stack: Stack) -> None:
    _code, conducted = stack.conduct()
    samples = bench_watched.read_samples((stack.folder / "samples.jsonl").read_text())
    phases = list(dict.fromkeys(sample["phase"] for sample in samples))
    assert phases == ["before", "warmup", "measuring", "after"]
    assert all(set(sample["servers"]) == {s.name for s in (*stack.prefill, *stack.decode)} for sample in samples)
    assert all(sample["box"]["load_1m"] is not None for sample in samples)
    assert conducted["places"] == 3 * 48
    engine = stack.engine(conducted)["engine"]
    assert engine["decode_running"] == 9 and engine["samples"] >= engine_metrics.LEAST_SAMPLES


def test_a_warm_up_that_is_shorter_than_the_interval_has_its_sample(stack: Stack) -> None:
    _code, conducted = stack.conduct(every_s=60)
    samples = bench_watched.read_samples((stack.folder / "samples.jsonl").read_text())
    phases = [sample["phase"] for sample in samples]
    assert phases[:2] == ["before", "warmup"] and set(phases[2:]) == {"after"}
    assert conducted["start"] == samples[1]["servers"]


def test_a_cache_that_is_warm_is_found(stack: Stack) -> None:
    _code, conducted = stack.conduct("alike")
    assert stack.doubts(conducted) == {"cache_warm"}


def test_a_worker_that_will_not_flush_is_found(stack: Stack) -> None:
    stack.decode[1].flushes = False
    _code, conducted = stack.conduct()
    assert stack.doubts(conducted) == {"cache_not_flushed"}


def test_a_pair_that_does_not_answer_is_found(stack: Stack) -> None:
    stack.decode[2].broken = True
    _code, conducted = stack.conduct()
    assert conducted["pairs"]["touched"] == 4
    assert stack.doubts(conducted) == {"warmup_incomplete"}


def test_requests_that_the_engine_did_not_get_are_found(stack: Stack) -> None:
    _code, conducted = stack.conduct(prompts=11)
    assert stack.doubts(conducted) == {"tokens_missing"}


def test_somebody_elses_requests_are_found(stack: Stack) -> None:
    _code, conducted = stack.conduct(prompts=13)
    assert stack.doubts(conducted) == {"foreign_load"}


def test_a_client_that_ends_before_its_word_ends_the_point_with_its_own_status(stack: Stack) -> None:
    killed = "bench_conductor.bench_client.run = lambda *_: -9\n"
    code, conducted = stack.conduct(driver=DRIVER.replace("sys.exit", killed + "sys.exit"))
    assert code == -9 & 0xFF
    assert conducted["warmup"]["answered"] == 4 and "go" not in conducted


def test_prompts_of_a_warm_up_are_all_different_and_within_the_vocabulary() -> None:
    prompts = bench_warmup.Prompts("x", 64, 300)
    drawn = [prompts.ids() for _ in range(50)]
    assert len({tuple(ids) for ids in drawn}) == 50
    assert {len(ids) for ids in drawn} == {64}
    assert all(bench_warmup.FIRST_ID <= one < 300 for ids in drawn for one in ids)
