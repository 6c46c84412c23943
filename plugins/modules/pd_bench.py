#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure one point with SGLang's own benchmark client, as a job of the service manager."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_bench
short_description: Measure one benchmark point through the router
version_added: 0.1.0
description:
  - Runs what C(python -m sglang.benchmark.serving) runs for one point, as a job of the service manager, named
    C(pdlab-job-bench). The job imports the client, and each point is a fork of it. A point has a time limit and a
    lease. When nobody asks for its progress for O(lease_s) seconds (the controller is gone), it ends by itself, with
    every process that it started.
  - As a task this is one step. Its action plug-in starts the job, asks for its progress until it ends, prints one
    line of progress every few seconds (C(benchmark c16-n48  31/48 requests  42 s), after a fixed prefix by which
    a program can tell it), fetches the raw output and the log into the run folder's C(bench/), and writes
    C(records/point-LABEL.json). The states O(state=started), O(state=polled), O(state=collected) and
    O(state=absent) are what it calls on the target.
  - Before the client is let go, one request goes over every pair of prefill and decode, the router is warmed up at the
    point's concurrency, and every worker's prefix cache is emptied. Meanwhile, and until the end, every server's
    metrics, the router's and the box's are read once a second into C(bench/LABEL.samples.jsonl).
  - A point has figures only when everything that was asked for came back. The client itself exits with 0 when every
    request failed, and calls a request successful as soon as its stream ended. A point with figures may still be
    doubtful, and is left out of verdicts then. See RV(checks).
author:
  - pdlab authors (@pdlab)
