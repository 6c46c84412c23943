# SPDX-License-Identifier: Apache-2.0
"""Two or more routers, tried one after the other in front of the same running prefill and decode.

    python benchmarks/router_trial.py --prefill http://127.0.0.1:30000 8998 --decode http://127.0.0.1:30001 \\
        --router 'sglang-router=ENGINE/bin/python -m sglang_router.launch_router' \\
        --router 'smg=OTHER/bin/python -m smg.launch_router' \\
        --trials start,ttft,behaviour --json result.json

Trials:
  start      the servers are up; seconds from the router's start to the first right answer
  ttft       added time to first token against the same request sent to both servers directly
  behaviour  metrics port in use, SIGTERM with a request in flight, the shape of /workers
  restart    bounded load, prefill's process group killed with SIGKILL and started again with the same line
  together   prefill and the routers start at the same time; how long after prefill's /ready each one answers

`restart` and `together` kill the server that was named: they need --may-kill-prefill, Linux, and the same machine.
The command line, environment and folder for the second start are read from /proc. Run no supervisor over it.

`--flags [ROUTER:]LABEL=FLAGS` adds a set of router flags to try; without any, the router's defaults are tried.
A result file that exists is added to; each cell carries the load average of its start and end. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

QUESTION = "What is 17*23? Answer with the number only."
ANSWER = "391"
TRIALS = ("start", "ttft", "behaviour", "restart", "together")
START_LIMIT_S = 120.0
REQUEST_LIMIT_S = 30.0
# Router flags that every trial gives: its own ports, and a policy that needs no history.
COMMON = "--host 127.0.0.1 --prometheus-host 127.0.0.1 --policy round_robin"
WHOLE = re.compile(r'"completion_tokens": ?8\b')
CIRCUIT_METRIC = re.compile(r'^smg_worker_cb_state\{[^}]*worker="([^"]+)"[^}]*\} ([0-9.]+)', re.MULTILINE)
CIRCUIT = {0.0: "closed", 1.0: "open", 2.0: "half-open"}

Cell = dict[str, Any]


# --- HTTP ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """Status (0: no HTTP answer came), body, seconds, seconds to the first text of a stream."""

    status: int
    text: str
    seconds: float
    first_text_s: float | None = None

    def json(self) -> Any:
        """The body as JSON, or None."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def error(self) -> str:
        """A short name of what went wrong: the status and the router's error code."""
        if self.status == 200:
            return "200 incomplete"
        body = self.json()
        code = body.get("error") if isinstance(body, dict) else None
        if isinstance(code, dict):
            code = code.get("code") or code.get("type") or code.get("message")
        return f"{self.status} {code or self.text[:60]}".strip()


