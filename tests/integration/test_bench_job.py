# SPDX-License-Identifier: Apache-2.0
"""The benchmark job on real processes and a real supervisord; only the client is a stand-in that replays."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_progress, leased_job, processes
from ansible_collections.pdlab.pdlab.plugins.modules import pd_bench

from tests.unit.bench.recorded import GOOD_POINT, output

REPOSITORY = Path(__file__).parents[2]
STANDIN = Path(__file__).parent / "bench_standin.py"
SUPERVISORD = Path(sys.executable).parent / "supervisord"


def wait_for(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# --- the keeper alone ------------------------------------------------------------------------------------------------


@dataclass
class Keeper:
    """One leased_job process and its files."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def lease(self) -> Path:
        return self.folder / "lease"

    def start(self, script: str, lease_s: float = 60, limit_s: float = 60) -> None:
        self.lease.touch()
        options = ["--status", str(self.folder / "status"), "--lease", str(self.lease)]
        limits = ["--lease-s", str(lease_s), "--limit-s", str(limit_s)]
        command = [sys.executable, leased_job.__file__, *options, *limits, "--", "/bin/sh", "-c", script]
        self.process = subprocess.Popen(command, cwd=self.folder, start_new_session=True)

    def status(self) -> dict[str, Any]:
        path = self.folder / "status"
        value: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return value

    def pid(self, name: str) -> int:
        return int(wait_for(lambda: text_of(self.folder / name).strip()))

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(20)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    keeper = Keeper(tmp_path)
    yield keeper
    if keeper.process is not None and keeper.process.poll() is None:
        keeper.process.terminate()
        keeper.process.wait(20)


# A child in a session of its own, a grandchild, and the command itself; the first two write their PIDs.
TREE = "setsid sh -c 'echo $$ > own-session; exec sleep 600' & (sleep 600 & echo $! > grandchild; wait) & "


def test_a_command_over_its_limit_is_ended_with_its_whole_tree(keeper: Keeper) -> None:
    keeper.start(TREE + "sleep 600", limit_s=1.5)
    tree = [keeper.pid("own-session"), keeper.pid("grandchild")]
    assert keeper.end() == 124
    assert keeper.status()["reason"] == "limit"
    assert not [pid for pid in [*tree, keeper.status()["pid"]] if processes.is_alive(pid)]


def test_a_tree_that_ignores_sigterm_is_killed(keeper: Keeper) -> None:
    keeper.start("trap '' TERM; " + TREE + "sleep 600; sleep 600", limit_s=0.5)
    tree = [keeper.pid("own-session"), keeper.pid("grandchild")]
    assert keeper.end() == 124
    assert keeper.status()["exit_code"] == -signal.SIGKILL
    assert not [pid for pid in tree if processes.is_alive(pid)]


def test_a_command_whose_lease_is_renewed_lives_and_ends_when_it_is_not(keeper: Keeper) -> None:
    keeper.start(TREE + "sleep 600", lease_s=1.5)
    tree = [keeper.pid("own-session"), keeper.pid("grandchild")]
    for _ in range(8):
        time.sleep(0.5)
        os.utime(keeper.lease)
    assert keeper.status()["ended"] is None
    assert keeper.end() == 75
    assert keeper.status()["reason"] == "lease"
    assert not [pid for pid in tree if processes.is_alive(pid)]


def test_a_crash_keeps_its_exit_code_and_leaves_no_child(keeper: Keeper) -> None:
    keeper.start(TREE + "while [ ! -s own-session ] || [ ! -s grandchild ]; do sleep 0.05; done; exit 7")
    tree = [keeper.pid("own-session"), keeper.pid("grandchild")]
    assert keeper.end() == 7
    status = keeper.status()
    assert (status["reason"], status["exit_code"]) == ("exited", 7)
    assert status["ended"] >= status["started"]
    assert not [pid for pid in tree if processes.is_alive(pid)]


def test_a_command_killed_by_a_signal_is_told_as_such(keeper: Keeper) -> None:
    keeper.start("kill -KILL $$")
    assert keeper.end() == 128 + signal.SIGKILL
    assert keeper.status()["exit_code"] == -signal.SIGKILL


def test_a_keeper_that_is_asked_to_stop_ends_the_tree_and_says_so(keeper: Keeper) -> None:
    keeper.start(TREE + "sleep 600")
    tree = [keeper.pid("own-session"), keeper.pid("grandchild")]
    assert keeper.process is not None
    keeper.process.terminate()
    assert keeper.end() == 143
    assert keeper.status()["reason"] == "stopped"
    assert not [pid for pid in tree if processes.is_alive(pid)]