options:
  state:
    description:
      - V(measured) drives one point from its start to its record.
      - V(started) checks that all is there, clears away an earlier job, flushes the workers' prefix caches and starts.
      - V(polled) renews the lease and waits for up to O(wait_s) seconds. It returns at once when the job has ended
        or a watched server was lost, and ends the job in the latter case.
      - V(collected) judges the ended job and removes it from the service manager.
      - V(absent) ends the job if it runs and removes it. Cancelling uses this.
    type: str
    choices: [measured, started, polled, collected, absent]
    default: measured
  root:
    description: The directory of everything pdlab on the target.
    type: path
    required: true
  run:
    description:
      - The run's name. Raw output lies in C(ROOT/bench/RUN/) on the target; the newest five runs are kept there.
      - Defaults to the name of O(run_dir).
    type: str
  run_dir:
    description: The run folder on the controller. Without it nothing is fetched and no record is written.
    type: path
  point:
    description: The point. Not needed for O(state=absent).
    type: dict
    suboptions:
      label:
        description: Its name, and that of its files.
        type: str
        required: true
      workload:
        description: The workload that it belongs to. Kept with its record.
        type: str
      loop:
        description:
          - V(closed) keeps O(point.concurrency) requests in flight. V(open) lets them arrive O(point.rate_s) times a
            second (Poisson), however many are in flight.
        type: str
        choices: [closed, open]
        default: closed
      concurrency:
        description: Requests in flight at once, at most. Needed in a closed loop.
        type: int
      rate_s:
        description: Arrivals a second. Needed in an open loop.
        type: float
      prompts:
        description: Requests in all.
        type: int
        required: true
      input_len:
        description: Tokens in each prompt.
        type: int
        required: true
      output_len:
        description: Tokens in each answer.
        type: int
        required: true
      range_ratio:
        description:
          - Each length is drawn uniformly from this share of it up to all of it. V(1.0) is exact.
        type: float
        default: 1.0
      dataset:
        description:
          - V(random-ids) makes prompts that have nothing in common, and the point must find the prefix caches cold.
            With V(shared-prefix) prompts begin with one of O(point.prefix_groups) prefixes, and the caches must serve
            them.
        type: str
        choices: [random-ids, shared-prefix]
        default: random-ids
      prefix_groups:
        description: How many prefixes there are.
        type: int
      prefix_len:
        description: Tokens of each prefix, part of O(point.input_len).
        type: int
      limits:
        description: What a user of the workload accepts, ms a request. Kept with the record.
        type: list
        elements: dict
        default: []
        suboptions:
          ttft_ms:
            description: Time to the first token.
            type: float
          tpot_ms:
            description: Time for each token after it.
            type: float
          e2e_ms:
            description: Time for the whole request.
            type: float
      seed:
        description: Seed of the lengths and the prompts.
        type: int
        default: 42
      limit_s:
        description: Seconds that the client may take in all, its start and the warm-up included.
        type: float
        default: 600
  base_url:
    description: The router's address, such as V(http://127.0.0.1:8000). Needed for O(state=started).
    type: str
  served_name:
    description: The name under which the model is served.
    type: str
  tokenizer:
    description: The directory of the model's tokenizer on the target.
    type: path
  model_path:
    description: The model's directory on the target, when its presence shall be checked, too.
    type: path
  python:
    description: The engine's Python on the target.
    type: path
  pythonpath:
    description: Folders that stand in front of the interpreter's own, for an engine that pdlab did not build.
    type: list
    elements: path
    default: []
  environment:
    description: Variables for the client, without which an engine that pdlab did not build cannot be imported.
    type: dict
    default: {}
  home:
    description:
      - HOME of the client. By default a folder that goes with the job, since the client keeps its prompts there.
    type: path
  args:
    description:
      - Further flags of the client by their names, such as C(goodput) with a list. A flag that makes the point what
        it is (lengths, concurrency, seed, output and the like) is refused.
    type: dict
    default: {}
  warmup:
    description:
      - Requests that warm the router up at the point's concurrency and are not measured.
      - By default as many as the concurrency, and two for each pair of prefill and decode at least. Beside them one
        request goes over each pair.
    type: int
  workers:
    description:
      - The engine's servers, whose prefix caches are flushed before the point. As a task, servers as the plan has
        them may be given; what is not listed here is left aside.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The server's name.
        type: str
        required: true
      url:
        description: Its address.
        type: str
        required: true
      role:
        description: V(prefill), V(decode) or V(colocated); says which pairs the warm-up must touch.
        type: str
        choices: [prefill, decode, colocated]
      bootstrap_port:
        description: Where a prefill server's KV transfer is asked for.
        type: int
  router_metrics:
    description: The router's metrics page, such as V(http://127.0.0.1:29001/metrics). Without it nothing of it is kept.
    type: str
  sample_s:
    description: Seconds between two samples of the servers' metrics and of the box.
    type: float
    default: 1
  watch:
    description:
      - The servers that must live on. The point fails as soon as one is gone or has been restarted. As a task, servers
        as the plan has them may be given.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The server's name.
        type: str
        required: true
      pid:
        description: Its main process, when it runs on this host. By default asked of the service manager.
        type: int
      unit:
        description: Its service, when it runs on this host.
        type: str
      url:
        description: Its address. A server without a PID here is watched by whether its port takes connections.
        type: str
      log:
        description: Its log file on this host, for its error lines when the point fails.
        type: path
  service_manager:
    description: Who runs the job.
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  supervisord:
    description: The supervisord to start when supervisor is used and none runs. Defaults to pdlab's own below O(root).
    type: path
  onward:
    description:
      - Whether to go on in the same call as far as possible, from V(started) to V(polled) and from a job that has ended
        to V(collected), whose result is RV(collected) then. A call of a module costs half a second.
    type: bool
    default: false
  stay:
    description:
      - Whether the job stays when the point is over, with the client imported, for another point of the same sweep.
        That takes most of a client's start away. It waits for O(lease_s) seconds, and only after a point without
        a fault. Leave it out for the last point.
    type: bool
    default: false
  wait_s:
    description: Seconds that O(state=polled) waits at most.
    type: float
    default: 5
  lease_s:
    description: Seconds after which the job ends when nobody asked for its progress.
    type: float
    default: 60
  fail:
    description: Whether a failed point fails the task. By default the result says so in RV(ok) and RV(why).
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Nothing is run; the task is skipped.
  diff_mode:
    support: none
    description: A measurement changes no file that could be compared.
  platform:
    support: full
    platforms: linux
    description: The target is a Linux host.
seealso:
  - module: pdlab.pdlab.pd_server
"""

EXAMPLES = r"""
- name: Measure one point
  pdlab.pdlab.pd_bench:
    root: /opt/pdlab
    run_dir: "{{ pdlab_run_dir }}"
    python: /opt/pdlab/engine/bin/python
    base_url: http://127.0.0.1:8000
    served_name: canary
    tokenizer: /opt/pdlab/models/canary
    point: {label: c16-n48, concurrency: 16, prompts: 48, input_len: 256, output_len: 128}
    workers:
      - {name: prefill-0, role: prefill, url: "http://127.0.0.1:30000"}
      - {name: decode-0, role: decode, url: "http://127.0.0.1:30001"}
    watch:
      - {name: prefill-0, unit: pdlab-prefill-0, log: /opt/pdlab/logs/prefill-0.log}
      - {name: decode-0, unit: pdlab-decode-0, log: /opt/pdlab/logs/decode-0.log}

