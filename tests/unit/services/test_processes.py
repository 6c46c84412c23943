# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child of its own, in its own session."""
    script = (
        "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "an argument", ""],
        stdout=subprocess.PIPE,
        env={"PATH": "/bin", "ODD": "a=b c"},
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_living_process_is_told_from_another_life_of_its_pid(child: subprocess.Popen[bytes]) -> None:
    process = processes.read_process(child.pid)
    assert process is not None
    assert processes.is_alive(child.pid, process.start_ticks)
    assert not processes.is_alive(child.pid, process.start_ticks + 1)


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert processes.read_process(process.pid) is not None
    assert not processes.is_alive(process.pid)
    process.wait()


def test_a_process_says_when_it_started(child: subprocess.Popen[bytes]) -> None:
    started = processes.started_at(child.pid)
    assert started is not None
    assert 0 <= time.time() - started < 60


def test_argv_and_environment_are_read_exactly(child: subprocess.Popen[bytes]) -> None:
    assert processes.command_line(child.pid)[-2:] == ["an argument", ""]
    assert processes.environment(child.pid) == {"PATH": "/bin", "ODD": "a=b c"}


def test_nothing_is_said_of_a_process_that_is_gone() -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert processes.command_line(gone.pid) == []
    assert processes.environment(gone.pid) is None
    assert processes.process_tree(gone.pid) == []
    assert processes.started_at(gone.pid) is None


def test_a_tree_is_the_process_and_its_descendants(child: subprocess.Popen[bytes]) -> None:
    tree = processes.process_tree(child.pid)
    assert tree[0] == child.pid
    assert len(tree) == 2


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_owner_of_a_listening_port_is_named(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        (listener,) = processes.listeners([port])
        assert (listener.port, listener.address, listener.pid) == (port, address, os.getpid())
        assert f"PID {os.getpid()}" in listener.describe()
        assert port in processes.listening_ports([os.getpid()])


def test_a_port_that_nobody_listens_on_has_no_owner() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert processes.listeners([bound.getsockname()[1]]) == []


def test_an_owner_that_may_not_be_seen_is_called_another_users() -> None:
    assert "another user" in processes.Listener(80, "0.0.0.0", None, "").describe()


@pytest.mark.parametrize(
    ("wanted", "held", "collide"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "10.0.0.1", False),
        ("0.0.0.0", "10.0.0.1", True),
        ("127.0.0.1", "::", True),
        ("a-name", "10.0.0.1", True),
    ],
)
def test_addresses_collide_when_equal_or_unspecified(wanted: str, held: str, collide: bool) -> None:
    assert processes.overlaps(wanted, held) is collide


def test_the_controller_is_gone_when_the_reader_of_the_pipe_is() -> None:
    reader, writer = os.pipe()
    assert not processes.controller_gone(writer)
    os.close(reader)
    assert processes.controller_gone(writer)
    os.close(writer)


def test_the_controller_is_gone_when_the_other_end_of_the_socket_is() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert not processes.controller_gone(ours.fileno())
        theirs.close()
        assert processes.controller_gone(ours.fileno())


def test_the_controller_is_gone_when_the_terminal_is() -> None:
    master, terminal = os.openpty()
    assert not processes.controller_gone(terminal)
    os.close(master)
    assert processes.controller_gone(terminal)
    os.close(terminal)


def test_a_file_as_output_has_no_controller_to_lose(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        assert not processes.controller_gone(stream.fileno())


def test_a_watched_child_returns_its_code_and_both_outputs() -> None:
    outcome = processes.run_watched(["/bin/sh", "-c", "echo out; echo err >&2; cat; exit 7"], 10, stdin="given\n")
    assert (outcome.rc, outcome.stdout, outcome.stderr) == (7, "out\ngiven\n", "err\n")
    assert not outcome.timed_out


def test_a_talkative_child_does_not_block_and_its_tail_is_kept() -> None:
    script = "print('x' * 1000000); print('last')"
    outcome = processes.run_watched([sys.executable, "-c", script], 20)
    assert outcome.stdout.endswith("last\n")
    assert len(outcome.stdout) == processes.TAIL_BYTES


def test_a_child_with_a_log_appends_to_it_and_returns_only_its_own_part(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    outcome = processes.run_watched(["/bin/sh", "-c", "echo out; echo err >&2"], 10, log_path=str(log))
    assert log.read_text() == "before\nout\nerr\n"
    assert outcome.stdout == "out\nerr\n"


def test_environment_and_folder_are_what_was_given_and_nothing_else(tmp_path: Path) -> None:
    outcome = processes.run_watched(["/usr/bin/env"], 10, env={"ONLY": "this"}, cwd=str(tmp_path))
    assert outcome.stdout == "ONLY=this\n"


def test_a_child_over_its_time_ends_with_everything_it_started() -> None:
    script = "sleep 60 & echo $!; trap '' TERM; sleep 60"
    began = time.monotonic()
    outcome = processes.run_watched(["/bin/sh", "-c", script], 0.3)
    assert outcome.timed_out
    assert outcome.rc < 0
    assert not processes.is_alive(int(outcome.stdout))
    assert time.monotonic() - began < 12


def test_a_program_that_is_not_there_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        processes.run_watched(["/no/such/program"], 1)


WAITING_MODULE = """
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
import sys
processes.HEARTBEAT_S = 0.2
try:
    processes.run_watched(["/bin/sh", "-c", "echo $$ >" + sys.argv[1] + "; sleep 60"], 60)
except processes.ControllerGone:
    open(sys.argv[1] + ".gone", "w").close()
"""


def test_a_child_ends_when_the_controller_is_gone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    module = subprocess.Popen(
        [sys.executable, "-c", WAITING_MODULE, str(pid_file)], stdout=subprocess.PIPE, env=environment
    )
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert module.stdout is not None
    module.stdout.close()
    module.wait(15)
    assert (tmp_path / "pid.gone").exists()
    assert not processes.is_alive(int(pid_file.read_text()))