def test_a_keeper_that_is_killed_takes_the_command_with_it(keeper: Keeper) -> None:
    keeper.start("echo $$ > command; exec sleep 600")
    command = keeper.pid("command")
    assert keeper.process is not None
    keeper.process.kill()
    keeper.process.wait(20)
    wait_for(lambda: not processes.is_alive(command), 5)


def test_a_command_that_cannot_be_started_is_told_as_such(tmp_path: Path) -> None:
    status = tmp_path / "status"
    options = ["--status", str(status), "--lease", str(tmp_path), "--lease-s", "9", "--limit-s", "9"]
    ended = subprocess.run([sys.executable, leased_job.__file__, *options, "--", "/nowhere/python"], timeout=20)
    assert ended.returncode == 127
    assert json.loads(status.read_text())["reason"].startswith("not started: ")


# --- the module on a real supervisord --------------------------------------------------------------------------------


class Router(http.server.ThreadingHTTPServer):
    """Answers as router and workers do where the module asks them something."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.flushed: list[str] = []
        self.asked = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(http.server.BaseHTTPRequestHandler):
    server: Router

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/v1/models" else 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/generate":
            self.server.asked += 1
            self._answer(200, b'{"meta_info": {}}')
            return
        self.server.flushed.append(self.path)
        self._answer(400 if self.path.startswith("/busy/") else 200)

    def _answer(self, status: int, body: bytes = b"{}") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class Bench:
    """Everything that a point needs, with a stand-in for the engine's Python."""

    root: Path
    router: Router
    server: subprocess.Popen[bytes]

    def params(self, behaviour: str = "good", **changes: Any) -> dict[str, Any]:
        """As the module gets them: completed from its own argument spec, so that no default is missing."""
        validated = ArgumentSpecValidator(pd_bench.ARGUMENTS).validate(
            {
                "root": str(self.root),
                "run": "a-run",
                "point": dict(GOOD_POINT),
                "base_url": self.router.url,
                "served_name": "canary",
                "tokenizer": str(self.root / "model"),
                "model_path": str(self.root / "model"),
                "python": str(self.root / "engine-python"),
                "pythonpath": [str(self.root / "site")],
                "sample_s": 0.1,
                "args": {"tag": behaviour},
                "workers": [{"name": "server-0", "url": self.router.url, "role": "colocated"}],
                "watch": [
                    {
                        "name": "prefill-0",
                        "pid": self.server.pid,
                        "log": str(self.root / "p.log"),
                    }
                ],
                "service_manager": "supervisor",
                "supervisord": str(SUPERVISORD),
                "wait_s": 20,
                "lease_s": 60,
                **changes,
            }
        )
        assert not validated.error_messages, validated.error_messages
        return dict(validated.validated_parameters)

    def file(self, ending: str) -> Path:
        return self.root / "bench" / "a-run" / ("c4-n12" + ending)

    def status(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(text_of(self.file(".status.json")) or "{}")
        return value

    def client(self) -> int:
        """The PID of what runs the client, as soon as the job has imported it."""
        return int(wait_for(lambda: self.status().get("pid")))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "model").mkdir()
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / "model" / name).write_text("{}")
    (tmp_path / "p.log").write_text("[2026-01-01] ValueError: of an earlier life\n")
    python = tmp_path / "engine-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    client = tmp_path / "site" / "sglang" / "benchmark"
    client.mkdir(parents=True)
    shutil.copy(STANDIN, client / "serving.py")
    shutil.copytree(REPOSITORY / "tests" / "unit" / "data" / "bench", tmp_path / "recorded")
    python.chmod(0o755)
    router = Router()
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    bench = Bench(tmp_path, router, server)
    yield bench
    router.shutdown()
    if server.poll() is None:
        server.kill()
    server.wait()
    pid_file = tmp_path / "supervisor" / "supervisord.pid"
    if pid_file.exists():
        daemon = int(pid_file.read_text())
        os.kill(daemon, signal.SIGTERM)
        wait_for(lambda: not processes.is_alive(daemon))