- name: End a benchmark that still runs
  pdlab.pdlab.pd_bench:
    root: /opt/pdlab
    state: absent
"""

RETURN = r"""
ok:
  description: Whether the point has figures. RV(record.counts) says whether verdicts may rest on them.
  type: bool
  returned: when O(state=measured) or O(state=collected)
why:
  description: One line for each check that failed.
  type: list
  elements: str
  returned: when O(state=measured) or O(state=collected)
record:
  description:
    - The point's record. C(result) is the client's whole JSON object without what it keeps per request, and null for
      a failed point.
  type: dict
  returned: when O(state=measured) or O(state=collected)
checks:
  description: Every check of the record.
  type: list
  elements: dict
  returned: when O(state=measured) or O(state=collected)
  contains:
    id:
      description: The fault that the check finds.
      type: str
    ok:
      description: Whether it was absent.
      type: bool
    grade:
      description: C(fault) when its failure fails the point, C(doubt) when it only keeps the point out of verdicts.
      type: str
    seen:
      description: What was found.
      type: str
    wanted:
      description: What was wanted.
      type: str
files:
  description: The raw files on the target, C(output) (JSONL), C(log) and C(samples) (JSONL).
  type: dict
  returned: when O(state=started) or O(state=collected)
sizes:
  description: The bytes of each raw file that there is on the target, by its path.
  type: dict
  returned: when O(state=collected)
collected:
  description: What O(state=collected) returns.
  type: dict
  returned: when O(onward) is true and the job has ended
finished:
  description: Whether the job has ended.
  type: bool
  returned: when O(state=polled)
progress:
  description: C(phase), and C(done), C(total) requests and C(seconds) once the measured run has begun.
  type: dict
  returned: when O(state=polled)
elapsed_s:
  description: Seconds since the client was started.
  type: float
  returned: when O(state=polled)
died:
  description: The servers that were lost, each with C(name) and C(why).
  type: list
  elements: dict
  returned: when O(state=polled)
argv:
  description: The client's command line.
  type: list
  elements: str
  returned: when O(state=started)
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    bench_checks,
    bench_command,
    bench_job,
    bench_point,
    bench_progress,
    bench_warmup,
    bench_watched,
    engine_log,
    http_json,
    processes,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_job import JobFiles
from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_service import Job, NotStarted
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_versions import deployed_version
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError, ServiceManager
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import choose

TICK_S = 0.25
ROUTER_TIMEOUT_S = 5.0
ERROR_LINES = 20
LAST_LINES = 5
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


class Refused(Exception):
    """The point cannot be measured as things are; `reasons` has one sentence for each thing that is missing."""

    def __init__(self, what: str, reasons: Sequence[str]) -> None:
        super().__init__(what + ": " + "; ".join(reasons))
        self.reasons = list(reasons)


def manager_of(params: Mapping[str, Any]) -> ServiceManager:
    """The service manager that runs the job."""
    return choose(params["service_manager"], params["root"], params["supervisord"])


def files_of(params: Mapping[str, Any]) -> JobFiles:
    """The point's files. Raises Refused."""
    try:
        return JobFiles.of(params["root"], params["run"], params["point"]["label"])
    except ValueError as error:
        raise Refused("the point cannot be kept", [str(error)]) from error


def start(params: Mapping[str, Any]) -> dict[str, Any]:
    """Check that all is there, clear away an earlier job, flush the prefix caches, start the client."""
    files, manager = files_of(params), manager_of(params)
    job = Job(params["root"], manager)
    reasons = faults(params)
    watched, not_running = bench_job.watch_from_now(with_pids(params["watch"], manager))
    if reasons or not_running:
        raise Refused("the benchmark cannot start", [*reasons, *not_running])
    environment = bench_command.client_environment(params["python"], params["pythonpath"], params["environment"])
    if not job.waits_for(params["python"], environment):
        job.clear_away()
    bench_job.forget_old_runs(params["root"], params["run"])
    files.prepare()
    # Once before the job, which flushes again after its warm-up: a server that will not is known at once.
    unflushed = bench_warmup.flush(params["workers"], patience_s=0.0)
    if unflushed:
        job.clear_away()
        raise Refused("the prefix caches could not be flushed, so the point would not be cold", unflushed)
    argv = bench_command.client_argv(params["point"], target_of(params, files))
    bench_job.write_job(files, {"argv": argv, "watch": watched, "died": []})
    write_json(files.setup, setup_of(params, files, argv, {"HOME": params["home"] or files.home, **environment}))
    files.touch_lease()
    request = {"lease_s": params["lease_s"], "limit_s": params["point"]["limit_s"], "stay": params["stay"]}
    try:
        job.begin(files, params["python"], environment, request)
    except NotStarted as error:
        raise Refused("the benchmark job did not start", [str(error)]) from error
    return {"changed": True, "argv": argv, "files": kept(files)}


