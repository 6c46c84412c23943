# SPDX-License-Identifier: Apache-2.0
"""Rebuild, overlay, lock: a box in every bad state, with a real supervisor, a real uv and a stand-in for the engine."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import standin_engine
from .conftest import BIN, CHECKOUT, Host, Target, every_process

# The stand-in neither moves KV memory nor answers.
SKIPPED = "kv_transfer,ready"
LAUNCHER = "sglang/launch_server.py"


class Box:
    """An inventory, a root, and `pdlab` as a user types it."""

    def __init__(self, folder: Path, ports: Iterator[int]) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.lock = standin_engine.engine_lock(folder / "wheels")
        self.model = standin_engine.checkpoint(folder / "model")
        self.ports = list(itertools.islice(ports, 4))
        self.declare()

    def declare(self, **more: Any) -> None:
        """Write the inventory, with further variables."""
        standin_engine.inventory(self.folder / "inventory", self.root, self.lock, self.model, self.ports, **more)

    def __call__(self, *words: str, status: int | None = 0) -> str:
        env = {**os.environ, "PDLAB_RUNS_DIR": str(self.folder / "runs"), "COLUMNS": "160"}
        done = subprocess.run(
            [BIN / "pdlab", *words, "-i", self.folder / "inventory"],
            cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rebuild(self, *words: str, status: int | None = 0) -> str:
        return self("rebuild", "--skip-tags", SKIPPED, *words, status=status)

    def said_of(self, server: str) -> str:
        return (self.root / "logs" / f"{server}.log").read_text()

    @property
    def definitions(self) -> Path:
        return self.root / "supervisor" / "conf.d"

    @property
    def site(self) -> Path:
        return next((self.root / "engine" / "lib").glob("python*/site-packages"))

    def write_overlay(self) -> Path:
        """A patch of the stand-in, made from the installed file."""
        folder = self.folder / "overlay"
        folder.mkdir()
        before = (self.site / LAUNCHER).read_text()
        after = before.replace("serving.serve()", 'print("patched", flush=True)\nserving.serve()')
        lines = difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), LAUNCHER, LAUNCHER
        )
        (folder / "1.patch").write_text("".join(lines))
        sums = {
            side: hashlib.sha256(text.encode()).hexdigest() for side, text in (("before", before), ("after", after))
        }
        entry = {
            "patch": "1.patch", "distribution": "sglang", "version": standin_engine.VERSION,
            "reason": "the log shows it", "files": {LAUNCHER: sums},
        }  # fmt: skip
        (folder / "overlay.yml").write_text(json.dumps({"patches": [entry]}))
        return folder


@pytest.fixture
def box(ports: Iterator[int]) -> Iterator[Box]:
    folder = Path(tempfile.mkdtemp(prefix="pdlab-it-"))
    try:
        yield Box(folder, ports)
    finally:
        for pid, argv in every_process():
            if any(str(folder) in word for word in argv) and pid != os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_box_in_every_bad_state_becomes_what_the_inventory_says_and_every_change_is_told(box: Box) -> None:
    first = box.rebuild()
    assert re.search(r"engine +state +absent +complete", first), first
    assert re.search(r"package +sglang +- +0\.5\.23", first)
    assert re.search(r"service +pdlab-one +- +running", first)
    unit = (box.definitions / "pdlab-one.conf").read_text()

    # What people and accidents leave behind.
    shutil.copytree(box.root / "engine", box.root / "engine.new", symlinks=True)
    (box.root / "engine" / "pdlab-lock.json").unlink()
    stranger = box.definitions / "pdlab-left-over.conf"
    text = unit.replace("pdlab-one", "pdlab-left-over").replace(str(box.ports[0]), str(box.ports[0] + 9))
    stranger.write_text(text)
    (box.definitions / "pdlab-one.conf").write_text(unit.replace("--page-size 16", "--page-size 32"))
    (box.definitions / "pdlab-two.conf").unlink()

    told = box.rebuild()
    assert re.search(r"engine +state +incomplete +complete", told), told
    assert re.search(r"engine +leftovers +\S*engine\.new +-", told)
    assert re.search(r"service +pdlab-left-over +\w+ +-", told)
    assert re.search(r"definition pdlab-one +--page-size +32 +16", told)
    assert re.search(r"service +pdlab-two +- +running", told)
    assert not stranger.exists() and not (box.root / "engine.new").exists()
    assert (box.definitions / "pdlab-one.conf").read_text() == unit
    checked = box("deploy", "--check", "--skip-tags", SKIPPED)
    assert "check mode: 0 task(s) would change something" in checked, checked

    again = box.rebuild()
    assert "nothing differed" in again


def test_a_server_that_the_inventory_no_longer_names_goes_and_changed_environment_is_told_without_secrets(
    box: Box,
) -> None:
    box.rebuild()
    one = {"name": "one", "role": "colocated", "port": box.ports[0], "nccl_port": box.ports[2]}
    box.declare(pd_servers=[{**one, "env": {"NEW": "value", "API_TOKEN": "s3cret"}}])
    told = box.rebuild()
    assert re.search(r"service +pdlab-two +running +-", told), told
    assert re.search(r"environment pdlab-one +NEW +- +value", told)
    assert re.search(r"environment pdlab-one +API_TOKEN +- +sha256:", told) and "s3cret" not in told
    assert [path.name for path in box.definitions.iterdir()] == ["pdlab-one.conf"]


def test_an_overlay_restarts_the_servers_and_taking_it_back_does_too(box: Box) -> None:
    box.rebuild()
    overlay = box.write_overlay()
    original = (box.site / LAUNCHER).read_bytes()
    engine = {"lock": str(box.lock), "uv": str(BIN / "uv")}
    box.declare(pd_engine={**engine, "overlay": str(overlay)})
    assert "an overlay is to be applied" in box("status", status=1)
    told = box("deploy", "--skip-tags", SKIPPED, "--tags", "preflight,deploy")
    assert "patched" in box.said_of("one") and "patched" in box.said_of("two"), told

    target = box.site / LAUNCHER
    content = target.read_bytes()
    target.unlink()
    target.write_bytes(content + b"# mine\n")
    refused = box("deploy", "--skip-tags", SKIPPED, "--tags", "preflight,deploy", status=4)
    assert f"{LAUNCHER}: somebody changed it" in refused and "pdlab rebuild" in refused
    told = box.rebuild()
    assert re.search(rf"overlay +{LAUNCHER} +somebody changed it", told), told
    assert target.read_bytes() == content

    box.declare(pd_engine=engine)
    box("deploy", "--skip-tags", SKIPPED, "--tags", "preflight,deploy")
    assert (box.site / LAUNCHER).read_bytes() == original


def test_a_lock_is_kept_to_and_every_difference_from_it_is_told(box: Box) -> None:
    box.rebuild()
    overlay = box.write_overlay()
    engine = {"lock": str(box.lock), "uv": str(BIN / "uv")}
    box.declare(pd_engine={**engine, "overlay": str(overlay)})
    refused = box("lock", "-o", str(box.folder / "lock.yml"), status=1)
    assert "what is there is not what was declared" in refused and "overlay" in refused
    box("deploy", "--skip-tags", SKIPPED, "--tags", "preflight,deploy")
    path = box.folder / "lock.yml"
    box("lock", "-o", str(path))
    text = path.read_text()
    document = yaml.safe_load(text)
    host = document["hosts"]["box"]
    assert host["engine"]["packages"] == {"sglang": standin_engine.VERSION}
    assert host["services"]["two"]["environment"]["HUB_TOKEN"].startswith("sha256:") and "s3cret" not in text
    assert "--page-size" in host["services"]["one"]["argv"]
    assert box.lock.read_text() in document["requirements"].values()

    # The lock brings requirements and patches along: what lies on the controller no longer counts.
    shutil.rmtree(overlay)
    box.declare(pd_engine=engine)
    shutil.rmtree(box.root / "engine")
    kept = box.rebuild("--locked", str(path))
    assert "the overlay of the inventory differ" in kept and "the box is what the lock says" in kept
    assert "patched" in box.said_of("one")

    # An inventory that says otherwise: nothing is touched.
    before = {name.name: name.read_text() for name in box.definitions.iterdir()}
    box.declare(pd_engine=engine, pd_server_args={"page-size": 32}, pd_server_env={"X": "1"})
    refused = box.rebuild("--locked", str(path), status=8)
    assert "box: service one: --page-size: locked 16, found 32" in refused
    assert "box: service one: env X: locked nothing, found 1" in refused and "no host was touched" in refused
    assert {name.name: name.read_text() for name in box.definitions.iterdir()} == before

    # A box that cannot become what the lock says.
    box.declare(pd_engine=engine)
    (box.model / "tokenizer.json").write_text('{"other": 1}')
    differs = box.rebuild("--locked", str(path), status=8)
    assert "box: model fingerprint: locked" in differs

    # A lock that was changed by hand.
    path.write_text(text.replace("--hash=sha256:", "--hash=sha256:0", 1))
    assert "was changed by hand" in box.rebuild("--locked", str(path), status=2)


def test_on_systemd_every_unit_of_this_root_is_found_and_none_of_another_root(
    systemd_target: Target, host: Host, ports: Iterator[int]
) -> None:
    started = systemd_target.pd_server(name="left-over", port=next(ports), address="0.0.0.0")
    assert not started.failed, started.data
    folder = "/etc/systemd/system"
    # Another deployment's unit, of another root.
    host.run(
        f"sed 's,/srv/pdlab,/srv/other,g' {folder}/pdlab-left-over.service > {folder}/pdlab-strangers.service;"
        " systemctl daemon-reload"
    )
    seen = systemd_target.run("pdlab.pdlab.box_state", {"root": systemd_target.root})
    assert not seen.failed, seen.data
    assert list(seen["services"]) == ["pdlab-left-over"]
    found = seen["services"]["pdlab-left-over"]
    assert (found["manager"], found["state"]) == ("systemd", "running") and "ExecStart=" in found["definition"]
    assert seen["engine"]["state"] == "absent" and seen["model"] is None

    # As the playbook does it: by name and manager, without knowing anything else of the service.
    gone = {"name": "left-over", "state": "absent", "root": systemd_target.root, "manager": "systemd"}
    assert systemd_target.run("pdlab.pdlab.pd_server", gone)["changed"]
    assert systemd_target.run("pdlab.pdlab.box_state", {"root": systemd_target.root})["services"] == {}
    assert host.run(f"ls {folder}/pdlab-strangers.service").strip() == f"{folder}/pdlab-strangers.service"
