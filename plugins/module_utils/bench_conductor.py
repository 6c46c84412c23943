# SPDX-License-Identifier: GPL-3.0-or-later
"""One benchmark point from its warm-up to its last sample: runs on the target, beside the servers' router.

Runs in a process that has imported the client (bench_forkserver). The order: the client is forked and waits for its word;
every pair of prefill and decode is touched; the router is warmed up at the point's concurrency; every cache is emptied,
server by server; the engine's counters are read; the client gets the word to go. So between the two readings of the
counters lies the measurement and nothing else. While all this goes on, another thread asks every server, the router and
the box how they are, about once a second.

The setup: {"client": {"argv": [module, argument…], "report"}, "environment", "base_url",
"workers": [{"name", "url", "role", "bootstrap_port"}], "router_metrics": URL or null,
"warmup": {"requests", "concurrency", "input_len", "output_len", "vocabulary", "seed"}, "prompts", "every_s", "samples"
and "result" (where this writes)}.

The samples are JSON lines: {"time", "phase": "before"|"warmup"|"measuring"|"after", "servers": {NAME: {metric: value}},
"router", "box"}. The result is JSON: {"pairs", "warmup", "flush" (faults), "start" and "end" (counters by server),
"places", "go", "unread" (servers without metrics), "scrape_s"}. The exit status is the client's own.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    bench_client,
    bench_warmup,
    box_telemetry,
    engine_metrics,
    http_json,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.forked import Forked

SCRAPE_TIMEOUT_S = 3.0
# Counters move when a request's last token has left the engine; the client may be a little faster.
SETTLE_S = 2.0
BUSY_SAMPLES = 12


class Sampler:
    """Asks servers, router and box how they are, in a thread of its own, and writes what they say."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._workers = setup["workers"]
        self._router_metrics = setup.get("router_metrics")
        self._every_s = float(setup["every_s"])
        self._stream = open(setup["samples"], "a", encoding="utf-8")  # noqa: SIM115  closed by close()
        self._gpus = box_telemetry.GpuWatch(self._every_s)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.phase = "before"
        self.scrape_s = 0.0

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def _run(self) -> None:
        """About one sample in `every_s`; four times as many until a dozen have seen requests, for points of seconds."""
        busy = 0
        while not self._over.wait(self._every_s / (4 if self.phase == "measuring" and busy < BUSY_SAMPLES else 1)):
            seen = self.sample()
            busy += self.phase == "measuring" and any(
                page.get(name, 0.0) > 0 for page in seen.values() for name in engine_metrics.QUEUES
            )

    def counters(self) -> engine_metrics.Snapshot:
        """What every server that can be read says now."""
        pages = {}
        for worker in self._workers:
            reply = http_json.get(worker["url"].rstrip("/") + "/metrics", SCRAPE_TIMEOUT_S)
            page = engine_metrics.read_engine(reply.text) if reply.ok else None
            if page is not None:
                pages[worker["name"]] = page
        return pages

    def sample(self) -> engine_metrics.Snapshot:
        """Take one sample and write it; what the servers said."""
        with self._lock:
            phase, now, begun = self.phase, time.time(), time.monotonic()
            servers, router = self.counters(), None
            if self._router_metrics:
                reply = http_json.get(self._router_metrics, SCRAPE_TIMEOUT_S)
                router = engine_metrics.read_router(reply.text) if reply.ok else None
            took = time.monotonic() - begun
            self.scrape_s += took
            line = {"time": round(now, 3), "phase": phase, "servers": servers, "router": router}
            line["box"] = box_telemetry.reading(self._gpus)
            self._stream.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._stream.flush()
            return servers

    def close(self) -> None:
        """Take no more samples."""
        self._over.set()
        self._thread.join(SCRAPE_TIMEOUT_S * (len(self._workers) + 2))
        self._gpus.close()
        self._stream.close()