def kept(files: JobFiles) -> dict[str, str]:
    """The raw files of a point on the target, by kind."""
    return {"output": files.output, "log": files.log, "samples": files.samples}


def faults(params: Mapping[str, Any]) -> list[str]:
    """What is missing before anything is started, all of it at once."""
    found = [
        f"args: {key}: the point itself decides this; leave it out"
        for key in bench_command.refused_flags(params["args"])
    ]
    if not os.access(params["python"], os.X_OK):
        found.append(f"python: {params['python']} does not exist or cannot be run; deploy the engine first")
    tokenizer = params["tokenizer"]
    if not os.path.isdir(tokenizer):
        found.append(f"tokenizer: there is no directory {tokenizer}; deploy the model, or correct pd_model.path")
    elif not any(os.path.exists(os.path.join(tokenizer, name)) for name in TOKENIZER_FILES):
        found.append(f"tokenizer: {tokenizer} holds none of {', '.join(TOKENIZER_FILES)}; deploy the model anew")
    model = params["model_path"]
    if model and not os.path.exists(os.path.join(model, "config.json")):
        found.append(f"model_path: there is no {os.path.join(model, 'config.json')}; deploy the model first")
    models = params["base_url"].rstrip("/") + "/v1/models"
    reply = http_json.get(models, ROUTER_TIMEOUT_S)
    if not reply.ok:
        found.append(f"base_url: the router does not answer GET {models}: {reply.describe()}")
    return found


def with_pids(watch: Sequence[Mapping[str, Any]], manager: ServiceManager) -> list[dict[str, Any]]:
    """The servers to watch, each with the PID that the service manager gives where none was named."""
    servers = []
    for server in watch:
        pid = server["pid"]
        if pid is None and server["unit"]:
            pid = manager.status(server["unit"]).pid
        servers.append({**server, "pid": pid})
    return servers


def setup_of(
    params: Mapping[str, Any], files: JobFiles, argv: Sequence[str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """What bench_conductor is to do."""
    point, workers = params["point"], params["workers"]
    requests, at_once = bench_command.warmup_load(point, len(bench_warmup.pairs(workers)) or 1, params["warmup"])
    return {
        # What comes behind "python -m".
        "client": {"argv": list(argv[2:]), "report": files.client},
        "environment": dict(environment),
        "base_url": params["base_url"].rstrip("/"),
        "workers": [dict(worker) for worker in workers],
        "router_metrics": params["router_metrics"],
        "warmup": {
            "requests": requests,
            "concurrency": at_once,
            "input_len": point["input_len"],
            "output_len": point["output_len"],
            "vocabulary": vocabulary(params["model_path"] or params["tokenizer"]),
            # Another seed than the point's, so that no prompt of the warm-up is one of the measurement.
            "seed": f"warm-up {point['seed']}",
        },
        "prompts": point["prompts"],
        "every_s": params["sample_s"],
        "samples": files.samples,
        "result": files.conducted,
    }


def vocabulary(model: str) -> int | None:
    """How many token ids the model knows, as its config.json says; None where it does not."""
    config = bench_job.read_json(os.path.join(model, "config.json"))
    text = config.get("text_config")
    size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, Mapping) else None)
    return size if isinstance(size, int) else None


def target_of(params: Mapping[str, Any], files: JobFiles) -> dict[str, Any]:
    """What bench_command wants to know beside the point."""
    return {
        "python": params["python"],
        "base_url": params["base_url"].rstrip("/"),
        "served_name": params["served_name"],
        "tokenizer": params["tokenizer"],
        "output_file": files.output,
        "args": params["args"],
        "sglang": deployed_version(params["root"]),
    }