def test_a_point_runs_from_start_to_record_and_leaves_no_job(bench: Bench) -> None:
    started = pd_bench.start(bench.params())
    assert started["argv"][1:3] == ["-m", "sglang.benchmark.serving"]
    polled = pd_bench.poll(bench.params())
    assert polled["finished"] and polled["died"] == []
    assert polled["progress"] == {"phase": "summary", "done": 12, "total": 12, "seconds": 20}
    collected = pd_bench.collect(bench.params())
    assert collected["ok"], collected["why"]
    # Before the job, to see that it can be done, and after the warm-up; a request over the pair, and four at once.
    assert bench.router.flushed == ["/flush_cache?timeout=30"] * 2
    assert bench.router.asked == 5
    doubts = {check["id"] for check in collected["checks"] if not check["ok"]}
    # The recording is of a point whose first prompt had been its warm-up's, and of a server that shows no metrics here.
    assert doubts == {"engine_not_read", "client_slow", "cache_warm"}
    assert not collected["record"]["counts"]
    assert collected["record"]["result"]["output_throughput"] == output("good")["output_throughput"]
    assert collected["sizes"][str(bench.file(".jsonl"))] == bench.file(".jsonl").stat().st_size
    assert pd_bench.absent(bench.params()) == {"changed": False}
    assert sorted(path.suffixes[-1] for path in bench.file("").parent.iterdir()) == [
        *(".json",) * 4,
        *(".jsonl",) * 2,
        ".log",
    ]


def test_the_end_of_the_job_is_seen_within_two_seconds(bench: Bench) -> None:
    pd_bench.start(bench.params())
    pd_bench.poll(bench.params())
    assert time.time() - bench.status()["ended"] < 2.0


def test_a_crash_of_the_client_is_seen_within_two_seconds_with_its_last_words(bench: Bench) -> None:
    pd_bench.start(bench.params("crash"))
    assert pd_bench.poll(bench.params())["finished"]
    assert time.time() - bench.status()["ended"] < 2.0
    record = pd_bench.collect(bench.params())["record"]
    assert not record["ok"] and record["result"] is None
    assert "client: ConnectionResetError: the stand-in was told to crash" in record["error_lines"]
    assert any("exit status 1" in why for why in record["why"])


def test_a_server_that_dies_fails_the_point_within_two_seconds_with_its_error_lines(bench: Bench) -> None:
    pd_bench.start(bench.params("hang"))
    client = bench.client()
    children = wait_for(lambda: processes.process_tree(client)[1:])
    with (bench.root / "p.log").open("a") as stream:
        stream.write("RuntimeError: CUDA error: out of memory\n")
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        bench.server.kill()
        bench.server.wait()

    threading.Timer(1.0, kill).start()
    polled = pd_bench.poll(bench.params("hang"))
    assert time.monotonic() - killed[0] < 2.0
    assert polled["finished"]
    assert polled["died"] == [{"name": "prefill-0", "why": f"PID {bench.server.pid} is gone"}]
    assert not [pid for pid in [client, *children] if processes.is_alive(pid)]
    record = pd_bench.collect(bench.params("hang"))["record"]
    assert not record["ok"] and record["result"] is None
    assert "prefill-0: RuntimeError: CUDA error: out of memory" in record["error_lines"]
    assert not [line for line in record["error_lines"] if "earlier life" in line]


def test_a_server_on_another_host_is_watched_by_its_port(bench: Bench) -> None:
    distant = Router()
    watch = [{"name": "decode-0", "pid": None, "unit": None, "url": distant.url, "log": None}]
    pd_bench.start(bench.params("hang", watch=watch))
    assert not pd_bench.poll(bench.params("hang", wait_s=0.5))["finished"]
    distant.shutdown()
    distant.server_close()
    died = pd_bench.poll(bench.params("hang"))["died"]
    assert died == [{"name": "decode-0", "why": f"nothing answers at {distant.url}"}]


def test_a_point_over_its_limit_ends_although_the_client_ignores_sigterm(bench: Bench) -> None:
    point = {**GOOD_POINT, "limit_s": 2}
    pd_bench.start(bench.params("deaf", point=point))
    polled = pd_bench.poll(bench.params("deaf", point=point))
    assert polled["finished"]
    record = pd_bench.collect(bench.params("deaf", point=point))["record"]
    assert [why.partition(":")[0] for why in record["why"]] == ["over_time_limit", "client_failed", "no_output"]


def test_a_job_that_nobody_asks_about_ends_by_itself(bench: Bench) -> None:
    pd_bench.start(bench.params("hang", lease_s=1.5))
    client = bench.client()
    tree = [*wait_for(lambda: processes.process_tree(client)[1:]), client]
    wait_for(lambda: bench.status()["ended"])
    assert bench.status()["reason"] == "lease"
    assert not [pid for pid in tree if processes.is_alive(pid)]


