# SPDX-License-Identifier: Apache-2.0
"""A bundle, and what is built from it where there is no network at all: a controller, then a box."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import standin_engine
from .conftest import BIN, CHECKOUT, every_process

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
# Only the loopback interface, and nothing of this user's caches, configuration and programs.
ALONE = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "alone"]


def bundle(folder: Path, *words: str, wheels: Path | None = None, status: int = 0) -> str:
    env = {**os.environ, "COLUMNS": "160", **({"PIP_FIND_LINKS": str(wheels)} if wheels else {})}
    argv = [BIN / "pdlab", "bundle", "-o", folder, *words]
    done = subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="pdlab-it-"))
    try:
        yield made
    finally:
        for pid, argv in every_process():
            if any(str(made) in word for word in argv) and pid != os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(made, ignore_errors=True)


def test_a_controller_and_a_box_are_built_from_a_bundle_without_a_network(folder: Path, ports: Iterator[int]) -> None:
    made = folder / "bundle"
    lock = standin_engine.index_lock(folder / "wheels")
    model = standin_engine.checkpoint(folder / "model")
    inventory = folder / "inventory"
    numbers = list(itertools.islice(ports, 4))
    standin_engine.inventory(inventory, folder / "root", lock, model, numbers)
    told = bundle(made, "-i", str(inventory), "--python", "3.11", "--with-inventory", wheels=folder / "wheels")
    assert "engine: 1 wheels for Python 3.11" in told
    # What it was made from is gone, and it is somewhere else now.
    shutil.rmtree(folder / "wheels")
    made = made.rename(folder / "arrived")

    def alone(*argv: str | Path) -> str:
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
        }
        (folder / "home").mkdir(exist_ok=True)
        done = subprocess.run(
            [*ALONE, *argv], cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    venv = folder / "controller"
    assert f"pdlab is in {venv}/bin/pdlab" in alone(made / "install.sh", venv)
    engine = {"lock": f"{made}/requirements/engine.txt", "wheelhouse": f"{made}/wheels", "uv": f"{made}/bin/uv"}
    standin_engine.inventory(made / "inventory", folder / "root", lock, model, numbers, pd_engine=engine)
    pdlab = venv / "bin" / "pdlab"
    flags = ("-i", made / "inventory", "--tags", "preflight,deploy", "--skip-tags", "kv_transfer")
    alone(pdlab, "deploy", *flags)
    stamp = json.loads((folder / "root" / "engine" / "pdlab-lock.json").read_text())
    assert stamp["packages"] == {"sglang": standin_engine.VERSION}
    assert "stand-in starts" in (folder / "root" / "logs" / "one.log").read_text()

    # A file that was damaged on the way is found before anything is made of it.
    victim = next((made / "wheels").glob("rich-*.whl"))
    victim.write_bytes(victim.read_bytes() + b"x")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run([made / "install.sh", folder / "other"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and victim.name in done.stdout + done.stderr
    assert not (folder / "other").exists()


def test_a_folder_with_something_else_in_it_is_left_alone(folder: Path) -> None:
    (folder / "mine.txt").write_text("x")
    assert "is not empty and no bundle" in bundle(folder, status=1)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
