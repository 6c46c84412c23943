# SPDX-License-Identifier: Apache-2.0
"""Run folders as pdlab leaves them, for tests: a good run, a failed point, a run that died, a veto.

The figures follow the benchmark client's own arithmetic, so that a report's numbers can be checked against them.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import command_line
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout

from pdlab.moments import utc_now
from pdlab.results.latency import percentile
from pdlab.store import RunFolder

ROOT = "/home/lab/.pdlab"
HOST = "localhost"
STAGES = ("preflight", "deploy", "ready", "verify", "benchmark", "report")
STAGE_SECONDS = {"preflight": 1.9, "deploy": 74.2, "ready": 3.1, "verify": 21.7, "benchmark": 108.4, "report": 0.8}
SWEEP = ((1, 8), (16, 48), (64, 96))
ANSWERS = (
    ("What is 17 times 23?", "391", "391"),
    ("What is the capital of France?", "Paris", "Paris."),
    ("List the first five prime numbers.", "2, 3, 5, 7, 11", "2, 3, 5, 7, 11"),
)
# A process that is no more: above the largest PID that Linux gives (2**22).
DEAD_PID = 2**22 + 1


def point(concurrency: int, prompts: int) -> dict[str, Any]:
    """One planned point of the default sweep."""
    return {
        "label": f"c{concurrency}-n{prompts}",
        "concurrency": concurrency,
        "prompts": prompts,
        "input_len": 256,
        "output_len": 128,
        "range_ratio": 1.0,
        "seed": 1,
        "limit_s": 900,
    }


def server(name: str, role: str, port: int, **more: Any) -> dict[str, Any]:
    """One server of the plan, with the command line that pdlab makes for it."""
    common: dict[str, Any] = {
        "name": name,
        "role": role,
        "host": HOST,
        "address": "127.0.0.1",
        "port": port,
        "python": f"{ROOT}/engine/bin/python",
        "home": ROOT,
        "args": {},
        "env": {},
        "unit": f"pdlab-{name}",
        "log": f"{ROOT}/logs/{name}.log",
        "url": f"http://127.0.0.1:{port}",
    }
    engine: dict[str, Any] = {
        "bootstrap_port": 8998 if role == "prefill" else None,
        "nccl_port": port + 500,
        "gpus": [],
        "tp": 1,
        "numa_node": None,
        "numa_pending": False,
        "numa_reason": "as the inventory says",
        "device": "cpu",
        "model_path": f"{ROOT}/models/canary",
        "served_name": "canary",
        "transfer_backend": None if role == "colocated" else "nixl",
        "args": {"attention-backend": "torch_native", "max-total-tokens": 65536},
        "env": {"SGLANG_PLATFORM": "pdlab_rehearsal"},
    }
    base = {**common, **({} if role == "router" else engine), **more}
    return {
        **base,
        "argv": command_line.server_argv(base),
        "environment": command_line.server_environment(base),
    }


def plan(rehearsal: bool = True, **more: Any) -> dict[str, Any]:
    """The resolved topology of the embedded rehearsal, or of the eight-GPU box."""
    gpu: dict[str, Any] = {"device": "cuda", "tp": 4, "args": {}, "env": {}}
    first = {} if rehearsal else {**gpu, "gpus": [0, 1, 2, 3], "numa_node": 0}
    second = {} if rehearsal else {**gpu, "gpus": [4, 5, 6, 7], "numa_node": 1}
    servers = [server("prefill-0", "prefill", 30000, **first), server("decode-0", "decode", 30001, **second)]
    router = server(
        "router",
        "router",
        8000,
        prometheus_host="127.0.0.1",
        prometheus_port=29001,
        policy="round_robin",
        workers=[
            {"name": item["name"], "role": item["role"], "url": item["url"], "bootstrap_port": item["bootstrap_port"]}
            for item in servers
        ],
    )
    return {
        "schema_version": 1,
        "rehearsal": rehearsal,
        "device": "cpu" if rehearsal else "cuda",
        "model": {
            "source": "canary" if rehearsal else "local",
            "path": f"{ROOT}/models/canary" if rehearsal else "/srv/models/DeepSeek-V4-Flash-NVFP4",
            "served_name": "canary" if rehearsal else "deepseek-v4-flash",
            "revision": None,
        },
        "hosts": {
            HOST: {
                "address": "127.0.0.1",
                "root": ROOT,
                "engine_python": f"{ROOT}/engine/bin/python",
                "service_manager": "auto",
                "local": True,
            }
        },
        "servers": servers,
        "router": router,
        "reference": server("reference", "colocated", 30002),
        "collectives": {"profile": "off" if rehearsal else "pcie", "declared": False, "offers": []},
        "engine_rules": {"sglang": {HOST: "0.5.23"}, "compute_capability": None, "off": [], "verdicts": []},
        "answers": [{"prompt": prompt, "expected": expected} for prompt, expected, _ in ANSWERS],
        "oracle": {"enabled": True, "lengths": "auto"},
        "benchmark": {"name": "default", "points": [point(*item) for item in SWEEP]},
        **more,
    }


def client_line(
    concurrency: int, prompts: int, completed: int | None = None, output_len: int = 128, details: bool = True
) -> dict[str, Any]:
    """One line of `sglang.benchmark.serving --output-details`, made of plausible requests of a small CPU."""
    dice = random.Random(concurrency * 1000 + prompts)
    done = prompts if completed is None else completed
    tpot_s = 0.006 + 0.0005 * concurrency
    ttfts: list[float] = []
    itls: list[list[float]] = []
    latencies: list[float] = []
    tpots: list[float] = []
    for index in range(prompts):
        if index >= done:
            ttfts.append(0.0)
            itls.append([])
            continue
        ttft = 0.045 * (1 + 0.35 * concurrency) * dice.uniform(0.7, 1.3)
        gaps = [tpot_s * dice.uniform(0.6, 1.6) for _ in range(output_len - 1)]
        # The client's latency ends with the stream's last chunk, a little after the last token.
        latency = ttft + sum(gaps) + 0.0004
        ttfts.append(ttft)
        itls.append(gaps)
        latencies.append(latency)
        tpots.append((latency - ttft) / (output_len - 1))
    duration = sum(latencies) / concurrency * 1.04 if latencies else 1.0
    output_tokens = done * output_len
    line: dict[str, Any] = {
        "tag": f"c{concurrency}-n{prompts}",
        "backend": "sglang",
        "dataset_name": "random-ids",
        "request_rate": "inf" if details else None,
        "max_concurrency": concurrency,
        "random_input_len": 256,
        "random_output_len": output_len,
        "random_range_ratio": 1.0,
        "server_info": None,
        "duration": duration,
        "completed": done,
        "total_input_tokens": done * 256,
        "total_output_tokens": output_tokens,
        "total_output_tokens_retokenized": output_tokens,
        "request_throughput": done / duration,
        "input_throughput": done * 256 / duration,
        "output_throughput": output_tokens / duration,
        "total_throughput": (done * 256 + output_tokens) / duration,
        "concurrency": sum(latencies) / duration,
        "accept_length": None,
        "max_output_tokens_per_s": float(int(output_tokens / duration * 1.3)),
        "max_concurrent_requests": min(concurrency + 2, prompts),
        **_aggregates("e2e_latency", latencies),
        **_aggregates("ttft", ttfts[:done]),
        **_aggregates("tpot", tpots),
        **_aggregates("itl", [gap for gaps in itls for gap in gaps]),
    }
    if details:
        line |= {
            "input_lens": [256] * prompts,
            "output_lens": [output_len] * done + [0] * (prompts - done),
            "ttfts": ttfts,
            "itls": itls,
            "generated_texts": ["x" * 64] * prompts,
            "errors": [""] * done
            + ["aiohttp.ClientPayloadError: Response payload is not completed"] * (prompts - done),
        }
    return line


def point_record(line: Mapping[str, Any], planned: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The record of a point that the benchmark stage keeps."""
    arrays = {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}
    complete = line["completed"] == planned["prompts"]
    return {
        "label": planned["label"],
        "concurrency": planned["concurrency"],
        "requested": planned["prompts"],
        "completed": line["completed"],
        "input_len": planned["input_len"],
        "output_len": planned["output_len"],
        "range_ratio": planned["range_ratio"],
        "seed": planned["seed"],
        "ok": complete,
        "why": [] if complete else [f"{line['completed']} of {planned['prompts']} requests completed"],
        "error_lines": [],
        "seconds": round(line["duration"], 2),
        "checks": [
            {"id": "completed", "ok": complete, "seen": str(line["completed"]), "wanted": str(planned["prompts"])},
            {"id": "output_tokens", "ok": complete, "seen": str(line["total_output_tokens"]), "wanted": "exact"},
        ],
        "result": {key: value for key, value in line.items() if key not in arrays},
        **more,
    }


