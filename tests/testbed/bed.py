# SPDX-License-Identifier: Apache-2.0
"""Real systemd hosts (testbed.sh), as objects."""

from __future__ import annotations

import itertools
import os
import string
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TESTBED_SH = Path(__file__).resolve().parent / "testbed.sh"
LIMIT_S = 120


class NoBedError(Exception):
    """There can be no hosts here: no root, or a package is missing; the text says which."""


@dataclass(frozen=True)
class Host:
    """One real systemd host, reachable by ssh as root."""

    number: int
    address: str
    key: Path
    environment: Mapping[str, str] = field(repr=False)

    def run(self, *command: str, check: bool = True, stdin: str | None = None, limit_s: float = LIMIT_S) -> str:
        """Run a shell command there and return its output."""
        done = subprocess.run(
            [str(TESTBED_SH), "run", str(self.number), *command],
            env=self.environment, capture_output=True, text=True, timeout=limit_s, check=False, input=stdin,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def put(self, source: Path, target: str) -> None:
        """Copy a file or a folder there."""
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
                name = "." if source.is_dir() else Path(target).name
                tar.add(source, arcname=name, filter=lambda item: None if "__pycache__" in item.name else item)
            archive.seek(0)
            folder = target if source.is_dir() else str(Path(target).parent)
            unpack = f"mkdir -p {folder} && tar -x --no-same-owner -C {folder}"
            command = [str(TESTBED_SH), "run", str(self.number), unpack]
            subprocess.run(command, env=self.environment, stdin=archive, check=True, timeout=LIMIT_S)

    def inventory_variables(self) -> dict[str, str]:
        """Return what an inventory needs to reach it."""
        keeps = "-o ControlMaster=auto -o ControlPersist=60s"
        return {
            "ansible_host": self.address,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no {keeps}",
            "ansible_python_interpreter": "/usr/bin/python3",
        }


_beds = itertools.count()


def _name() -> str:
    """A name that no other bed of this or another process has: PID and a count, in at most seven letters and digits."""
    number, name = os.getpid() * 32 + next(_beds) % 32, ""
    while number:
        number, digit = divmod(number, 36)
        name = (string.digits + string.ascii_lowercase)[digit] + name
    return "t" + name


@contextmanager
def hosts(count: int, binds: Sequence[str] = ()) -> Iterator[list[Host]]:
    """`count` hosts that all see the folders `binds` (SOURCE:PLACE); gone afterwards, also when this process dies.

    Raises NoBedError.
    """
    environment = {
        **os.environ,
        "PDLAB_TESTBED": _name(),
        "PDLAB_TESTBED_OWNER": str(os.getpid()),
        "PDLAB_TESTBED_BIND": " ".join(binds),
    }

    def ask(*arguments: str) -> str:
        command = [str(TESTBED_SH), *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT_S
        ).stdout.strip()

    try:
        try:
            ask("up", str(count))
        except subprocess.CalledProcessError as error:
            raise NoBedError(str(error.stderr).strip()) from error
        key = Path(ask("key"))
        yield [Host(number, ask("address", str(number)), key, environment) for number in range(1, count + 1)]
    finally:
        if os.geteuid() == 0:
            ask("down")