def call(url: str, body: Mapping[str, Any] | None = None, limit_s: float = REQUEST_LIMIT_S) -> Reply:
    """One request on a connection of its own. A refused or broken connection is a reply with status 0."""
    parts = urlsplit(url)
    started = time.perf_counter()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=limit_s)
    first = None
    try:
        if body is None:
            connection.request("GET", parts.path)
        else:
            connection.request("POST", parts.path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if body is None or not body.get("stream"):
            text = response.read().decode("utf-8", "replace")
        else:
            lines = []
            for line in response:
                lines.append(line.decode("utf-8", "replace"))
                if first is None and _has_text(lines[-1]):
                    first = time.perf_counter() - started
            text = "".join(lines)
        return Reply(response.status, text, time.perf_counter() - started, first)
    except TimeoutError:
        return Reply(0, "timeout", time.perf_counter() - started, first)
    except (OSError, http.client.HTTPException) as error:
        return Reply(0, type(error).__name__, time.perf_counter() - started, first)
    finally:
        connection.close()


def _has_text(line: str) -> bool:
    if not line.startswith("data: {"):
        return False
    try:
        return bool(json.loads(line[6:]).get("text"))
    except ValueError:
        return False


def answers_right(url: str, model: str) -> tuple[bool, str]:
    """Ask the known question at an OpenAI-compatible address. smg wants the model's right name."""
    body = {"model": model, "temperature": 0, "max_tokens": 16, "messages": [{"role": "user", "content": QUESTION}]}
    reply = call(url + "/v1/chat/completions", body)
    answer = reply.json()
    try:
        return ANSWER in str(answer["choices"][0]["message"]["content"]), reply.error()
    except (TypeError, KeyError, IndexError):
        return False, reply.error()


def generation(tokens: int, words: int = 24) -> dict[str, Any]:
    """A greedy request whose prompt is new each time, so that no cache answers it."""
    prompt = " ".join(f"{random.getrandbits(16):04x}" for _ in range(words))
    return {
        "text": f"Repeat after me: {prompt}",
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    }


# --- the servers ---------------------------------------------------------------------------------------------------


@dataclass
class Prefill:
    """The prefill server: where it is and, once looked up, the process group and how to start it again."""

    url: str
    bootstrap_port: int
    logs: Path
    group: int = 0
    argv: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    down: bool = False
    child: subprocess.Popen[bytes] | None = None

    def look_up(self) -> None:
        """Find the process group that listens on the port and read its line, environment and folder."""
        port = urlsplit(self.url).port
        assert port is not None
        self.group = os.getpgid(listener(port))
        here = Path(f"/proc/{self.group}")
        self.argv = (here / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
        pairs = (item.partition("=") for item in (here / "environ").read_bytes().decode().split("\0") if item)
        self.environment = {key: value for key, _, value in pairs}
        self.folder = str((here / "cwd").readlink())
        if "sglang" not in " ".join(self.argv) or self.group == os.getpgrp():
            raise SystemExit(f"The process group {self.group} at {self.url} is no SGLang server of its own session.")

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        os.killpg(self.group, signal.SIGKILL)
        self.down = True
        if self.child is not None:
            self.child.wait()
        wait_until(lambda: not group_alive(self.group), 10)

    def start(self) -> None:
        """The same line again, in a session of its own; it stays up when this program ends."""
        with (self.logs / "prefill.log").open("ab") as log:
            self.child = subprocess.Popen(
                self.argv,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.group, self.down = self.child.pid, False

    def ready(self) -> bool:
        """Its own /ready says 200."""
        return call(self.url + "/ready", limit_s=2).status == 200


def listener(port: int) -> int:
    """PID of the process that listens on a TCP port here (the lowest one, when children share the socket)."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{columns[9]}]")
    for process in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(link.readlink()) in inodes:
                        return process
    raise SystemExit(f"Nothing that this user may see listens on port {port}.")


def group_alive(group: int) -> bool:
    """Does any process of the group still run (zombies count as gone)?"""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, found = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(found) == group and state != "Z":
                    return True
    return False


def wait_until(condition: Callable[[], bool], limit_s: float, pause_s: float = 0.05) -> float | None:
    """Seconds until the condition held; None when it did not within the limit."""
    started = time.perf_counter()
    while time.perf_counter() - started < limit_s:
        if condition():
            return time.perf_counter() - started
        time.sleep(pause_s)
    return None


# --- the routers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A router with one set of flags, on two ports of its own."""

    router: str
    label: str
    prefix: tuple[str, ...]
    flags: tuple[str, ...]
    port: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.router} [{self.label}]"

    @property
    def url(self) -> str:
        """Its data plane."""
        return f"http://127.0.0.1:{self.port}"

    def argv(self, prefill: Prefill, decode: str) -> list[str]:
        """The whole command line. What the flags name comes last and wins."""
        return [
            *self.prefix,
            *("--pd-disaggregation", "--prefill", prefill.url, str(prefill.bootstrap_port), "--decode", decode),
            *shlex.split(COMMON),
            *("--port", str(self.port), "--prometheus-port", str(self.port + 1)),
            *self.flags,
        ]

    def cell(self, trial: str, **values: Any) -> Cell:
        """The head of a cell."""
        flags = " ".join(self.flags)
        return {"trial": trial, "router": self.router, "flags": self.label, "argv": flags, **values}


@dataclass
class Running:
    """A started router."""

    setting: Setting
    process: subprocess.Popen[bytes]
    log: Path
    started: float

    def stop(self, limit_s: float = 60) -> float:
        """SIGTERM; seconds until it was gone."""
        begun = time.perf_counter()
        self.process.terminate()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return limit_s
        return time.perf_counter() - begun

    def footprint(self) -> tuple[float, float]:
        """CPU seconds so far and resident MiB."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return cpu_s, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Bench:
    """The servers, the settings to try, and the cells found so far."""

    def __init__(self, arguments: argparse.Namespace, settings: Sequence[Setting]) -> None:
        self.arguments = arguments
        self.settings = settings
        self.logs = Path(tempfile.mkdtemp(prefix="router-trial."))
        url, bootstrap_port = arguments.prefill
        self.prefill = Prefill(url.rstrip("/"), int(bootstrap_port), self.logs)
        self.decode: str = arguments.decode.rstrip("/")
        self.model: str = (call(self.decode + "/v1/models").json() or {"data": [{"id": ""}]})["data"][0]["id"]
        self.cells: list[Cell] = []
        if arguments.json and arguments.json.exists():
            self.cells = json.loads(arguments.json.read_text(encoding="utf-8"))["cells"]

    @contextlib.contextmanager
    def running(self, setting: Setting) -> Iterator[Running]:
        """The router of a setting, stopped at the end whatever happens."""
        log = self.logs / f"{setting.router}-{setting.label}-{setting.port}.log"
        with log.open("ab") as output:
            started = time.perf_counter()
            process = subprocess.Popen(
                setting.argv(self.prefill, self.decode),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        router = Running(setting, process, log, started)
        try:
            yield router
        finally:
            if process.poll() is None:
                router.stop(20)

    def until_right(self, router: Running, limit_s: float = START_LIMIT_S) -> dict[str, Any]:
        """Ask until the first right answer; what came before it, and when /readiness first said 200."""
        ready_s = None
        refused: Counter[str] = Counter()
        while time.perf_counter() - router.started < limit_s:
            if router.process.poll() is not None:
                raise SystemExit(f"{router.setting.name} ended with {router.process.returncode}, see {router.log}")
            if ready_s is None and call(router.setting.url + "/readiness", limit_s=2).status == 200:
                ready_s = time.perf_counter() - router.started
            right, error = answers_right(router.setting.url, self.model)
            now = time.perf_counter() - router.started
            if right:
                if ready_s is None and call(router.setting.url + "/readiness", limit_s=2).status == 200:
                    ready_s = now
                return {
                    "readiness_s": rounded(ready_s),
                    "right_answer_s": rounded(now),
                    "http_errors_before": {key: n for key, n in refused.items() if not key.startswith("0 ")},
                }
            refused[error] += 1
            time.sleep(0.05)
        raise SystemExit(
            f"{router.setting.name} gave no right answer in {limit_s:g} s ({dict(refused)}), see {router.log}"
        )

    def keep(self, cell: Cell, load_before: float) -> None:
        """Store a cell at once, so that a stopped run loses nothing."""
        cell["load_average"] = [rounded(load_before, 1), rounded(os.getloadavg()[0], 1)]
        self.cells.append(cell)
        print(
            json.dumps({key: value for key, value in cell.items() if key not in ("samples_ms", "timeline")}), flush=True
        )
        if self.arguments.json:
            self.arguments.json.write_text(document(self.cells), encoding="utf-8")

    # --- trials ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Seconds to the first right answer with the servers up, and to the end after SIGTERM with nothing to do."""
        for setting in self.repeated():
            load = os.getloadavg()[0]
            with self.running(setting) as router:
                cell = setting.cell("start", **self.until_right(router))
                cpu_s, resident = router.footprint()
                cell.update(cpu_s=rounded(cpu_s), resident_mib=round(resident), sigterm_idle_s=rounded(router.stop()))
                cell["exit_status"] = router.process.returncode
            self.keep(cell, load)

    def repeated(self) -> Iterator[Setting]:
        """A B A B …"""
        for _ in range(self.arguments.repeats):
            yield from self.settings

    def ttft(self) -> None:
        """Direct and through each router in turn, in a new random order each round; differences are taken in pairs."""
        load = os.getloadavg()[0]
        ways: dict[str, Callable[[], Reply]] = {"direct": self.direct}
        with contextlib.ExitStack() as stack:
            for setting in self.settings:
                self.until_right(stack.enter_context(self.running(setting)))
                ways[setting.name] = lambda url=setting.url: call(  # type: ignore[misc]
                    url + "/generate", {**generation(4), "stream": True}
                )
            samples: dict[str, list[float]] = {name: [] for name in ways}
            for turn in range(-3, self.arguments.requests):
                replies = {name: ways[name]() for name in random.sample(list(ways), len(ways))}
                bad = {name: reply.error() for name, reply in replies.items() if reply.first_text_s is None}
                if bad:
                    print(f"round {turn} left out: {bad}", file=sys.stderr)
                elif turn >= 0:
                    for name, reply in replies.items():
                        samples[name].append(1000 * (reply.first_text_s or 0))
        self.keep({"trial": "ttft", "router": "direct", "flags": "-", **spread(samples["direct"])}, load)
        for setting in self.settings:
            added = [here - bare for here, bare in zip(samples[setting.name], samples["direct"], strict=True)]
            cell = setting.cell(
                "ttft", **spread(samples[setting.name]), added_ms=spread(added), interval=interval(added)
            )
            self.keep(cell, load)

    def direct(self) -> Reply:
        """The same request to prefill and decode at once, with the room that a router would have made up."""
        body = {
            **generation(4),
            "stream": True,
            "bootstrap_host": urlsplit(self.prefill.url).hostname,
            "bootstrap_port": self.prefill.bootstrap_port,
            "bootstrap_room": random.getrandbits(62),
        }
        other = threading.Thread(target=call, args=(self.prefill.url + "/generate", body), daemon=True)
        other.start()
        reply = call(self.decode + "/generate", body)
        other.join()
        return reply

    def behaviour(self) -> None:
        """What a deployment meets: a metrics port in use, SIGTERM while a stream runs, the shape of /workers."""
        for setting in self.repeated():
            load = os.getloadavg()[0]
            cell = setting.cell("behaviour")
            with socket.create_server(("127.0.0.1", setting.port + 1)), self.running(setting) as router:
                begun = time.perf_counter()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    router.process.wait(60)
                cell["metrics_port_in_use"] = {
                    "exit_status": router.process.poll(),
                    "seconds": rounded(time.perf_counter() - begun),
                    "message": message(router.log),
                }
            with self.running(setting) as router:
                self.until_right(router)
                workers = call(setting.url + "/workers").json()
                listed = (workers.get("workers") if isinstance(workers, dict) else workers) or []
                cell["workers"] = {
                    "top": sorted(workers) if isinstance(workers, dict) else "list",
                    "seen": [
                        {
                            key: worker.get(key)
                            for key in ("worker_type", "url", "bootstrap_port", "is_healthy", "status")
                        }
                        for worker in listed
                    ],
                    "keys": sorted({key for worker in listed for key in worker}),
                }
                box: list[Reply] = []
                body = {**generation(self.arguments.long_tokens), "stream": True}
                stream = threading.Thread(
                    target=lambda: box.append(call(setting.url + "/generate", body, 60)),  # noqa: B023
                    daemon=True,
                )
                stream.start()
                time.sleep(0.7)
                took = router.stop()
                stream.join()
                cell["sigterm_in_flight"] = {
                    "seconds_to_exit": rounded(took),
                    "exit_status": router.process.returncode,
                    "request_status": box[0].status,
                    "request_whole": "data: [DONE]" in box[0].text,
                    "request_seconds": rounded(box[0].seconds),
                }
            self.keep(cell, load)

    def restart(self) -> None:
        """Kill prefill under load, start it again after the outage, and watch what clients and the router say."""
        for setting in self.repeated():
            load = os.getloadavg()[0]
            self.prefill.look_up()
            with self.running(setting) as router:
                self.until_right(router)
                failed_before = self.decode_failures()
                with (
                    Load(setting.url, self.arguments.concurrency, self.arguments.stream) as clients,
                    Watch(setting, self) as watch,
                ):
                    time.sleep(self.arguments.before)
                    killed = time.perf_counter()
                    self.prefill.kill()
                    time.sleep(max(0.0, self.arguments.outage - (time.perf_counter() - killed)))
                    self.prefill.start()
                    if wait_until(self.prefill.ready, START_LIMIT_S, 0.1) is None:
                        raise SystemExit(f"prefill did not come back, see {self.logs}/prefill.log")
                    ready = time.perf_counter()
                    # Over when nothing has failed for five seconds and something has succeeded in them.
                    settled = wait_until(lambda: clients.calm(ready, 5.0), self.arguments.after, 0.2)  # noqa: B023
                cell = setting.cell(
                    "restart",
                    stream=self.arguments.stream,
                    prefill_down_s=rounded(ready - killed),
                    recovered=settled is not None,
                    **clients.account(killed, ready),
                    **watch.account(killed, ready, clients),
                    decode_failed_requests=self.decode_failures() - failed_before,
                )
            self.keep(cell, load)

    def together(self) -> None:
        """Prefill (killed first) and every router at the same time: seconds from prefill's /ready to the answers."""
        for _ in range(self.arguments.repeats):
            load = os.getloadavg()[0]
            self.prefill.look_up()
            self.prefill.kill()
            # Decode must have noticed: its heartbeat needs two misses five seconds apart.
            time.sleep(12)
            self.prefill.start()
            with contextlib.ExitStack() as stack:
                routers = [stack.enter_context(self.running(setting)) for setting in self.settings]
                ready_at: float | None = None
                readiness: dict[str, float] = {}
                right: dict[str, float] = {}
                begun = time.perf_counter()
                while time.perf_counter() - begun < START_LIMIT_S and len(right) < len(routers):
                    if ready_at is None and self.prefill.ready():
                        ready_at = time.perf_counter()
                    for router in routers:
                        name = router.setting.name
                        if name not in readiness and call(router.setting.url + "/readiness", limit_s=2).status == 200:
                            readiness[name] = time.perf_counter()
                        if name in readiness and name not in right and answers_right(router.setting.url, self.model)[0]:
                            right[name] = time.perf_counter()
                    time.sleep(0.1)
                if ready_at is None:
                    raise SystemExit(f"prefill did not come back, see {self.logs}/prefill.log")
                for router in routers:
                    name = router.setting.name
                    cell = router.setting.cell(
                        "together",
                        prefill_start_s=rounded(ready_at - begun),
                        readiness_after_ready_s=rounded(readiness[name] - ready_at) if name in readiness else None,
                        right_after_ready_s=rounded(right[name] - ready_at) if name in right else None,
                    )
                    self.keep(cell, load)

    def decode_failures(self) -> int:
        """Requests that decode counts as failed in bootstrap or transfer. A counter not yet there is zero."""
        text = call(self.decode + "/metrics").text
        found = re.findall(r"^sglang:num_(?:transfer|bootstrap)_failed_reqs_total\{[^}]*\} ([0-9.e+]+)", text, re.M)
        return int(sum(float(value) for value in found))


class Load:
    """A few clients, each with one short request at a time and a pause after it, so that the load is bounded."""

    def __init__(self, url: str, concurrency: int, stream: bool, pause_s: float = 0.2) -> None:
        self.url, self.stream, self.pause_s = url, stream, pause_s
        self.done: list[tuple[float, float, str | None]] = []  # begun, ended, error
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(concurrency)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            begun = time.perf_counter()
            reply = call(self.url + "/generate", {**generation(8), "stream": self.stream})
            good = reply.status == 200 and WHOLE.search(reply.text) and (not self.stream or "[DONE]" in reply.text)
            self.done.append((begun, time.perf_counter(), None if good else reply.error()))
            self._end.wait(self.pause_s)

    def calm(self, since: float, seconds: float) -> bool:
        """Has every request that began after `since` and ended in the last seconds succeeded, for all those seconds?"""
        now = time.perf_counter()
        if now - since < seconds:
            return False
        recent = [error for _, ended, error in list(self.done) if ended > now - seconds]
        return len(recent) >= 2 * len(self._threads) and all(error is None for error in recent)

    def first_good(self, ready: float) -> float | None:
        """When the first request that began after prefill was ready had succeeded."""
        return min((ended for begun, ended, error in self.done if error is None and begun >= ready), default=None)

    def account(self, killed: float, ready: float) -> dict[str, Any]:
        """What clients saw, by when their request began."""
        spans: dict[str, Callable[[float, float], bool]] = {
            "in_flight_at_kill": lambda begun, ended: begun < killed <= ended,
            "while_down": lambda begun, ended: killed <= begun < ready,
            "after_ready": lambda begun, ended: begun >= ready,
        }
        result: dict[str, Any] = {}
        for name, inside in spans.items():
            errors = [error for begun, ended, error in self.done if inside(begun, ended)]
            result[name] = {"requests": len(errors), "lost": sum(error is not None for error in errors)}
        lost = [(begun, ended, error) for begun, ended, error in self.done if error is not None and ended >= killed]
        first = self.first_good(ready)
        last = max((ended for _, ended, _ in lost), default=None)
        return {
            **result,
            "lost_before_kill": sum(error is not None for _, ended, error in self.done if ended < killed),
            "first_success_after_ready_s": rounded(first - ready) if first else None,
            "last_failure_after_ready_s": rounded(max(last - ready, 0)) if last else None,
            "errors": dict(Counter(str(error) for _, _, error in lost).most_common()),
            "slowest_failure_s": rounded(max((ended - begun for begun, ended, _ in lost), default=0)),
        }


class Watch:
    """Looks at the router's /readiness, /workers and circuits all the time, and notes each change."""

    def __init__(self, setting: Setting, bench: Bench) -> None:
        self.setting = setting
        self.roles = {urlsplit(bench.prefill.url).netloc: "prefill", urlsplit(bench.decode).netloc: "decode"}
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.25):
            state: dict[str, Any] = {"readiness": call(self.setting.url + "/readiness", limit_s=5).status}
            workers = call(self.setting.url + "/workers", limit_s=5).json()
            for worker in workers.get("workers", []) if isinstance(workers, dict) else []:
                state[f"{worker.get('worker_type')}_healthy"] = worker.get("is_healthy")
            metrics = call(f"http://127.0.0.1:{self.setting.port + 1}/metrics", limit_s=5).text
            for url, value in CIRCUIT_METRIC.findall(metrics):
                role = self.roles.get(urlsplit(url if "//" in url else "//" + url).netloc, url)
                state[f"{role}_circuit"] = CIRCUIT.get(float(value), value)
            self.seen.append((time.perf_counter(), state))

    def account(self, killed: float, ready: float, clients: Load) -> dict[str, Any]:
        """Circuits that opened, and for how long /readiness said 200 while no request could succeed."""
        first = clients.first_good(ready)
        until = first if first is not None else time.perf_counter()
        lied_down, lied_ready = 0.0, 0.0
        for (begun, state), (ended, _) in zip(self.seen, self.seen[1:], strict=False):
            if state["readiness"] == 200:
                lied_down += max(0.0, min(ended, ready) - max(begun, killed))
                lied_ready += max(0.0, min(ended, until) - max(begun, ready))
        timeline: list[list[Any]] = []
        for moment, state in self.seen:
            if not timeline or timeline[-1][1] != state:
                timeline.append([rounded(moment - killed, 1), state])
        return {
            "prefill_circuit_opened": self._ever("prefill_circuit", "open"),
            "decode_circuit_opened": self._ever("decode_circuit", "open"),
            "prefill_marked_unhealthy": self._ever("prefill_healthy", False),
            "readiness_200_while_down_s": rounded(lied_down, 1),
            "readiness_200_after_ready_before_success_s": rounded(lied_ready, 1),
            "timeline": timeline[:40],
        }

    def _ever(self, key: str, value: Any) -> bool | None:
        known = [state[key] for _, state in self.seen if key in state]
        return any(item == value for item in known) if known else None


# --- numbers and output --------------------------------------------------------------------------------------------


def rounded(value: float | None, digits: int = 2) -> float | None:
    """For JSON that people read."""
    return None if value is None else round(value, digits)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles, extremes and the samples."""
    low, middle, high = statistics.quantiles(values, n=4)
    return {
        "n": len(values),
        "median_ms": rounded(middle),
        "quartiles_ms": [rounded(low), rounded(high)],
        "range_ms": [rounded(min(values)), rounded(max(values))],
        "samples_ms": [rounded(value) for value in values],
    }


def interval(values: Sequence[float], rounds: int = 2000) -> list[float | None]:
    """95 % interval of the median, by resampling with a fixed seed."""
    dice = random.Random(0)  # noqa: S311
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(rounds))
    return [rounded(medians[int(rounds * 0.025)]), rounded(medians[int(rounds * 0.975)])]


def message(log: Path) -> str:
    """The line of a log that says what is wrong, without terminal colours and times."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(encoding="utf-8", errors="replace"))
    lines = [line.strip() for line in text.splitlines() if "in use" in line]
    return re.sub(r"^[0-9: .TZ-]+", "", lines[-1])[:240] if lines else text.strip()[-240:]


def document(cells: Sequence[Cell]) -> str:
    """The result file: one cell a line."""
    rows = ",\n".join("    " + json.dumps(cell) for cell in cells)
    about = {"python": sys.version.split()[0], "cpus": os.cpu_count(), "machine": os.uname().machine, "common": COMMON}
    return f'{{\n  "about": {json.dumps(about)},\n  "cells": [\n{rows}\n  ]\n}}\n'


COLUMNS: dict[str, list[tuple[str, Callable[[Cell], Any]]]] = {
    "start": [
        ("right answer s", lambda cell: cell["right_answer_s"]),
        ("/readiness s", lambda cell: cell["readiness_s"]),
        ("CPU s", lambda cell: cell["cpu_s"]),
        ("RSS MiB", lambda cell: cell["resident_mib"]),
        ("SIGTERM s", lambda cell: cell["sigterm_idle_s"]),
    ],
    "ttft": [
        ("n", lambda cell: cell["n"]),
        ("TTFT ms", lambda cell: cell["median_ms"]),
        ("quartiles", lambda cell: cell["quartiles_ms"]),
        ("added ms", lambda cell: cell.get("added_ms", {}).get("median_ms")),
        ("95 %", lambda cell: cell.get("interval")),
    ],
    "behaviour": [
        ("port in use", lambda cell: f"rc {cell['metrics_port_in_use']['exit_status']}"),
        ("SIGTERM in flight s", lambda cell: cell["sigterm_in_flight"]["seconds_to_exit"]),
        ("request whole", lambda cell: cell["sigterm_in_flight"]["request_whole"]),
    ],
    "restart": [
        ("stream", lambda cell: cell["stream"]),
        ("down s", lambda cell: cell["prefill_down_s"]),
        ("lost in flight", lambda cell: cell["in_flight_at_kill"]["lost"]),
        ("lost while down", lambda cell: cell["while_down"]["lost"]),
        ("lost after ready", lambda cell: cell["after_ready"]["lost"]),
        ("1st success s", lambda cell: cell["first_success_after_ready_s"]),
        ("last failure s", lambda cell: cell["last_failure_after_ready_s"]),
        ("slowest failure s", lambda cell: cell["slowest_failure_s"]),
        ("decode open", lambda cell: cell["decode_circuit_opened"]),
        ("lied down/ready s", lambda cell: f"{cell['readiness_200_while_down_s']}/"
         f"{cell['readiness_200_after_ready_before_success_s']}"),
        ("decode failed", lambda cell: cell["decode_failed_requests"]),
    ],
    "together": [
        ("prefill start s", lambda cell: cell["prefill_start_s"]),
        ("/readiness after s", lambda cell: cell["readiness_after_ready_s"]),
        ("right after s", lambda cell: cell["right_after_ready_s"]),
    ],
}  # fmt: skip


def table(cells: Iterable[Cell]) -> str:
    """One Markdown table a trial, one row a cell, routers side by side."""
    parts = []
    for trial in TRIALS:
        rows = sorted(
            (cell for cell in cells if cell["trial"] == trial), key=lambda cell: (cell["flags"], cell["router"])
        )
        if not rows:
            continue
        heads = ["router", "flags", *(head for head, _ in COLUMNS[trial]), "load"]
        parts.append(f"\n{trial}\n| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
        for cell in rows:
            values = [cell["router"], cell["flags"], *(get(cell) for _, get in COLUMNS[trial]), cell["load_average"]]
            parts.append("| " + " | ".join(str(value) for value in values) + " |")
    return "\n".join(parts)


def settings_of(arguments: argparse.Namespace) -> list[Setting]:
    """Every router with every set of flags that is meant for it."""
    sets = [item.partition("=") for item in arguments.flags or ["default="]]
    settings: list[Setting] = []
    for label, _, flags in sets:
        wanted, _, label = label.rpartition(":")
        for router in arguments.router:
            name, _, prefix = router.partition("=")
            if wanted in ("", name):
                port = arguments.port + 2 * len(settings)
                settings.append(Setting(name, label, tuple(shlex.split(prefix)), tuple(shlex.split(flags)), port))
    return settings


def parser() -> argparse.ArgumentParser:
    """The command line."""
    described = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = described.add_argument
    add("--prefill", nargs=2, metavar=("URL", "BOOTSTRAP_PORT"), required=True)
    add("--decode", metavar="URL", required=True)
    add("--router", action="append", metavar="NAME=ARGV", required=True, help="how to start one; repeat")
    add("--flags", action="append", metavar="[ROUTER:]LABEL=FLAGS", help="flags to try; repeat")
    add("--trials", default="start,ttft,behaviour", help=f"of {','.join(TRIALS)}")
    add("--repeats", type=int, default=2)
    add("--requests", type=int, default=40, help="rounds of ttft")
    add("--concurrency", type=int, default=4, help="clients of restart")
    add("--stream", action="store_true", help="clients of restart stream, as SGLang's benchmark does")
    add("--before", type=float, default=4, help="seconds of load before the kill")
    add("--outage", type=float, default=15, help="seconds between the kill and the new start")
    add("--after", type=float, default=66, help="longest wait for recovery after prefill's /ready")
    add("--long-tokens", type=int, default=1000, help="length of the request in flight at SIGTERM")
    add("--port", type=int, default=31010, help="first port; each setting takes two")
    add("--json", type=Path, metavar="FILE", help="result file; added to when it exists")
    add("--may-kill-prefill", action="store_true", help="needed by restart and together")
    return described


def main() -> int:
    """Run the trials, print the table."""
    arguments = parser().parse_args()
    trials = arguments.trials.split(",")
    unknown = [trial for trial in trials if trial not in TRIALS]
    if unknown:
        raise SystemExit(f"No trial named {', '.join(unknown)}; there are {', '.join(TRIALS)}.")
    if {"restart", "together"} & set(trials) and not arguments.may_kill_prefill:
        raise SystemExit("restart and together kill the prefill server that was named: add --may-kill-prefill.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(arguments, settings_of(arguments))
    try:
        for trial in trials:
            getattr(bench, trial)()
    finally:
        # Stopped between the kill and the new start: leave the server as it was found.
        if bench.prefill.down:
            bench.prefill.start()
    print(table(bench.cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