class RunMaker:
    """Builds one run folder piece by piece, as a run would."""

    def __init__(self, runs_dir: Path, rehearsal: bool = True, name: str = "20260131T120000Z-1a2b3c") -> None:
        self.path = runs_dir / name
        for part in (layout.RECORDS, layout.BENCH, layout.LOGS):
            (self.path / part).mkdir(parents=True)
        self.clock = 1769860800.0
        self.rehearsal = rehearsal
        self.plan = plan(rehearsal)
        self.run: dict[str, Any] = {
            "run": name,
            "started": "2026-01-31T12:00:00+00:00",
            "ended": None,
            "command": ["pdlab", "up"],
            "inventory": "inventory/local" if rehearsal else "inventory/gpu",
            "rehearsal": rehearsal,
            "pdlab_version": "0.1.0",
            "controller": {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "python": "3.11.2",
                "ansible_core": "2.19.14",
            },
            "status": "running",
            "exit_code": None,
            "why": None,
        }
        self.write_run()
        layout.write_json(str(self.path / layout.PLAN), self.plan)

    def write_run(self, **fields: Any) -> None:
        self.run.update(fields)
        layout.write_json(str(self.path / layout.RUN), self.run)

    def end(self, status: str, exit_code: int, why: str | None = None) -> RunFolder:
        minutes, seconds = divmod(int(self.clock - 1769860800.0), 60)
        ended = f"2026-01-31T12:{minutes:02d}:{seconds:02d}+00:00"
        self.write_run(status=status, exit_code=exit_code, why=why, ended=ended)
        return self.folder

    def start_now(self) -> None:
        """Make this process the run's living controller."""
        self.write_run(started=utc_now())

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    def stage(self, name: str, ok: bool | None = True, why: str | None = None) -> None:
        """A stage that ended; ok=None leaves it open."""
        lines = [{"stage": name, "event": "start", "time": self.clock}]
        if ok is not None:
            self.clock += STAGE_SECONDS[name]
            lines.append({"stage": name, "event": "end", "time": self.clock, "ok": ok, "why": why})
        with (self.path / layout.STAGES).open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line) + "\n" for line in lines)

    def record(self, name: str, data: Mapping[str, Any]) -> None:
        layout.write_record(str(self.path), name, data)

    def preflight(self, *extra: Mapping[str, Any]) -> None:
        verdicts: list[Mapping[str, Any]] = [
            verdict_of("memory", seen="22 GiB free", wanted="at least 6 GiB"),
            verdict_of("disk", seen="180 GiB free", wanted="at least 20 GiB"),
            verdict_of("ports", seen="all free", wanted="30000, 30001, 8000, 8998, 29001 free"),
            verdict_of(
                "not_root",
                severity="warn",
                ok=False,
                seen="uid 1000",
                wanted="root",
                why="limits and packages of the host cannot be changed",
                cure="run with --become where the host role should act",
            ),
            *extra,
        ]
        self.record(
            f"preflight-{HOST}",
            {
                "host": HOST,
                "facts": {"cpus": 2, "memory_gib": 24, "kernel": "6.1.0"},
                "verdicts": verdicts,
                "veto": any(item["severity"] == "veto" and not item["ok"] for item in verdicts),
            },
        )

    def deploy(self) -> None:
        self.record(
            f"engine-{HOST}",
            {
                "path": f"{ROOT}/engine",
                "python_version": "3.11.2",
                "fingerprint": "3f6c0d1e9ab27c55",
                "lock": "cpu",
                "packages": {"sglang": "0.5.23", "sglang-router": "0.3.2", "nixl": "1.5.1", "torch": "2.11.0+cpu"},
                "changed": True,
            },
        )
        self.record(
            f"kv_probe-{HOST}",
            {
                "ok": True,
                "memory": "DRAM" if self.rehearsal else "VRAM",
                "backend": "UCX",
                "bytes": 268435456,
                "seconds": 0.031,
                "gib_s": 8.06,
                "nixl_version": "1.5.1",
                "ucx_version": "1.23.0",
                "transport": "posix/memory" if self.rehearsal else "cuda_ipc/cuda",
                "why": None,
            },
        )
        self.record(
            f"model-{HOST}",
            {
                "path": self.plan["model"]["path"],
                "source": self.plan["model"]["source"],
                "fingerprint": "b1946ac92492d234",
                "files": 6,
                "bytes": 912_384,
                "changed": False,
            },
        )
        for item in [*self.plan["servers"], self.plan["router"]]:
            node = item.get("numa_node")
            self.record(
                f"server-{item['name']}",
                {
                    "name": item["name"],
                    "role": item["role"],
                    "host": HOST,
                    "state": "started",
                    "pid": 4242,
                    "pids": [4242, 4243],
                    "argv": item["argv"],
                    "environment": item["environment"],
                    "unit": item["unit"],
                    "definition": f"/etc/systemd/system/{item['unit']}.service",
                    "seconds_to_ready": 24.3,
                    "changed": True,
                    "binding": None
                    if node is None
                    else {"wanted": f"node {node}", "ok": True, "seen": f"Cpus_allowed_list of node {node}"},
                },
            )

    def ready(self) -> None:
        steps = ("processes", "health", "workers", "bootstrap", "metrics", "generation")
        self.record(
            "ready",
            {
                "ok": True,
                "steps": [
                    {"id": step, "name": step, "ok": True, "seconds": 0.5, "seen": "as wanted", "why": None}
                    for step in steps
                ],
                "why": None,
            },
        )

    def verify(self, answers: Sequence[tuple[str, str, str]] = ANSWERS) -> None:
        self.record("answers", answers_record(answers))
        lengths = (1, 63, 64, 65, 2047, 2048, 2049, 2000)
        self.record(
            "oracle",
            {
                "ok": True,
                "cases": len(lengths),
                "identical": len(lengths),
                "max_logprob_diff": 0.0,
                "tolerance": 0.001,
                "control_differs": True,
                "reference": "b1946ac92492d234-3f6c0d1e9ab27c55",
                "results": [
                    {"length": length, "identical": True, "first_difference": None, "max_logprob_diff": 0.0}
                    for length in lengths
                ],
                "why": None,
            },
        )
        self.record(
            "kv_transfer",
            {"ok": True, "bytes": 41_943_040, "failed": 0, "requests": 11, "before": {}, "after": {}, "why": None},
        )

    def measure(self, concurrency: int, prompts: int, completed: int | None = None, **more: Any) -> None:
        """One benchmark point: the client's JSONL, its log, the record."""
        planned = point(concurrency, prompts)
        line = client_line(concurrency, prompts, completed)
        (self.path / layout.BENCH / f"{planned['label']}.jsonl").write_text(json.dumps(line) + "\n")
        (self.path / layout.BENCH / f"{planned['label']}.log").write_text("Successful requests: …\n")
        self.record(f"point-{planned['label']}", point_record(line, planned, **more))


