# SPDX-License-Identifier: Apache-2.0
"""A deployment where nothing is to change takes one look at the host; where anything is, it converges all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import is_alive, started_at

from .conftest import BIN, CHECKOUT
from .test_rebuild import SKIPPED, Box, box  # noqa: F401 - the fixture

BUSY = 7


def deploy(box: Box, *flags: str, status: int = 0) -> str:  # noqa: F811
    return box("deploy", "--skip-tags", SKIPPED, *flags, status=status)


def latest(box: Box) -> Path:  # noqa: F811
    return sorted(path for path in (box.folder / "runs").iterdir() if path.is_dir())[-1]


def record(box: Box, name: str) -> dict[str, Any]:  # noqa: F811
    found: dict[str, Any] = json.loads((latest(box) / "records" / f"{name}.json").read_text())
    return found


def results(box: Box) -> list[tuple[str, dict[str, Any]]]:  # noqa: F811
    """Each task's name and result in the latest run, a loop's items each for itself."""
    files = (latest(box) / "ansible" / "artifacts").glob("*/job_events/*.json")
    events = [json.loads(path.read_text()) for path in files]
    done = [event["event_data"] for event in events if event["event"] in ("runner_on_ok", "runner_item_on_ok")]
    return [(data["task"], data["res"]) for data in done]


def asked(box: Box) -> set[str]:  # noqa: F811
    """Tasks of the latest run that ran their module on the host; preflight's own look is not among them."""
    return {task for task, result in results(box) if "invocation" in result}


def supervisorctl(box: Box, *words: str) -> None:  # noqa: F811
    program = box.root / "supervisor" / "venv" / "bin" / "supervisorctl"
    conf = box.root / "supervisor" / "supervisord.conf"
    subprocess.run([program, "-c", conf, *words], check=True, capture_output=True)


def test_nothing_to_change_takes_one_look_and_any_change_converges(box: Box) -> None:  # noqa: F811
    deploy(box)
    first = {name: record(box, f"server-{name}") for name in ("one", "two")}
    assert asked(box) >= {"Servers", "Model files"}

    # Nothing to change: the same is told, and nobody was asked again.
    deploy(box)
    assert asked(box) == set()
    assert not any(result.get("changed") for _task, result in results(box))
    for name, before in first.items():
        now = record(box, f"server-{name}")
        assert (now["reasons"], now["changed"]) == ([], False)
        assert {key: now[key] for key in ("pid", "argv", "environment", "definition", "url", "log", "unit")} == {
            key: before[key] for key in ("pid", "argv", "environment", "definition", "url", "log", "unit")
        }
        assert now["live_environment"]["ok"] and now["seconds_to_ready"] == before["seconds_to_ready"]
    assert record(box, "model-box")["fingerprint"]
    assert "standing" not in record(box, "preflight-box"), "a server's environment has its own record"

    # One was stopped behind pdlab's back: it alone is started.
    supervisorctl(box, "stop", "pdlab-one")
    deploy(box)
    one, two = record(box, "server-one"), record(box, "server-two")
    assert one["pid"] != first["one"]["pid"] and is_alive(one["pid"])
    assert two["pid"] == first["two"]["pid"]

    # A definition was edited by hand, and then the inventory changed.
    path = box.definitions / "pdlab-two.conf"
    path.write_text(path.read_text().replace("--page-size 16", "--page-size 8"))
    deploy(box)
    assert "--page-size 16" in path.read_text()
    assert record(box, "server-two")["pid"] != two["pid"]
    box.declare(pd_server_args={"page-size": 32})
    told = deploy(box, "--check", "--diff")
    assert "+command=" in told and "--page-size 32" in told
    assert record(box, "server-one")["pid"] == one["pid"], "check mode touches nothing"
    deploy(box)
    for name in ("one", "two"):
        now = record(box, f"server-{name}")
        assert now["argv"][-2:] == ["--page-size", "32"] and is_alive(now["pid"])

    # The model was touched: it is judged anew.
    os.utime(box.model / "config.json")
    deploy(box)
    assert asked(box) == {"Model files"}

    # A rebuild removes what runs after preflight has seen it, and brings it up again.
    before = record(box, "server-one")["pid"]
    box.rebuild()
    assert record(box, "server-one")["pid"] != before
    assert is_alive(record(box, "server-one")["pid"])


def test_a_host_that_another_run_holds_is_refused_before_it_is_judged(box: Box) -> None:  # noqa: F811
    other = subprocess.Popen(["/bin/sleep", "120"], start_new_session=True)
    try:
        here = host_lock.this_machine()
        holder = {**here, "pid": other.pid, "pid_started": started_at(other.pid)}
        path = Path(host_lock.lock_path(str(box.root)))
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(host_lock.new_lock(holder, None, 7200, 0.0)))
        for command in ("deploy", "preflight"):
            told = box(command, status=BUSY)
            assert f"another pdlab run (PID {other.pid} on " in told
            assert not (latest(box) / "records" / "preflight-box.json").exists()
            assert json.loads(path.read_text())["holder"]["pid"] == other.pid
    finally:
        other.kill()
        other.wait()
    # A run that died does not stand in the way.
    box("preflight")
    assert json.loads(path.read_text())["holder"]["pid"] != other.pid


def test_what_runs_is_not_taken_down_under_a_run_that_is_on(box: Box) -> None:  # noqa: F811
    deploy(box)
    server = record(box, "server-one")["pid"]
    path = Path(host_lock.lock_path(str(box.root)))
    # A run that is on: deploy again, and stop it as soon as it holds the host.
    env = {**os.environ, "PDLAB_RUNS_DIR": str(box.folder / "runs")}
    inventory = box.folder / "inventory"
    with subprocess.Popen(
        [BIN / "pdlab", "deploy", "--skip-tags", SKIPPED, "-i", inventory],
        cwd=CHECKOUT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as run:  # fmt: skip
        deadline = time.monotonic() + 120
        while json.loads(path.read_text())["holder"]["pid"] != run.pid:
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.05)
        os.kill(run.pid, signal.SIGSTOP)
        told = box("down", status=BUSY)
        assert f"another pdlab run (PID {run.pid} on " in told and "pdlab down --force" in told
        assert is_alive(server)
        os.killpg(run.pid, signal.SIGKILL)
    # Cut, it does not stand in the way, and afterwards nobody holds the host.
    assert "stopped: " in box("down")
    assert not is_alive(server) and not path.exists()