def poll(params: Mapping[str, Any]) -> dict[str, Any]:
    """Renew the lease, wait for the end or for a lost server, at most `wait_s` seconds."""
    files, manager = files_of(params), manager_of(params)
    service, job = Job(params["root"], manager), bench_job.read_json(files.job)
    deadline = time.monotonic() + params["wait_s"]
    files.touch_lease()
    while True:
        status = bench_job.read_json(files.status)
        finished = ended(status, service)
        # Looked at once more when the client has ended: often it fails because a server just died.
        died = bench_job.lost(job.get("watch") or [])
        if died:
            died = [with_restart(server, job, manager) for server in died]
            bench_job.write_job(files, {**job, "died": died})
            if not finished:
                service.stop()
                finished = True
        if finished or time.monotonic() >= deadline:
            break
        if processes.controller_gone():
            service.stop()
            raise processes.ControllerGone
        time.sleep(TICK_S)
    status = bench_job.read_json(files.status)
    started = status.get("started")
    return {
        "changed": False,
        "finished": finished,
        "progress": bench_progress.progress(bench_job.text_tail(files.log)),
        "elapsed_s": round((status.get("ended") or time.time()) - started, 3) if started else 0.0,
        "died": died,
    }


def ended(status: Mapping[str, Any], service: Job) -> bool:
    """Whether the point is over: its keeper said so, or is gone without a word."""
    return status.get("ended") is not None or not service.runs()


def with_restart(server: Mapping[str, str], job: Mapping[str, Any], manager: ServiceManager) -> dict[str, str]:
    """Say so when the lost server is back with another PID."""
    entry = next(item for item in job["watch"] if item["name"] == server["name"])
    again = manager.status(entry["unit"]).pid if entry.get("unit") else None
    why = server["why"] if again is None else f"{server['why']}, restarted as PID {again}"
    return {"name": server["name"], "why": why}


