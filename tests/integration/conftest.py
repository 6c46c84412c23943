# SPDX-License-Identifier: Apache-2.0
"""What the integration tests stand on: real hosts with a real systemd (tests/testbed), and the real modules run by Ansible."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..testbed.bed import Host, hosts
from ..testbed.skipping import skipping_without_a_bed

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
# Where the tests' own files lie on a host.
ON_HOST = "/opt/pdlab-tests"


def first_port() -> int:
    """Where this worker's ports begin: each test takes ports of its own, so that one that failed cannot spoil the next.

    Below what the kernel hands out by itself, so that no connection of anybody has one of them at the time. A run has
    500 of them, which its workers share.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    return 10000 + run % 20 * 500 + worker * (500 // workers)


_ports = itertools.count(first_port())


@dataclass
class Answer:
    """What a module said: its return code as Ansible counts it, and its JSON."""

    failed: bool
    data: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


@dataclass
class Target:
    """A host as Ansible sees it, with what every call of pd_server there has in common."""

    name: str
    variables: dict[str, str]
    address: str
    root: str
    options: dict[str, Any] = field(default_factory=dict)

    def command(self, module: str, arguments: dict[str, Any], *flags: str) -> list[str]:
        """Return the command that runs a module here."""
        variables = [item for pair in self.variables.items() for item in ("-e", "=".join(pair))]
        return [
            str(BIN / "ansible"), self.name, "-i", f"{self.name},", *variables, "-m", module,
            "-a", json.dumps(arguments), *flags,
        ]  # fmt: skip

    def arguments(self, **options: Any) -> dict[str, Any]:
        """Return pd_server's arguments: what all calls share, and `options`; env is merged."""
        env = {**self.options["env"], **options.pop("env", {})}
        return {"root": self.root, **self.options, **options, "env": env}

    def run(self, module: str, arguments: dict[str, Any], *flags: str) -> Answer:
        """Run a module and return its answer."""
        with tempfile.TemporaryDirectory() as tree:
            done = subprocess.run(
                [*self.command(module, arguments, *flags), "--tree", tree],
                cwd=CHECKOUT, env=ansible_environment(), capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            answer = Path(tree) / self.name
            assert answer.exists(), done.stdout + done.stderr
            data = json.loads(answer.read_text())
        return Answer(bool(data.get("failed")) or done.returncode != 0, {**data, "output": done.stdout})

    def pd_server(self, *flags: str, **options: Any) -> Answer:
        """Run pd_server with the shared arguments and `options`."""
        return self.run("pdlab.pdlab.pd_server", self.arguments(**options), *flags)

    def echo(self, port: int) -> dict[str, Any]:
        """Return argv and environment as the stand-in process got them from the kernel."""
        with urllib.request.urlopen(f"http://{self.address}:{port}/echo", timeout=10) as reply:
            return dict(json.load(reply))


def ansible_environment() -> dict[str, str]:
    """Return an environment in which Ansible finds the collection and asks nobody anything."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".collections"),
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_NOCOLOR": "1",
    }


@pytest.fixture
def ports() -> Iterator[Iterator[int]]:
    """Ports that no other test uses."""
    yield _ports


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """One real systemd host, with the stand-in and the collection on it; taken down whatever happens."""
    with skipping_without_a_bed(), hosts(1) as (up,):
        up.put(HERE / "standin", f"{ON_HOST}/standin")
        up.put(CHECKOUT / "plugins", f"{ON_HOST}/python/ansible_collections/pdlab/pdlab/plugins")
        yield up


def standin_options(python: str, folder: str) -> dict[str, Any]:
    """Return pd_server's options for a stand-in server."""
    return {
        "role": "colocated", "python": python, "model_path": folder, "served_name": "m", "device": "cpu",
        "timeout_s": 60, "stop_timeout_s": 5, "error_lines": 5,
        "env": {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
    }  # fmt: skip


@pytest.fixture
def systemd_target(host: Host) -> Iterator[Target]:
    """The host for pd_server over ssh; no pdlab service is left there afterwards."""
    variables = {key: f"'{value}'" for key, value in host.inventory_variables().items() if key != "ansible_host"}
    options = standin_options("/usr/bin/python3", f"{ON_HOST}/standin")
    yield Target(host.address, variables, host.address, "/srv/pdlab", options)
    host.run(
        "cd /etc/systemd/system && for u in pdlab*.*; do [ -f $u ] || continue; systemctl kill -s KILL $u;"
        " systemctl stop $u; systemctl disable -q $u; rm -f $u; done; systemctl daemon-reload;"
        " systemctl reset-failed; rm -rf /srv/pdlab /run/pdlab-*"
    )


@pytest.fixture
def supervisor_target() -> Iterator[Target]:
    """This machine for pd_server with supervisor, under a root of its own; nothing runs there afterwards."""
    root = Path(tempfile.mkdtemp(prefix="pdlab-it-"))
    options = {
        **standin_options(sys.executable, str(HERE / "standin")),
        "manager": "supervisor",
        "supervisord": str(BIN / "supervisord"),
    }
    variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    yield Target("localhost", variables, "127.0.0.1", str(root), options)
    end_everything_of(root)
    shutil.rmtree(root, ignore_errors=True)


def end_everything_of(root: Path) -> None:
    """Kill the supervisord of this root and every process in its session, or that works below the root."""
    sessions = {pid for pid, argv in every_process() if str(root / "supervisor" / "supervisord.conf") in argv}
    for pid, _ in every_process():
        with contextlib.suppress(OSError):
            if os.getsid(pid) in sessions or os.readlink(f"/proc/{pid}/cwd").startswith(str(root)):
                os.kill(pid, signal.SIGKILL)


def every_process() -> list[tuple[int, list[str]]]:
    """Return PID and argv of every process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found.append((int(entry.name), argv))
    return found