def places(workers: list[Mapping[str, Any]]) -> float | None:
    """How many requests the decode (or colocated) servers take at once, all together; None when one does not say."""
    found = 0.0
    for worker in workers:
        if worker.get("role") == "prefill":
            continue
        reply = http_json.get(worker["url"].rstrip("/") + "/server_info", SCRAPE_TIMEOUT_S)
        info = reply.body if reply.ok and isinstance(reply.body, Mapping) else {}
        states = info.get("internal_states") or [{}]
        each = states[0].get("effective_max_running_requests_per_dp") if isinstance(states[0], Mapping) else None
        ranks = info.get("dp_size") if each else 1
        value = each or info.get("max_running_requests")
        if not isinstance(value, (int, float)):
            return None
        found += float(value) * float(ranks or 1)
    return found or None


def fork_client(setup: Mapping[str, Any]) -> tuple[Forked, int]:
    """The client, which waits, and the descriptor on which it takes its word."""
    go_there, go_here = os.pipe()

    def run() -> int:
        # Its own copy of the other end would hide that this process is gone.
        os.close(go_here)
        return bench_client.run(setup["client"]["argv"], setup["client"]["report"], go_there)

    client = Forked(run, setup["environment"])
    os.close(go_there)
    return client, go_here


def conduct(setup: Mapping[str, Any]) -> int:
    """Run the point; the client's exit status, -N when signal N ended it."""
    # Before there is another thread here.
    client, go = fork_client(setup)
    sampler = Sampler(setup)
    result: dict[str, Any] = {}
    try:
        said = sampler.sample()
        result["unread"] = [worker["name"] for worker in setup["workers"] if worker["name"] not in said]
        result["places"] = places(setup["workers"])
        sampler.phase = "warmup"
        sampler.start()
        warmup = setup["warmup"]
        prompts = bench_warmup.Prompts(warmup["seed"], warmup["input_len"], warmup["vocabulary"])
        tell(f"warm-up of {len(bench_warmup.pairs(setup['workers']))} pairs")
        result["pairs"] = bench_warmup.touch_pairs(setup["workers"], prompts)
        tell(f"warm-up with {warmup['requests']} requests, {warmup['concurrency']} at once")
        result["warmup"] = bench_warmup.through_router(
            setup["base_url"], warmup["requests"], warmup["concurrency"], warmup["output_len"], prompts
        )
        result["flush"] = bench_warmup.flush(setup["workers"])
        # As a sample, so that each phase has one, however short the warm-up was.
        result["start"] = sampler.sample()
        if client.poll() is not None:
            return client.wait()
        result["go"] = time.time()
        sampler.phase = "measuring"
        os.write(go, b"g")
        code = client.wait()
        sampler.phase = "after"
        result["end"] = settled(sampler, result["start"], setup)
        result["scrape_s"] = round(sampler.scrape_s, 3)
        return code
    finally:
        sampler.close()
        write(setup["result"], result)


def settled(sampler: Sampler, start: engine_metrics.Snapshot, setup: Mapping[str, Any]) -> engine_metrics.Snapshot:
    """The counters when the last request has been counted, or after SETTLE_S: the last sample."""
    if not start:
        return sampler.sample()
    answering = engine_metrics.by_role(setup["workers"])["decode"]
    deadline = time.monotonic() + SETTLE_S
    while True:
        end = sampler.sample()
        counted = engine_metrics.gained(start, end)
        if engine_metrics.total(counted, answering, "num_requests_total") >= setup["prompts"]:
            return end
        if time.monotonic() >= deadline:
            return end
        time.sleep(0.2)


def tell(words: str) -> None:
    """A line in the job's log, which progress is read from."""
    print(f"pdlab: {words}", flush=True)


def write(path: str, document: Mapping[str, Any]) -> None:
    """Replace a JSON file, whole. Raises OSError."""
    with open(path + ".tmp", "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(path + ".tmp", path)
