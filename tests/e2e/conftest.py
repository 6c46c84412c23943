# SPDX-License-Identifier: Apache-2.0
"""The real stack on this machine's CPU, in a root of its own, driven the way a user drives it.

The engine's environment is built once and kept between test runs (PDLAB_TEST_ROOT, default ~/.cache/pdlab-e2e);
services are taken down before and after.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
ROOT = Path(os.environ.get("PDLAB_TEST_ROOT", Path.home() / ".cache" / "pdlab-e2e"))
QUICK = ("-e", json.dumps({"pd_benchmark": {"sweep": "quick"}}))
UP_LIMIT_S = 1500
# First what wants nothing to run, then what wants all to run; last what leaves it broken, or replaces it.
ORDER = ("test_main_job", "test_points", "test_bad_days", "test_arms")


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        return self.out + self.err

    def json(self) -> Any:
        return json.loads(self.out)


class Pdlab:
    """`pdlab` in a root and a runs directory of the test's own."""

    def __init__(self, root: Path, runs: Path) -> None:
        self.root = root
        self.runs = runs
        self.env = {
            **os.environ,
            "PDLAB_ROOT": str(root),
            "PDLAB_RUNS_DIR": str(runs),
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "COLUMNS": "80",
        }

    def command(self, *arguments: str) -> list[str]:
        return [str(BIN / "pdlab"), *arguments]

    def __call__(self, *arguments: str, limit_s: float = UP_LIMIT_S) -> Done:
        return self.run(self.command(*arguments), limit_s)

    def playbook(self, *arguments: str, limit_s: float = UP_LIMIT_S) -> Done:
        argv = [str(BIN / "ansible-playbook"), *arguments, "-e", f"pdlab_runs_dir={self.runs}"]
        return self.run(argv, limit_s)

    def run(self, argv: list[str], limit_s: float) -> Done:
        started = time.monotonic()
        child = self.start(argv)
        try:
            out, err = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            pytest.fail(f"{argv} did not end within {limit_s} s:\n{out}\n{err}")
        except BaseException:
            # Whoever interrupts the tests means the command, too, which is in a session of its own.
            stop(child)
            raise
        return Done(child.returncode, out, err, time.monotonic() - started)

    def start(self, argv: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            cwd=CHECKOUT,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def latest(self) -> Path:
        return sorted(path for path in self.runs.iterdir() if path.is_dir())[-1]

    def record(self, name: str) -> Mapping[str, Any]:
        return json.loads((self.latest() / "records" / f"{name}.json").read_text())

    def pid_of(self, server: str) -> int:
        services = self("status", "--json").json()["services"]
        return next(service["pid"] for service in services if service["name"] == server)


def stop(child: subprocess.Popen[str]) -> None:
    """End a command as Ctrl-C does, and then for certain."""
    os.killpg(child.pid, signal.SIGINT)
    try:
        child.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def shut_down(pdlab: Pdlab) -> None:
    """Services and their supervisor, so that nothing of this root is left running."""
    # Also while a run that was interrupted holds the host: nobody else has this root.
    done = pdlab("down", "--force", limit_s=180)
    assert done.status == 0, done.text
    pid_file = ROOT / "supervisor" / "supervisord.pid"
    if pid_file.exists():
        pid = int(pid_file.read_text())
        if "supervisord" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not Path(f"/proc/{pid}").exists(), 30, "supervisord ends")


def wait_for(condition: Callable[[], Any], limit_s: float, what: str) -> Any:
    """Ask until the condition holds; fail with what was waited for."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    pytest.fail(f"not within {limit_s} s: {what}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in the order in which the stack is started anew least often: a start takes most of a minute."""
    order = {name: place for place, name in enumerate(ORDER)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def pdlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pdlab]:
    ROOT.mkdir(parents=True, exist_ok=True)
    driver = Pdlab(ROOT, tmp_path_factory.mktemp("runs"))
    shut_down(driver)
    yield driver
    shut_down(driver)


@pytest.fixture(scope="session")
def first_up(pdlab: Pdlab) -> Done:
    """The main job, once, with the short sweep."""
    return pdlab("up", *QUICK)


@pytest.fixture(scope="session")
def up_run(pdlab: Pdlab, first_up: Done) -> Path:
    """The run folder of that job: the oldest, whatever ran since."""
    return sorted(path for path in pdlab.runs.iterdir() if (path / "plan.json").exists())[0]


@pytest.fixture
def deployed(pdlab: Pdlab, first_up: Done) -> Pdlab:
    """The stack runs and is what the inventory says, whatever the test before did to it."""
    done = pdlab("deploy")
    assert done.status == 0, done.text
    return pdlab


@pytest.fixture(scope="module")
def standing(pdlab: Pdlab, first_up: Done) -> Pdlab:
    """The same, made right once for the tests at a file's beginning that leave it as it is."""
    done = pdlab("deploy")
    assert done.status == 0, done.text
    return pdlab
