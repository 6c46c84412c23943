# SPDX-License-Identifier: Apache-2.0
"""What the integration tests stand on: real hosts with a real systemd (hosts.sh), and the real modules run by Ansible.

Without root or the packages that hosts.sh needs, the tests that need hosts are skipped with its own words; with
PDLAB_REQUIRE_HOSTS=1 they fail instead.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
HOSTS_SH = HERE / "hosts.sh"
HOSTS_STATE = Path(os.environ.get("PDLAB_HOSTS_DIR", "/run/pdlab-hosts"))
BIN = Path(sys.executable).parent
# Where the tests' own files lie on a host.
ON_HOST = "/opt/pdlab-tests"
# Each test takes ports of its own, so that one that failed cannot spoil the next.
_ports = itertools.count(41000 + (os.getpid() % 400) * 20)


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


@dataclass
class Host:
    """One real systemd host."""

    number: int
    address: str
    key: Path

    def run(self, *command: str, check: bool = True, stdin: str | None = None) -> str:
        """Run a shell command there as root and return its output."""
        done = subprocess.run(
            [str(HOSTS_SH), "run", str(self.number), *command],
            capture_output=True, text=True, timeout=120, check=False, input=stdin,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def put(self, source: Path, target: str) -> None:
        """Copy a folder there."""
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
                tar.add(source, arcname=".", filter=lambda item: None if "__pycache__" in item.name else item)
            archive.seek(0)
            subprocess.run(
                [str(HOSTS_SH), "run", str(self.number), f"mkdir -p {target} && tar -x --no-same-owner -C {target}"],
                stdin=archive, check=True, timeout=120,
            )  # fmt: skip


def hosts_up(count: int) -> list[Host]:
    """Bring up hosts, or skip (fail with PDLAB_REQUIRE_HOSTS) with what hosts.sh says."""
    up = subprocess.run([str(HOSTS_SH), "up", str(count)], capture_output=True, text=True, timeout=120, check=False)
    if up.returncode != 0:
        if os.environ.get("PDLAB_REQUIRE_HOSTS"):
            pytest.fail(up.stderr.strip())
        pytest.skip(up.stderr.strip())
    addresses = [
        subprocess.run([str(HOSTS_SH), "address", str(n)], capture_output=True, text=True, check=True).stdout.strip()
        for n in range(1, count + 1)
    ]
    return [Host(n, address, HOSTS_STATE / "key") for n, address in enumerate(addresses, 1)]


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """One real systemd host, with the stand-in and the collection on it; taken down whatever happens."""
    try:
        (up,) = hosts_up(1)
        up.put(HERE / "standin", f"{ON_HOST}/standin")
        up.put(CHECKOUT / "plugins", f"{ON_HOST}/python/ansible_collections/pdlab/pdlab/plugins")
        yield up
    finally:
        if os.geteuid() == 0:
            subprocess.run([str(HOSTS_SH), "down"], timeout=120, check=False)


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
    variables = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(host.key),
        "ansible_ssh_common_args": "'-o UserKnownHostsFile=/dev/null -o ControlMaster=auto -o ControlPersist=30s'",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    options = standin_options("/usr/bin/python3", f"{ON_HOST}/standin")
    yield Target(host.address, variables, host.address, "/srv/pdlab", options)
    host.run(
        "cd /etc/systemd/system && for u in pdlab-*.service; do [ -e $u ] || continue; systemctl kill -s KILL $u;"
        " systemctl stop $u; systemctl disable -q $u; rm -f $u; done; systemctl daemon-reload;"
        " systemctl reset-failed; rm -rf /srv/pdlab"
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
