# SPDX-License-Identifier: Apache-2.0
"""The benchmark job imports the client once, and each point is a fork of it: as a process, as on a target."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_forkserver, processes

COLLECTIONS = Path(__file__).parents[3] / ".collections"
# Says when it is imported and what a point before it left; `steer` tells it what to do while it is imported.
CLIENT = """
import os, random, sys, time

LEFT = []
RANDOM = random.Random(5)

if __name__ != "__main__":
    print("imported by", os.getpid(), flush=True)
    exec(os.environ.get("STEER", ""))
else:
    import nest
    print("point", sys.argv[1:], nest.LEFT, os.environ.get("LEFT"), nest.RANDOM.random(), os.environ["HOME"], flush=True)
    nest.LEFT.append(1)
    os.environ["LEFT"] = "1"
    exec(sys.argv[1])
"""


def wait_for(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


class Nest:
    """One job and its points."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, label: str, script: str = "", stay: bool = False, limit_s: float = 60, lease_s: float = 60) -> None:
        argv = ["nest", script]
        warmup = {"requests": 0, "concurrency": 1, "input_len": 4, "output_len": 4, "vocabulary": 512, "seed": "s"}
        setup = {"client": {"argv": argv, "report": str(self.path(label, "report"))}, "environment": {"HOME": label}}
        setup |= {"base_url": "http://127.0.0.1:9", "workers": [], "warmup": warmup, "prompts": 0, "every_s": 0.1}
        setup |= {"samples": str(self.path(label, "samples")), "result": str(self.path(label, "result"))}
        self.path(label, "setup").write_text(json.dumps(setup))
        self.path(label, "lease").touch()
        request = {name: str(self.path(label, name)) for name in ("setup", "log", "status", "lease")}
        request |= {"client": "nest", "stay": stay, "limit_s": limit_s, "lease_s": lease_s}
        (self.folder / "new").write_text(json.dumps(request))
        (self.folder / "new").rename(self.folder / bench_forkserver.REQUEST)

    def start(self, steer: str = "") -> None:
        command = [sys.executable, "-m", bench_forkserver.__name__, str(self.folder), "a-key"]
        environment = {**os.environ, "PYTHONPATH": f"{self.folder}:{COLLECTIONS}", "STEER": steer}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True)

    def path(self, label: str, ending: str) -> Path:
        return self.folder / f"{label}.{ending}"

    def read(self, path: Path) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return value

    def status(self, label: str) -> dict[str, Any]:
        return self.read(self.path(label, "status"))

    def log(self, label: str) -> str:
        return self.path(label, "log").read_text()

    def waiting(self) -> bool:
        return bool(self.read(self.folder / bench_forkserver.STATE).get("waiting"))

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(20)

    def client(self, label: str) -> int:
        """The PID of a point's client, once it runs."""
        return int(wait_for(lambda: self.path(label, "pid").exists() and self.path(label, "pid").read_text()))

    def hanging(self, label: str) -> str:
        return f"open({str(self.path(label, 'pid'))!r}, 'w').write(str(os.getpid())); time.sleep(600)"


@pytest.fixture
def nest(tmp_path: Path) -> Iterator[Nest]:
    (tmp_path / "nest.py").write_text(CLIENT)
    nest = Nest(tmp_path)
    yield nest
    if nest.process is not None and nest.process.poll() is None:
        nest.process.terminate()
        nest.process.wait(20)


def test_two_points_import_the_client_once_and_neither_leaves_the_other_anything(nest: Nest) -> None:
    nest.ask("one", stay=True)
    nest.start()
    wait_for(nest.waiting)
    assert nest.process is not None
    state = nest.read(nest.folder / bench_forkserver.STATE)
    assert state == {"pid": nest.process.pid, "key": "a-key", "waiting": True}
    nest.ask("two")
    assert nest.end() == 0
    assert [nest.status(label)["reason"] for label in ("one", "two")] == ["exited", "exited"]
    assert nest.log("one").count("imported") == 1 and "imported" not in nest.log("two")
    points = [nest.log(label)[nest.log(label).index("point") :].splitlines()[0].split() for label in ("one", "two")]
    assert points[0][:4] == points[1][:4] == ["point", "['']", "[]", "None"]
    # Both begin with the state that the import left, as two runs of a program do.
    assert points[0][4] == points[1][4] and [point[5] for point in points] == ["one", "two"]
    assert not nest.waiting()


def test_a_point_whose_client_fails_is_the_last_one_and_keeps_its_words(nest: Nest) -> None:
    nest.ask("one", "raise ConnectionResetError('was told to')", stay=True)
    nest.start()
    assert nest.end() == 1
    assert (nest.status("one")["exit_code"], nest.status("one")["reason"]) == (1, "exited")
    assert "ConnectionResetError: was told to" in nest.log("one")


def test_a_client_that_cannot_be_imported_ends_the_point_with_its_words(nest: Nest) -> None:
    nest.ask("one", stay=True)
    nest.start("import no_such_module")
    assert nest.end() == 1
    assert (nest.status("one")["exit_code"], nest.status("one")["reason"]) == (1, "exited")
    assert "No module named 'no_such_module'" in nest.log("one")


@pytest.mark.parametrize(("limits", "reason", "code"), [({"limit_s": 1}, "limit", 124), ({"lease_s": 1}, "lease", 75)])
def test_an_import_that_hangs_counts_for_its_point(
    nest: Nest, limits: dict[str, float], reason: str, code: int
) -> None:
    nest.ask("one", **limits)
    nest.start("import subprocess; subprocess.run(['sleep', '600'])")
    assert wait_for(lambda: nest.status("one"))["ended"] is None
    assert nest.end() == code
    assert nest.status("one")["reason"] == reason and nest.status("one")["ended"]


def test_a_job_that_is_stopped_ends_its_point(nest: Nest) -> None:
    nest.ask("one", nest.hanging("one"))
    nest.start()
    client = nest.client("one")
    assert nest.process is not None
    nest.process.terminate()
    assert nest.end() == 143
    assert nest.status("one")["reason"] == "stopped" and not processes.is_alive(client)


def test_a_job_that_is_stopped_while_it_waits_ends_at_once(nest: Nest) -> None:
    nest.ask("one", stay=True)
    nest.start()
    wait_for(nest.waiting)
    assert nest.process is not None
    nest.process.terminate()
    assert nest.end() == 0 and not nest.waiting()


def test_a_job_that_nobody_asks_anything_of_does_not_wait_for_ever(nest: Nest) -> None:
    nest.ask("one", stay=True, lease_s=1)
    nest.start()
    wait_for(nest.waiting)
    nest.path("one", "lease").unlink()
    assert nest.end() == 0 and not nest.waiting()


def test_a_job_that_is_killed_takes_its_client_with_it(nest: Nest) -> None:
    nest.ask("one", nest.hanging("one"))
    nest.start()
    client = nest.client("one")
    assert nest.process is not None
    nest.process.send_signal(signal.SIGKILL)
    nest.end()
    wait_for(lambda: not processes.is_alive(client), 5)