def test_a_keeper_killed_from_outside_fails_the_point(bench: Bench) -> None:
    pd_bench.start(bench.params("hang"))
    client = bench.client()
    keeper = processes.read_process(client)
    assert keeper is not None
    os.kill(keeper.parent, signal.SIGKILL)
    assert pd_bench.poll(bench.params("hang"))["finished"]
    record = pd_bench.collect(bench.params("hang"))["record"]
    assert any("gone without a word" in why for why in record["why"])
    wait_for(lambda: not processes.is_alive(client), 5)


def test_a_new_point_clears_away_a_job_that_still_runs(bench: Bench) -> None:
    pd_bench.start(bench.params("hang"))
    client = bench.client()
    tree = [*wait_for(lambda: processes.process_tree(client)[1:]), client]
    pd_bench.start(bench.params())
    assert not [pid for pid in tree if processes.is_alive(pid)]
    assert pd_bench.poll(bench.params())["finished"]
    assert pd_bench.collect(bench.params())["ok"]


def test_absent_ends_a_running_job_and_says_whether_it_did(bench: Bench) -> None:
    pd_bench.start(bench.params("hang"))
    client = bench.client()
    assert pd_bench.absent(bench.params()) == {"changed": True}
    assert not processes.is_alive(client)
    assert pd_bench.absent(bench.params()) == {"changed": False}


def test_everything_that_is_missing_is_named_at_once_and_nothing_is_started(bench: Bench) -> None:
    bench.server.kill()
    bench.server.wait()
    changes = {"tokenizer": "/nowhere/model", "model_path": "/nowhere/model", "python": "/nowhere/python"}
    with pytest.raises(pd_bench.Refused) as refused:
        pd_bench.start(bench.params(base_url="http://127.0.0.1:9", **changes))
    named = [reason.partition(":")[0] for reason in refused.value.reasons]
    assert named == ["python", "tokenizer", "model_path", "base_url", "prefill-0"]
    assert not (bench.root / "bench").exists()


def test_a_worker_that_does_not_flush_its_cache_stops_the_point(bench: Bench) -> None:
    workers = [{"name": "decode-0", "url": bench.router.url + "/busy", "role": "decode"}]
    with pytest.raises(pd_bench.Refused, match=r"decode-0: POST .*: HTTP 400"):
        pd_bench.start(bench.params(workers=workers))
    assert pd_bench.absent(bench.params()) == {"changed": False}


def job_of(bench: Bench) -> int:
    """The PID of the job, which imports the client and forks the points."""
    return int(json.loads((bench.root / "state" / "bench" / "state.json").read_text())["pid"])