def write_raw(run_dir: Path, label: str, line: Mapping[str, Any]) -> None:
    """Replace the client's JSONL of one point."""
    (run_dir / layout.BENCH / f"{label}.jsonl").write_text(json.dumps(line) + "\n")


def verdict_of(
    id: str,
    severity: str = "info",
    ok: bool = True,
    seen: str = "",
    wanted: str = "",
    why: str = "",
    cure: str | None = None,
) -> dict[str, Any]:
    """One preflight verdict."""
    return {"id": id, "severity": severity, "ok": ok, "seen": seen, "wanted": wanted, "why": why, "cure": cure}


def answers_record(answers: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """The record of known answers: (prompt, expected, got)."""
    rows = [
        {
            "prompt": prompt,
            "expected": expected,
            "got": got,
            "ok": expected in got,
            "why": None if expected in got else "the expected text is not in the answer",
        }
        for prompt, expected, got in answers
    ]
    return {"ok": all(row["ok"] for row in rows), "answers": rows}


def good_run(runs_dir: Path, rehearsal: bool = True, **names: Any) -> RunFolder:
    """A run whose every stage passed."""
    run = RunMaker(runs_dir, rehearsal, **names)
    run.preflight()
    run.stage("preflight")
    run.deploy()
    run.stage("deploy")
    run.ready()
    run.stage("ready")
    run.verify()
    run.stage("verify")
    for item in SWEEP:
        run.measure(*item)
    run.stage("benchmark")
    run.record("stability", answers_record(ANSWERS[:1]))
    run.stage("report")
    return run.end("ok", 0)


def failed_point_run(runs_dir: Path, **names: Any) -> RunFolder:
    """Prefill was killed during the second point; the third was not measured."""
    run = RunMaker(runs_dir, **names)
    run.preflight()
    run.stage("preflight")
    run.deploy()
    run.stage("deploy")
    run.ready()
    run.stage("ready")
    run.verify()
    run.stage("verify")
    run.measure(*SWEEP[0])
    errors = [
        "prefill-0: Scheduler hit an exception: RuntimeError: <killed> & gone",
        "decode-0: Decode transfer failed for request rank=0: KVTransferError: lost connection with prefill",
    ]
    run.measure(
        *SWEEP[1],
        completed=31,
        why=["31 of 48 requests completed", "server prefill-0 ended during the point (signal 9)"],
        error_lines=errors,
    )
    (run.path / layout.LOGS / "prefill-0.log").write_text("INFO: serving\nRuntimeError: <killed> & gone\n")
    run.stage("benchmark", ok=False, why="point c16-n48 failed")
    return run.end("failed", 6, "point c16-n48: server prefill-0 ended during the point (signal 9)")


def died_run(runs_dir: Path, **names: Any) -> RunFolder:
    """The controller was killed while the second point was measured; its last line of stages.jsonl is cut."""
    run = RunMaker(runs_dir, **names)
    run.preflight()
    run.stage("preflight")
    run.deploy()
    run.stage("deploy")
    run.ready()
    run.stage("ready")
    run.verify()
    run.stage("verify")
    run.measure(*SWEEP[0])
    run.stage("benchmark", ok=None)
    with (run.path / layout.STAGES).open("a", encoding="utf-8") as stream:
        stream.write('{"stage": "benchmark", "event": "en')
    run.write_run(controller={**run.run["controller"], "pid": DEAD_PID})
    return run.folder


def veto_run(runs_dir: Path, **names: Any) -> RunFolder:
    """Preflight refused the host: a port is taken and memory is short."""
    run = RunMaker(runs_dir, **names)
    run.preflight(
        verdict_of(
            "port_taken",
            severity="veto",
            ok=False,
            seen="30000 is held by PID 811 (python3 -m http.server 30000)",
            wanted="30000 free for prefill-0",
            why="the server could not listen",
            cure="stop PID 811, or give prefill-0 another port in pd_servers",
        )
    )
    run.stage("preflight", ok=False, why="localhost: port_taken")
    return run.end("failed", 3, "preflight vetoed localhost: port_taken")


def _aggregates(name: str, seconds: Sequence[float]) -> dict[str, float]:
    values = [value * 1000 for value in seconds] or [0.0]
    return {
        f"mean_{name}_ms": statistics.fmean(values),
        f"median_{name}_ms": percentile(values, 0.5),
        f"std_{name}_ms": statistics.pstdev(values),
        f"p90_{name}_ms": percentile(values, 0.9),
        f"p95_{name}_ms": percentile(values, 0.95),
        f"p99_{name}_ms": percentile(values, 0.99),
    }
