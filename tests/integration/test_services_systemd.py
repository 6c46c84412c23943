# SPDX-License-Identifier: Apache-2.0
"""The module pd_server on a host with a real systemd, run by a real Ansible over ssh."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from .conftest import CHECKOUT, ON_HOST, Host, Target, ansible_environment
from .torture import ONE_LINE_VALUES

MODULES = "ps -eo pid=,args= | grep '[p]ython3$' || true"


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.2)


def serves(target: Target, port: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(target.echo(port))
    return False


@pytest.fixture
def port(ports: Iterator[int]) -> int:
    return next(ports)


@pytest.fixture
def target(systemd_target: Target) -> Target:
    """The host, with servers that the tests on this side can reach."""
    systemd_target.options["address"] = "0.0.0.0"
    return systemd_target


def test_check_mode_before_the_first_deployment_touches_nothing_and_shows_the_unit(
    target: Target, host: Host, port: int
) -> None:
    answer = target.pd_server("--check", "--diff", name="c", port=port, python="/not/there", model_path="/not/there")
    assert not answer.failed, answer.data
    assert answer["changed"]
    assert "+[Service]" in answer["output"]
    assert host.run("ls -d /srv/pdlab /etc/systemd/system/pdlab-* 2>/dev/null || true") == ""


def test_a_server_starts_is_enabled_and_a_second_run_changes_nothing(target: Target, host: Host, port: int) -> None:
    first = target.pd_server(name="c", port=port)
    assert not first.failed, first.data
    assert (first["changed"], first["state"], first["manager"]) == (True, "running", "systemd")
    assert host.run("systemctl is-enabled pdlab-c") == "enabled\n"
    second = target.pd_server(name="c", port=port)
    assert (second["changed"], second["pid"]) == (False, first["pid"])


def test_the_unit_has_the_limits_and_the_ways_of_ending_that_an_engine_needs(
    target: Target, host: Host, port: int
) -> None:
    target.pd_server(name="c", port=port, stop_timeout_s=77)
    shown = host.run(
        "systemctl show pdlab-c -p LimitMEMLOCK,LimitNOFILE,LimitSTACK,KillMode,Restart,RestartUSec,TimeoutStopUSec,Type"
    )
    assert set(shown.split()) == {
        "LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "LimitSTACK=67108864", "KillMode=mixed", "Restart=always",
        "RestartUSec=3s", "TimeoutStopUSec=1min", "17s", "Type=exec",
    }  # fmt: skip


def test_quoting_torture_every_value_reaches_the_live_process_unchanged(target: Target, port: int) -> None:
    values = [*ONE_LINE_VALUES, "two\nlines", "\n", "a\n\tb\n"]
    env = {f"T{number}": value for number, value in enumerate(values)}
    answer = target.pd_server(name="c", port=port, args={"torture": values}, env=env)
    assert not answer.failed, answer.data
    echo = target.echo(port)
    start = echo["argv"].index("--torture") + 1
    assert echo["argv"][start:] == values
    assert {key: echo["environment"][key] for key in env} == env
    assert answer["environment"].items() <= echo["environment"].items()
    assert not target.pd_server(name="c", port=port, args={"torture": values}, env=env)["changed"]


def test_a_changed_argument_restarts_and_shows_the_difference(target: Target, port: int) -> None:
    first = target.pd_server(name="c", port=port, args={"x": "1"})
    preview = target.pd_server("--check", "--diff", name="c", port=port, args={"x": "2"})
    assert preview["changed"]
    assert '-ExecStart=:"/usr/bin/python3"' in preview["output"]
    second = target.pd_server(name="c", port=port, args={"x": "2"})
    assert second["reasons"] == ["its service definition differs"]
    assert second["pid"] != first["pid"]
    assert target.echo(port)["argv"][-2:] == ["--x", "2"]


def test_a_definition_that_was_written_and_never_started_is_started(target: Target, host: Host, port: int) -> None:
    first = target.pd_server(name="c", port=port)
    host.run("rm /srv/pdlab/state/services/pdlab-c.json")
    second = target.pd_server(name="c", port=port)
    assert second["reasons"] == ["it was not started since its service definition was written"]
    assert second["pid"] != first["pid"]


def test_a_killed_server_is_started_again_by_systemd(target: Target, host: Host, port: int) -> None:
    pid = target.pd_server(name="c", port=port)["pid"]
    host.run(f"kill -9 {pid}")
    answer = target.pd_server(name="c", port=port)
    assert not answer.failed, answer.data
    assert (answer["changed"], answer["pid"] != pid) == (False, True)


def test_a_crash_at_start_gives_the_engines_own_words_within_seconds(target: Target, host: Host, port: int) -> None:
    crash = "Traceback (most recent call last):\n  File 'x.py', line 1\nValueError: no such layer"
    began = time.monotonic()
    answer = target.pd_server(name="c", port=port, env={"STANDIN_CRASH": crash}, timeout_s=100)
    assert answer.failed
    assert time.monotonic() - began < 20
    assert "exit code 3" in answer["msg"]
    assert answer["error_lines"] == ["ValueError: no such layer"]
    assert host.run("systemctl is-active pdlab-c || true") == "inactive\n"


def test_a_program_that_cannot_be_run_is_told(target: Target, host: Host, port: int) -> None:
    host.run("printf '#!/no/interpreter\\n' >/opt/bad && chmod +x /opt/bad")
    answer = target.pd_server(name="c", port=port, python="/opt/bad")
    assert answer.failed
    assert "systemd could not start pdlab-c: exit code 203: the program cannot be executed" in answer["msg"]
    assert host.run("systemctl is-active pdlab-c || true") == "inactive\n"


def test_a_port_in_use_names_its_owner_and_nothing_is_touched(target: Target, host: Host, port: int) -> None:
    host.run(f"systemd-run -q --unit=squatter python3 -m http.server {port}")
    try:
        until(lambda: host.run(f"ss -ltn | grep -c :{port} || true") == "1\n")
        answer = target.pd_server(name="c", port=port)
        assert answer.failed
        assert f"port: port {port} on 0.0.0.0 is held by PID " in answer["msg"]
        assert f"python3 -m http.server {port}" in answer["msg"]
        assert host.run("ls /etc/systemd/system/pdlab-* 2>/dev/null || true") == ""
    finally:
        host.run("systemctl stop squatter")


def test_a_server_is_bound_to_its_numa_node_and_that_is_checked_on_its_processes(target: Target, port: int) -> None:
    answer = target.pd_server(name="c", port=port, numa_node=0, env={"STANDIN_CHILD": "1"})
    assert not answer.failed, answer.data
    assert answer["argv"][:3] == ["numactl", "--cpunodebind=0", "--membind=0"]
    assert answer["binding"] == {
        "wanted": "node 0: CPUs 0, memory bind:0", "ok": True, "seen": ["2 processes on CPUs 0, memory bind:0"],
    }  # fmt: skip
    assert not target.pd_server(name="c", port=port, numa_node=0, env={"STANDIN_CHILD": "1"})["changed"]


def test_a_binding_that_was_lost_is_not_hidden(target: Target, host: Host, port: int) -> None:
    pid = target.pd_server(name="c", port=port, numa_node=0)["pid"]
    if os.cpu_count() == 1:
        pytest.skip("one CPU: there is no other to move to")
    host.run(f"taskset -pc 1 {pid}")
    answer = target.pd_server(name="c", port=port, numa_node=0)
    assert answer.failed
    assert "may run on CPUs 1" in answer["msg"]


def test_a_node_that_cannot_be_bound_is_refused_before_anything_is_stopped(target: Target, port: int) -> None:
    running = target.pd_server(name="c", port=port)
    answer = target.pd_server(name="c", port=port, numa_node=1)
    assert answer.failed
    assert "numactl refuses node 1: libnuma: Warning: node argument 1 is out of range" in answer["msg"]
    assert target.echo(port)["pid"] == running["pid"]


def test_stopped_keeps_the_unit_and_absent_removes_everything(target: Target, host: Host, port: int) -> None:
    started = target.pd_server(name="c", port=port, env={"STANDIN_CHILD": "1"})
    assert len(started["pids"]) == 2
    stopped = target.pd_server(name="c", state="stopped")
    assert (stopped["changed"], stopped["state"]) == (True, "stopped")
    assert host.run("pgrep -f [m]odel-path || true") == ""
    assert not target.pd_server(name="c", state="stopped")["changed"]
    gone = target.pd_server(name="c", state="absent")
    assert (gone["changed"], gone["state"]) == (True, "absent")
    assert host.run("ls /etc/systemd/system/*/pdlab-c* /etc/systemd/system/pdlab-c* 2>/dev/null || true") == ""
    assert not target.pd_server(name="c", state="absent")["changed"]


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_the_module_ends_when_its_controller_is_gone(target: Target, host: Host, port: int, how: str) -> None:
    arguments = target.arguments(name="c", port=port, env={"STANDIN_READY_AFTER_S": "600"})
    ansible = subprocess.Popen(
        target.command("pdlab.pdlab.pd_server", arguments),
        cwd=CHECKOUT, env=ansible_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: serves(target, port))
        assert host.run(MODULES) != ""
        workers = _children(ansible.pid)
        assert workers
        if how == "interrupted":
            os.kill(ansible.pid, signal.SIGINT)
        else:
            # The ssh client of a killed worker lives on and keeps the connection open.
            for pid in [*workers, ansible.pid]:
                os.kill(pid, signal.SIGKILL)
        until(lambda: host.run(MODULES) == "", 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ansible.pid, signal.SIGKILL)
        ansible.wait()
    assert target.echo(port)["pid"], "the service itself is left as it is"


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as stream:
        return [int(child) for child in stream.read().split()]


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [("echo done", "stopped", 0), ("echo done; exit 3", "failed", 3), ("echo done; kill -9 $$", "failed", -9)],
)
def test_a_job_runs_once_each_time_and_its_exit_code_can_be_read(
    target: Target, host: Host, script: str, state: str, code: int
) -> None:
    host.run(
        "mkdir -p /srv/pdlab && cat >/opt/job_script.py",
        stdin=(CHECKOUT / "tests/integration/job_script.py").read_text(),
    )
    said = json.loads(
        host.run(f"PYTHONPATH={ON_HOST}/python python3 /opt/job_script.py /srv/pdlab /none systemd '{script}'")
    )
    assert said["seen"] == [[state, code]] * 2
    assert said["log"] == "done\n" * 2
    assert (said["listed"], said["after"]) == (["pdlab-job-x"], "absent")


def test_a_reboot_brings_the_server_back_and_the_next_run_changes_nothing(
    target: Target, host: Host, port: int
) -> None:
    before = target.pd_server(name="c", port=port)
    host.run("systemctl reboot", check=False)
    time.sleep(2)
    until(lambda: host.run("cat /proc/1/comm", check=False) == "systemd\n" and serves(target, port), 60)
    answer = target.pd_server(name="c", port=port)
    assert not answer.failed, answer.data
    assert (answer["changed"], answer["state"]) == (False, "running")
    assert before["log"] == answer["log"]


def test_the_target_stops_and_starts_all_and_goes_with_the_last_service(
    target: Target, host: Host, ports: Iterator[int]
) -> None:
    servers = {"a": next(ports), "b": next(ports)}
    for name, port in servers.items():
        assert not target.pd_server(name=name, port=port).failed
    both = "systemctl is-active pdlab-a pdlab-b pdlab.target || true"
    assert host.run("systemctl is-enabled pdlab.target pdlab_logs.timer") == "enabled\nenabled\n"
    host.run("systemctl stop pdlab.target")
    assert host.run(both).split() == ["inactive"] * 3, "it returns when all have stopped"
    host.run("systemctl start pdlab.target")
    assert host.run(both).split() == ["active"] * 3
    host.run("systemctl stop pdlab-a")
    assert host.run(both).split() == ["inactive", "active", "active"], "one alone does not take the other with it"

    preview = target.pd_server("--check", "--diff", name="b", state="absent")
    assert "-[Service]" in preview["output"]
    assert "system/pdlab.target" not in preview["output"], "a is still there"
    target.pd_server(name="b", state="absent")
    assert host.run("systemctl is-enabled pdlab.target") == "enabled\n"
    preview = target.pd_server("--check", "--diff", name="a", state="absent")
    assert "--- before: /etc/systemd/system/pdlab.target" in preview["output"]
    target.pd_server(name="a", state="absent")
    traces = "find /etc/systemd /run -name '*pdlab[-._]*'; systemctl list-units --all --no-legend 'pdlab*'"
    assert host.run(traces) == ""


def test_a_target_that_was_removed_or_stopped_is_put_right_and_no_server_is_touched(
    target: Target, host: Host, port: int
) -> None:
    first = target.pd_server(name="c", port=port)
    host.run("rm /etc/systemd/system/pdlab.target; systemctl daemon-reload")
    assert target.pd_server("--check", name="c", port=port)["changed"]
    second = target.pd_server(name="c", port=port)
    assert (second["changed"], second["pid"]) == (True, first["pid"])
    assert second["reasons"] == ["/etc/systemd/system/pdlab.target is missing or differs"]
    assert not target.pd_server(name="c", port=port)["changed"]


def test_a_log_that_is_too_large_is_rotated_while_its_server_writes(target: Target, host: Host, port: int) -> None:
    pid = target.pd_server(name="c", port=port)["pid"]
    host.run("truncate --size=65M /srv/pdlab/logs/c.log && systemctl start pdlab_logs.service")
    sizes = "stat --format=%s /srv/pdlab/logs/c.log.1 /srv/pdlab/logs/c.log"
    old, new = map(int, host.run(sizes).split())
    assert old == 65 * 2**20
    assert new < 2**20
    target.echo(port)
    until(lambda: int(host.run(sizes).split()[1]) < 2**20)
    assert target.pd_server(name="c", port=port)["pid"] == pid


def test_a_server_with_an_account_writes_nowhere_but_at_home_and_answers(target: Target, host: Host, port: int) -> None:
    made = target.run("pdlab.pdlab.service_account", {"name": "pdlabtest", "root": target.root})
    assert (made.failed, made["changed"], made["uid"] < 1000) == (False, True, True)
    assert not target.run("pdlab.pdlab.service_account", {"name": "pdlabtest", "root": target.root})["changed"]
    home = made["home"]
    host.run(f"touch {ON_HOST}/standin/config.json")
    answer = target.pd_server(name="c", port=port, user="pdlabtest", home=home)
    assert not answer.failed, answer.data
    assert host.run(f"stat --format=%U /proc/{answer['pid']}") == "pdlabtest\n"
    inside = f"nsenter --target {answer['pid']} --mount setpriv --reuid pdlabtest --regid pdlabtest --clear-groups"
    for folder, allowed in {
        home: True,
        "/tmp": True,
        "/dev/shm": True,
        "/srv/pdlab": False,
        "/var/tmp/..": False,
    }.items():
        wrote = host.run(f"{inside} touch {folder}/probe 2>/dev/null && echo yes || echo no")
        assert wrote == ("yes\n" if allowed else "no\n"), folder
    assert host.run("ls /tmp/probe 2>/dev/null || true") == "", "/tmp is the service's own"
    assert not target.pd_server(name="c", port=port, user="pdlabtest", home=home)["changed"]
    target.pd_server(name="c", state="absent")
    gone = target.run("pdlab.pdlab.service_account", {"name": "pdlabtest", "root": target.root, "state": "absent"})
    assert gone["changed"]
    assert host.run("getent passwd pdlabtest || true") == ""


def test_a_model_that_the_account_cannot_read_is_named_before_anything_is_stopped(
    target: Target, host: Host, port: int
) -> None:
    running = target.pd_server(name="c", port=port)
    host.run("mkdir -m 700 -p /srv/closed && touch /srv/closed/config.json")
    answer = target.pd_server(name="c", port=port, user="nobody", home="/tmp", model_path="/srv/closed")
    assert answer.failed
    assert "model_path: nobody cannot read /srv/closed/config.json" in answer["msg"]
    assert target.echo(port)["pid"] == running["pid"]