def run_point(bench: Bench, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The job that ran a point, and what became of the point."""
    pd_bench.start(params)
    job = job_of(bench)
    assert pd_bench.poll(params)["finished"]
    return job, pd_bench.collect(params)


def test_a_job_that_stays_runs_the_next_point_and_the_last_point_takes_it_away(bench: Bench) -> None:
    first, one = run_point(bench, bench.params(stay=True))
    second, two = run_point(bench, bench.params(point={**GOOD_POINT, "label": "c4-n12-again"}))
    assert one["ok"] and two["ok"] and first == second
    assert (one["changed"], two["changed"]) == (False, True)
    assert [collected["record"]["label"] for collected in (one, two)] == ["c4-n12", "c4-n12-again"]
    log = bench.root / "bench" / "a-run" / "c4-n12-again.log"
    assert "12/12" in log.read_text()
    assert pd_bench.absent(bench.params()) == {"changed": False}
    assert not processes.is_alive(first) and not (bench.root / "state" / "bench").exists()


@pytest.mark.parametrize(("change", "same"), [({"environment": {"OTHER": "1"}}, False), ({"run": "another"}, True)])
def test_a_job_takes_a_point_only_when_its_client_would_be_the_same(
    bench: Bench, change: dict[str, Any], same: bool
) -> None:
    first, one = run_point(bench, bench.params(stay=True))
    second, two = run_point(bench, bench.params(**change))
    assert one["ok"] and two["ok"] and (first == second) is same
    assert not processes.is_alive(first)


def test_a_failed_point_leaves_no_job_for_the_next_one(bench: Bench) -> None:
    first, one = run_point(bench, bench.params("crash", stay=True))
    second, two = run_point(bench, bench.params())
    assert not one["ok"] and two["ok"] and first != second
    assert any("ConnectionResetError" in line for line in one["record"]["error_lines"])


def test_raw_output_of_the_newest_five_runs_is_kept(bench: Bench) -> None:
    for number in range(7):
        (bench.root / "bench" / f"2026010{number}T000000Z-abcdef").mkdir(parents=True)
    pd_bench.start(bench.params())
    pd_bench.poll(bench.params())
    pd_bench.collect(bench.params())
    kept = sorted(path.name for path in (bench.root / "bench").iterdir())
    assert kept == [*(f"2026010{number}T000000Z-abcdef" for number in (3, 4, 5, 6)), "a-run"]


# --- the whole task through Ansible ----------------------------------------------------------------------------------


def playbook(bench: Bench, behaviour: str, run_dir: Path, *more: str) -> subprocess.Popen[str]:
    params = bench.params(behaviour)
    watch = [{key: value for key, value in server.items() if value is not None} for server in params.pop("watch")]
    for name in ("run", "home", "warmup", "router_metrics", "wait_s", "lease_s"):
        del params[name]
    for server in [*watch, *params["workers"]]:
        server["argv"] = ["as", "the", "plan", "has", "it"]
    task = {"name": "Measure", "pdlab.pdlab.pd_bench": {**params, "watch": watch, "run_dir": str(run_dir)}}
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": [{**task, "register": "point"}]}]
    path = bench.root / "play.yml"
    path.write_text(json.dumps(play))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local"]
    return subprocess.Popen(
        [*command, "-e", f"ansible_python_interpreter={sys.executable}", *more, str(path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )


def test_the_task_tells_its_progress_and_keeps_raw_files_and_record(bench: Bench, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "20260101T000000Z-abcdef"
    run_dir.mkdir(parents=True)
    said, _ = playbook(bench, "good", run_dir).communicate(timeout=60)
    assert "failed=0" in said and "changed=0" in said, said
    told = [seen for line in said.splitlines() if (seen := bench_progress.read_line(line))]
    assert told[-1]["label"] == "c4-n12" and (told[-1]["done"], told[-1]["total"]) == (12, 12)
    record = json.loads((run_dir / "records" / "point-c4-n12.json").read_text())
    assert record["ok"] and record["result"]["completed"] == 12
    assert json.loads((run_dir / "bench" / "c4-n12.jsonl").read_text())["generated_texts"]
    samples = [json.loads(line) for line in (run_dir / "bench" / "c4-n12.samples.jsonl").read_text().splitlines()]
    assert samples[0]["phase"] == "before" and samples[-1]["phase"] == "after"
    assert "Serving Benchmark Result" in (run_dir / "bench" / "c4-n12.log").read_text()


def test_a_failed_point_does_not_fail_the_task_and_keeps_its_log(bench: Bench, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "r"
    run_dir.mkdir(parents=True)
    said, _ = playbook(bench, "crash", run_dir).communicate(timeout=60)
    assert "failed=0" in said, said
    record = json.loads((run_dir / "records" / "point-c4-n12.json").read_text())
    assert not record["ok"] and record["result"] is None and record["why"]
    assert "ConnectionResetError" in (run_dir / "bench" / "c4-n12.log").read_text()
    assert not (run_dir / "bench" / "c4-n12.jsonl").exists()


def test_ctrl_c_ends_the_client_within_five_seconds(bench: Bench, tmp_path: Path) -> None:
    play = playbook(bench, "hang", tmp_path / "runs" / "r")
    # The run's name is its folder's.
    status = bench.root / "bench" / "r" / "c4-n12.status.json"
    client = int(wait_for(lambda: json.loads(text_of(status) or "{}").get("pid"), 30))
    time.sleep(1.0)
    assert processes.is_alive(client)
    os.kill(play.pid, signal.SIGINT)
    wait_for(lambda: not processes.is_alive(client), 5)
    play.communicate(timeout=20)
    assert play.returncode != 0
    wait_for(lambda: pd_bench.absent(bench.params())["changed"] is False, 5)


def test_check_mode_runs_nothing(bench: Bench, tmp_path: Path) -> None:
    said, _ = playbook(bench, "good", tmp_path, "--check").communicate(timeout=60)
    assert "skipped=1" in said, textwrap.shorten(said, 2000)
    assert not (bench.root / "bench").exists() and not (bench.root / "supervisor").exists()
