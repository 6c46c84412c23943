# SPDX-License-Identifier: Apache-2.0
"""The module pd_server on a real supervisord, run by a real Ansible on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import BIN, CHECKOUT, HERE, Target, ansible_environment, every_process
from .torture import ONE_LINE_VALUES


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.1)


@pytest.fixture
def supervisor_root(supervisor_target: Target) -> Path:
    return Path(supervisor_target.root)


def daemon_pid(root: Path) -> int:
    return int((root / "supervisor" / "supervisord.pid").read_text())


def test_check_mode_before_the_first_deployment_touches_nothing_and_shows_the_definition(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    answer = supervisor_target.pd_server(
        "--check", "--diff", name="c", port=next(ports), python="/not/there/yet", model_path="/not/there/yet"
    )
    assert not answer.failed, answer.data
    assert answer["changed"]
    assert "+[program:pdlab-c]" in answer["output"]
    assert list(supervisor_root.iterdir()) == []


def test_a_server_starts_and_a_second_run_changes_nothing(supervisor_target: Target, ports: Iterator[int]) -> None:
    port = next(ports)
    first = supervisor_target.pd_server(name="c", port=port)
    assert not first.failed, first.data
    assert (first["changed"], first["state"]) == (True, "running")
    assert first["seconds_to_ready"] > 0
    assert first["pid"] in first["pids"]
    echo = supervisor_target.echo(port)
    assert (echo["argv"], echo["environment"]) == (first["argv"], first["environment"])
    second = supervisor_target.pd_server(name="c", port=port)
    assert (second["changed"], second["pid"], second["reasons"]) == (False, first["pid"], [])
    assert second["seconds_to_ready"] == first["seconds_to_ready"]


def test_a_changed_argument_environment_or_engine_restarts_and_shows_the_difference(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    port = next(ports)
    pids = [supervisor_target.pd_server(name="c", port=port)["pid"]]
    for change in ({"args": {"x": "1"}}, {"args": {"x": "1"}, "engine_fingerprint": "new"}):
        preview = supervisor_target.pd_server("--check", "--diff", name="c", port=port, **change)
        assert preview["changed"]
        assert "\n-" in preview["output"]
        assert "\n+" in preview["output"]
        answer = supervisor_target.pd_server(name="c", port=port, **change)
        assert answer["reasons"] == ["its service definition differs"]
        pids.append(answer["pid"])
    assert len(set(pids)) == 3
    assert not any(alive(pid) for pid in pids[:-1])


def test_quoting_torture_every_value_reaches_the_live_process_unchanged(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    port = next(ports)
    env = {f"T{number}": value for number, value in enumerate(ONE_LINE_VALUES)}
    answer = supervisor_target.pd_server(name="c", port=port, args={"torture": ONE_LINE_VALUES}, env=env)
    assert not answer.failed, answer.data
    echo = supervisor_target.echo(port)
    start = echo["argv"].index("--torture") + 1
    assert echo["argv"][start:] == ONE_LINE_VALUES
    assert {key: echo["environment"][key] for key in env} == env
    assert echo["environment"] == answer["environment"]
    assert not supervisor_target.pd_server(name="c", port=port, args={"torture": ONE_LINE_VALUES}, env=env)["changed"]


def test_a_line_break_is_refused_by_name_and_nothing_is_touched(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    answer = supervisor_target.pd_server(name="c", port=next(ports), env={"TWO": "a\nb"})
    assert answer.failed
    assert "env TWO: supervisor cannot carry '\\n'" in answer["msg"]
    assert list(supervisor_root.iterdir()) == []


def test_a_killed_server_is_started_again_after_its_delay(supervisor_target: Target, ports: Iterator[int]) -> None:
    port = next(ports)
    pid = supervisor_target.pd_server(name="c", port=port)["pid"]
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    answer = supervisor_target.pd_server(name="c", port=port)
    assert not answer.failed, answer.data
    assert not answer["changed"]
    assert answer["pid"] != pid
    assert supervisor_target.echo(port)["pid"] == answer["pid"]
    assert time.monotonic() - killed > 2.5


def test_a_crash_at_start_gives_the_engines_own_words_within_seconds(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    crash = 'Traceback (most recent call last):\\n  File "x.py", line 1\\nValueError: no such layer'
    began = time.monotonic()
    answer = supervisor_target.pd_server(name="c", port=next(ports), env={"STANDIN_CRASH": crash}, timeout_s=100)
    assert answer.failed
    assert time.monotonic() - began < 20
    assert "died before it was ready" in answer["msg"]
    assert "exit code 3" in answer["msg"]
    # On a busy machine it is started again, and crashes again, before anybody looks: "(×2)".
    assert [line.split(" (×")[0] for line in answer["error_lines"]] == ["ValueError: no such layer"]
    assert (answer["state"], answer["pid"]) == ("stopped", None)


def test_a_crash_after_a_start_without_waiting_is_told_by_the_call_that_waits(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    crash = {"STANDIN_CRASH": "ValueError: late", "STANDIN_CRASH_AFTER_S": "1"}
    port = next(ports)
    started = supervisor_target.pd_server(name="c", port=port, env=crash, wait=False)
    assert not started.failed, started.data
    assert started["seconds_to_ready"] is None
    time.sleep(1.5)
    waited = supervisor_target.pd_server(name="c", port=port, env=crash)
    assert waited.failed
    assert waited["error_lines"][0].startswith("ValueError: late")


def test_two_servers_start_together_and_are_waited_for_afterwards(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    servers = [(name, next(ports), {"STANDIN_READY_AFTER_S": "2"}) for name in ("a", "b")]
    for wait in (False, True):
        answers = [supervisor_target.pd_server(name=n, port=p, env=e, wait=wait) for n, p, e in servers]
        assert [answer.failed for answer in answers] == [False, False]
        assert [answer["changed"] for answer in answers] == [not wait, not wait]
    assert all(answer["seconds_to_ready"] >= 2 for answer in answers)


def test_a_supervisord_that_takes_its_time_to_start_is_no_death_of_the_server(
    supervisor_target: Target, tmp_path: Path, ports: Iterator[int]
) -> None:
    slow = tmp_path / "supervisord"
    slow.write_text(f'#!/bin/sh\nsleep 5\nexec {BIN / "supervisord"} "$@"\n')
    slow.chmod(0o755)
    common = {"name": "c", "port": next(ports), "supervisord": str(slow)}
    started = supervisor_target.pd_server(**common, wait=False)
    assert not started.failed, started.data
    waited = supervisor_target.pd_server(**common)
    assert not waited.failed, waited.data
    assert not waited["changed"]
    assert Path(waited["log"]).read_text().count("stand-in starts") == 1


def test_a_port_in_use_names_its_owner_and_what_runs_is_left_alone(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    port, other = next(ports), next(ports)
    running = supervisor_target.pd_server(name="c", port=port)
    with socket.create_server(("127.0.0.1", other)):
        answer = supervisor_target.pd_server(name="c", port=port, nccl_port=other)
    assert answer.failed
    assert f"nccl_port: port {other} on 127.0.0.1 is held by PID {os.getpid()} (" in answer["msg"]
    own_program = Path("/proc/self/cmdline").read_bytes().decode().split("\0")[0]
    assert f"({own_program} " in answer["msg"]
    assert supervisor_target.echo(port)["pid"] == running["pid"]


def test_every_fault_is_listed_at_once_before_anything_is_touched(
    supervisor_target: Target, supervisor_root: Path, tmp_path: Path, ports: Iterator[int]
) -> None:
    flags = [{"names": ["--port"], "dest": "port", "nargs": None}]
    table = {"engine": "sglang", "version": "1", "flags": flags, "router": None}
    (tmp_path / "flags.json").write_text(json.dumps(table))
    answer = supervisor_target.pd_server(
        name="c", port=next(ports), python="/no/python", model_path="/no/model", flag_table=str(tmp_path / "flags.json")
    )
    assert answer.failed
    assert len(answer["faults"]) > 3
    for words in ("/no/python", "/no/model", "sglang 1 has no flag --host"):
        assert words in answer["msg"]
    assert list(supervisor_root.iterdir()) == []


def test_a_process_that_is_not_this_definitions_is_replaced(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    port = next(ports)
    first = supervisor_target.pd_server(name="c", port=port)
    conf = supervisor_root / "supervisor" / "conf.d" / "pdlab-c.conf"
    text = conf.read_text()
    conf.write_text(text.replace("STANDIN", "X").replace("PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED=2"))
    for command in ("reread", "update"):
        subprocess.run(
            [str(BIN / "supervisorctl"), "-c", str(supervisor_root / "supervisor" / "supervisord.conf"), command],
            check=True, capture_output=True,
        )  # fmt: skip
    conf.write_text(text)
    until(lambda: _serves(supervisor_target, port))
    second = supervisor_target.pd_server(name="c", port=port)
    assert second["changed"]
    assert second["reasons"][0].endswith("has another environment: PYTHONUNBUFFERED")
    assert second["pid"] != first["pid"]
    assert supervisor_target.echo(port)["environment"]["PYTHONUNBUFFERED"] == "1"


def _serves(target: Target, port: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(target.echo(port))
    return False


def test_stopped_keeps_the_definition_and_absent_removes_everything(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    started = supervisor_target.pd_server(name="c", port=next(ports), env={"STANDIN_CHILD": "1"})
    assert len(started["pids"]) == 2
    daemon = daemon_pid(supervisor_root)
    preview = supervisor_target.pd_server("--check", name="c", state="stopped")
    assert preview["changed"]
    assert all(alive(pid) for pid in started["pids"])
    stopped = supervisor_target.pd_server(name="c", state="stopped")
    assert (stopped["changed"], stopped["state"]) == (True, "stopped")
    assert not any(alive(pid) for pid in started["pids"])
    assert Path(stopped["definition_path"]).exists()
    assert not supervisor_target.pd_server(name="c", state="stopped")["changed"]
    gone = supervisor_target.pd_server(name="c", state="absent")
    assert (gone["changed"], gone["state"]) == (True, "absent")
    assert not Path(stopped["definition_path"]).exists()
    assert not alive(daemon), "the last service takes supervisord with it"
    assert not supervisor_target.pd_server(name="c", state="absent")["changed"]


def test_a_restart_is_made_when_it_is_asked_for(supervisor_target: Target, ports: Iterator[int]) -> None:
    port = next(ports)
    first = supervisor_target.pd_server(name="c", port=port)
    second = supervisor_target.pd_server(name="c", port=port, state="restarted")
    assert second["changed"]
    assert first["pid"] != second["pid"]


def test_a_server_that_outlives_its_killed_supervisord_is_taken_over(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    port = next(ports)
    first = supervisor_target.pd_server(name="c", port=port)
    os.kill(daemon_pid(supervisor_root), signal.SIGKILL)
    second = supervisor_target.pd_server(name="c", port=port)
    assert not second.failed, second.data
    assert second["changed"]
    assert not alive(first["pid"])
    assert supervisor_target.echo(port)["pid"] == second["pid"]


def test_absent_ends_what_a_killed_supervisord_left(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    first = supervisor_target.pd_server(name="c", port=next(ports))
    os.kill(daemon_pid(supervisor_root), signal.SIGKILL)
    assert supervisor_target.pd_server(name="c", state="absent")["changed"]
    assert not alive(first["pid"])


def test_a_supervisord_whose_root_was_removed_is_replaced(
    supervisor_target: Target, supervisor_root: Path, ports: Iterator[int]
) -> None:
    port = next(ports)
    first = supervisor_target.pd_server(name="c", port=port)
    lost = daemon_pid(supervisor_root)
    shutil.rmtree(supervisor_root / "supervisor")
    second = supervisor_target.pd_server(name="c", port=port)
    assert not second.failed, second.data
    assert not alive(first["pid"])
    assert not alive(lost)
    assert supervisor_target.echo(port)["pid"] == second["pid"]


def test_workers_that_a_killed_server_left_are_ended_before_the_next_start(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    port = next(ports)
    first = supervisor_target.pd_server(name="c", port=port, env={"STANDIN_CHILD": "1"})
    (worker,) = set(first["pids"]) - {first["pid"]}
    os.kill(first["pid"], signal.SIGKILL)
    assert alive(worker)
    supervisor_target.pd_server(name="c", port=port, env={"STANDIN_CHILD": "1"}, state="restarted")
    assert not alive(worker)


def test_a_running_supervisord_serves_on_when_its_environment_is_gone(
    supervisor_target: Target, ports: Iterator[int]
) -> None:
    port = next(ports)
    supervisor_target.pd_server(name="c", port=port)
    answer = supervisor_target.pd_server(name="c", port=port, supervisord="/no/supervisord", args={"x": "1"})
    assert not answer.failed, answer.data
    supervisor_target.pd_server(name="c", port=port, state="absent")
    missing = supervisor_target.pd_server(name="c", port=port, supervisord="/no/supervisord")
    assert missing.failed
    assert "/no/supervisord is missing" in missing["msg"]


def test_a_root_too_long_for_a_socket_path_works(supervisor_target: Target, ports: Iterator[int]) -> None:
    port = next(ports)
    deep = f"{supervisor_target.root}/{'a' * 60}/{'b' * 60} with blanks"
    os.makedirs(deep)
    supervisor_target.root = deep
    answer = supervisor_target.pd_server(name="c", port=port)
    assert not answer.failed, answer.data
    assert not supervisor_target.pd_server(name="c", port=port)["changed"]
    assert supervisor_target.pd_server(name="c", state="absent")["state"] == "absent"


def test_a_root_that_cannot_be_written_is_a_clear_error(supervisor_target: Target, ports: Iterator[int]) -> None:
    answer = supervisor_target.pd_server(name="c", port=next(ports), root="/proc/pdlab")
    assert answer.failed
    assert "writable" in answer["msg"]


def test_a_router_starts_with_its_workers(supervisor_target: Target, ports: Iterator[int]) -> None:
    port, metrics = next(ports), next(ports)
    workers = [{"role": "prefill", "url": "http://127.0.0.1:1", "bootstrap_port": 2},
               {"role": "decode", "url": "http://127.0.0.1:3"}]  # fmt: skip
    answer = supervisor_target.pd_server(
        name="router", role="router", port=port, prometheus_port=metrics, workers=workers
    )
    assert not answer.failed, answer.data
    assert answer["argv"][4:9] == ["--prefill", "http://127.0.0.1:1", "2", "--decode", "http://127.0.0.1:3"]


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_the_module_ends_when_its_controller_is_gone(supervisor_target: Target, ports: Iterator[int], how: str) -> None:
    arguments = supervisor_target.arguments(name="c", port=next(ports), env={"STANDIN_READY_AFTER_S": "600"})
    ansible = subprocess.Popen(
        supervisor_target.command("pdlab.pdlab.pd_server", arguments),
        cwd=CHECKOUT, env=ansible_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: bool(modules_of(ansible.pid)) and _serves(supervisor_target, arguments["port"]))
        module, worker = modules_of(ansible.pid), children_of(ansible.pid)
        if how == "interrupted":
            os.kill(ansible.pid, signal.SIGINT)
        else:
            for pid in [*worker, ansible.pid]:
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(alive(pid) for pid in module), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ansible.pid, signal.SIGKILL)
        ansible.wait()
    assert supervisor_target.echo(arguments["port"])["pid"], "the service itself is left as it is"
    again = supervisor_target.pd_server(name="c", port=arguments["port"])
    assert again["changed"], "and the next run converges"


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found


def modules_of(pid: int) -> list[int]:
    """Return the processes two levels below ansible: what its workers run."""
    below = [pid]
    for _ in range(4):
        below += [child for parent in below for child in children_of(parent) if child not in below]
    return [child for child in below[1:] if child not in children_of(pid)]


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [("echo done", "stopped", 0), ("echo done; exit 3", "failed", 3), ("echo done; kill -9 $$", "failed", -9)],
)
def test_a_job_runs_once_each_time_and_its_exit_code_can_be_read(
    supervisor_target: Target, script: str, state: str, code: int
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, str(HERE / "job_script.py"), supervisor_target.root, str(BIN / "supervisord"), "supervisor", script],
        capture_output=True, text=True, check=True, env=environment, timeout=60,
    )  # fmt: skip
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["seen"] == [[state, code]] * 2
    assert said["log"] == "done\n" * 2
    assert (said["listed"], said["after"]) == (["pdlab-job-x"], "absent")


def test_no_process_of_these_tests_is_left() -> None:
    assert not [argv for _, argv in every_process() if str(HERE / "standin") in " ".join(argv)]


NVIDIA_SMI = """#!/bin/sh
# A box of two GPUs on which every server of this port computes on GPU {gpu}.
case "$*" in
*query-gpu*) printf '0, GPU-a\\n1, GPU-b\\n' ;;
*query-compute-apps*) for pid in $(pgrep -f -- '--port {port}'); do echo "{uuid}, $pid, 42000"; done ;;
esac
"""


@pytest.mark.parametrize(("gpu", "right"), [(1, True), (0, False)])
def test_a_server_that_computes_on_another_gpu_than_its_own_is_refused(
    supervisor_target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ports: Iterator[int],
    gpu: int,
    right: bool,
) -> None:
    port = next(ports)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(NVIDIA_SMI.format(gpu=gpu, uuid="GPU-b" if gpu else "GPU-a", port=port))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = supervisor_target.pd_server(name="c", port=port, device="cuda", gpus=[1])
    assert answer.failed is not right, answer.data
    assert answer["live_gpus"]["ok"] is right
    if not right:
        assert "c runs, but on other GPUs: wanted GPU 1, its processes have 42000 MiB on GPU 0" in answer["msg"]