def collect(params: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the ended point, keep its raw files, and end the job unless it stays for the next one."""
    files, service = files_of(params), Job(params["root"], manager_of(params))
    status, job = bench_job.read_json(files.status), bench_job.read_json(files.job)
    if not ended(status, service):
        raise Refused("the point cannot be judged yet", ["the client still runs; poll until it has finished"])
    status = bench_job.read_json(files.status)
    outcome = {
        "argv": job.get("argv"),
        "reason": status.get("reason") or "vanished",
        "exit_code": status.get("exit_code"),
        "seconds": seconds_of(status),
        "cpu_s": status.get("cpu_s"),
    }
    output = bench_point.read_output(bench_job.whole_text(files.output))
    log = bench_job.whole_text(files.log)
    asked, came_back = bench_progress.asked_tokens(log), bench_progress.progress(log)["done"]
    checks = bench_point.judge(params["point"], output, outcome, job.get("died") or [], asked, came_back)
    conducted, client = bench_job.read_json(files.conducted), bench_job.read_json(files.client)
    samples = bench_watched.read_samples(bench_job.whole_text(files.samples))
    watched = bench_watched.watched(conducted, client, samples, params["workers"])
    if all(check["ok"] for check in checks):
        checks += bench_checks.judge(params["point"], output, conducted, watched)
    lines = error_lines(files, job) if any(not check["ok"] for check in checks) else []
    record = bench_point.record(params["point"], output, outcome, checks, lines, watched)
    changed = False if params["stay"] else service.clear_away()
    files.forget_working_files()
    return {
        "changed": changed,
        "ok": record["ok"],
        "why": record["why"],
        "checks": record["checks"],
        "record": record,
        "files": kept(files),
        "sizes": {path: os.path.getsize(path) for path in kept(files).values() if os.path.exists(path)},
    }


def seconds_of(status: Mapping[str, Any]) -> float | None:
    """How long the client ran."""
    started, ended_at = status.get("started"), status.get("ended")
    return None if started is None or ended_at is None else round(float(ended_at) - float(started), 3)


def error_lines(files: JobFiles, job: Mapping[str, Any]) -> list[str]:
    """What the servers and the client said went wrong during the point, each line with its speaker.

    Of a server that died the last few lines are kept when none tells of a fault (a kill leaves none).
    """
    lost = {server["name"] for server in job.get("died") or []}
    lines = []
    for server in job.get("watch") or []:
        if server.get("log"):
            since = engine_log.LogMark(server["log_offset"], server["log_inode"])
            found = engine_log.error_lines(server["log"], since, ERROR_LINES)
            telling = [line for line in found if bench_point.tells_fault(line)]
            if not telling and server["name"] in lost:
                telling = found[-LAST_LINES:]
            lines += [f"{server['name']}: {line}" for line in telling]
    said = bench_point.client_log_errors(bench_job.whole_text(files.log), ERROR_LINES)
    return lines + [f"client: {line}" for line in said]


def absent(params: Mapping[str, Any]) -> dict[str, Any]:
    """End the job and remove it; the raw files stay."""
    return {"changed": Job(params["root"], manager_of(params)).clear_away()}


def go(step: Callable[[Mapping[str, Any]], dict[str, Any]], params: Mapping[str, Any]) -> dict[str, Any]:
    """One step and, when `onward` says so, those that can follow it now."""
    result = step(params)
    if params["onward"] and step is start:
        result = {**result, **poll(params), "changed": result["changed"]}
    if params["onward"] and result.get("finished"):
        result["collected"] = collect(params)
    return result


ARGUMENTS: dict[str, dict[str, Any]] = {
    "state": {
        "type": "str",
        "choices": ["measured", "started", "polled", "collected", "absent"],
        "default": "measured",
    },
    "root": {"type": "path", "required": True},
    "run": {"type": "str"},
    "run_dir": {"type": "path"},
    "point": {
        "type": "dict",
        "options": {
            "label": {"type": "str", "required": True},
            "workload": {"type": "str"},
            "loop": {"type": "str", "choices": ["closed", "open"], "default": "closed"},
            "concurrency": {"type": "int"},
            "rate_s": {"type": "float"},
            "prompts": {"type": "int", "required": True},
            "input_len": {"type": "int", "required": True},
            "output_len": {"type": "int", "required": True},
            "range_ratio": {"type": "float", "default": 1.0},
            "dataset": {"type": "str", "choices": ["random-ids", "shared-prefix"], "default": "random-ids"},
            "prefix_groups": {"type": "int"},
            "prefix_len": {"type": "int"},
            "limits": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "ttft_ms": {"type": "float"},
                    "tpot_ms": {"type": "float"},
                    "e2e_ms": {"type": "float"},
                },
            },
            "seed": {"type": "int", "default": 42},
            "limit_s": {"type": "float", "default": 600},
        },
        "required_if": [("loop", "closed", ["concurrency"]), ("loop", "open", ["rate_s"])],
    },
    "base_url": {"type": "str"},
    "served_name": {"type": "str"},
    "tokenizer": {"type": "path"},
    "model_path": {"type": "path"},
    "python": {"type": "path"},
    "pythonpath": {"type": "list", "elements": "path", "default": []},
    "environment": {"type": "dict", "default": {}},
    "home": {"type": "path"},
    "args": {"type": "dict", "default": {}},
    "warmup": {"type": "int"},
    "workers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "role": {"type": "str", "choices": ["prefill", "decode", "colocated"]},
            "bootstrap_port": {"type": "int"},
        },
    },
    "router_metrics": {"type": "str"},
    "sample_s": {"type": "float", "default": 1},
    "watch": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "pid": {"type": "int"},
            "unit": {"type": "str"},
            "url": {"type": "str"},
            "log": {"type": "path"},
        },
    },
    "service_manager": {"type": "str", "choices": ["auto", "systemd", "supervisor"], "default": "auto"},
    "supervisord": {"type": "path"},
    "onward": {"type": "bool", "default": False},
    "stay": {"type": "bool", "default": False},
    "wait_s": {"type": "float", "default": 5},
    "lease_s": {"type": "float", "default": 60},
    "fail": {"type": "bool", "default": False},
}


def main() -> None:
    """Dispatch on the state."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        required_if=[
            ("state", "started", ["run", "point", "base_url", "served_name", "tokenizer", "python"]),
            ("state", "polled", ["run", "point"]),
            ("state", "collected", ["run", "point"]),
        ],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(skipped=True, changed=False, msg="a benchmark is not run in check mode")
    steps = {"started": start, "polled": poll, "collected": collect, "absent": absent}
    step = steps.get(module.params["state"])
    if step is None:
        module.fail_json(
            msg="state=measured is the action plug-in's and needs the collection pdlab.pdlab on the controller; "
            "on the target alone use started, polled, collected and absent"
        )
        return
    try:
        result = go(step, module.params)
    except Refused as error:
        module.fail_json(msg=str(error), missing=error.reasons)
    except ServiceError as error:
        module.fail_json(msg=f"the service manager failed: {error}")
    except processes.ControllerGone:
        module.fail_json(msg="the controller is gone; the benchmark was ended")
    except OSError as error:
        module.fail_json(msg=f"the benchmark's files cannot be written or read: {error}")
    else:
        module.exit_json(**result)


if __name__ == "__main__":
    main()
