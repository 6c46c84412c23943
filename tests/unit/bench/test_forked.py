# SPDX-License-Identifier: Apache-2.0
"""A forked child ends as a program would, and starts like one. In a process of its own, which has one thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import forked, processes

COLLECTIONS = Path(__file__).parents[3] / ".collections"
HEAD = f"""
import os, signal, sys, time, subprocess
from {forked.__name__} import Forked

def leave(what):
    sys.exit(what)

def fail():
    raise LookupError("of the child")
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    command = [sys.executable, "-c", HEAD + script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, input="of the parent")


@pytest.mark.parametrize(
    ("work", "code"),
    [
        ("lambda: 0", 0),
        ("lambda: 7", 7),
        ("lambda: leave(None)", 0),
        ("lambda: leave(5)", 5),
        ("lambda: leave('words')", 1),
        ("fail", 1),
        (f"lambda: -{int(signal.SIGKILL)}", -signal.SIGKILL),
        ("lambda: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(9)", -signal.SIGTERM),
    ],
)
def test_how_a_child_ends_is_known_as_of_a_program(work: str, code: int) -> None:
    done = run(f"child = Forked({work})\nprint(child.wait(), child.poll())")
    assert done.stdout == f"{code} {code}\n", done.stderr
    assert ("LookupError: of the child" in done.stderr) == (work == "fail")
    assert ("words" in done.stderr) == ("words" in work)


def test_what_the_parent_has_said_is_not_said_again_by_the_child() -> None:
    done = run("print('once', end='')\nForked(lambda: print(' child', end='') or 0).wait()\nprint(' parent', end='')")
    assert done.stdout == "once child parent"


def test_a_child_starts_like_a_program() -> None:
    done = run(
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "def tell():\n"
        "    print([signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, sys.stdin.read(), os.getpgid(0) == os.getpid(),"
        " subprocess.run('echo $ONE$HOME', shell=True, capture_output=True, text=True).stdout])\n"
        "    return 0\n"
        "Forked(tell, {'ONE': '1', 'PATH': os.environ['PATH']}, session=True).wait()"
    )
    assert done.stdout == "[True, '', True, '1\\n']\n", done.stderr


def test_waiting_gives_up_in_time_and_a_child_ends_with_its_parent() -> None:
    done = run(
        "child = Forked(lambda: time.sleep(600) or 0)\n"
        "try:\n"
        "    child.wait(timeout=0.1)\n"
        "except subprocess.TimeoutExpired:\n"
        "    print(child.pid, child.poll())"
    )
    pid, running = done.stdout.split()
    assert running == "None"
    # Its output was the test's pipe, which run() has read to its end: it is about to be gone.
    deadline = time.monotonic() + 5
    while processes.is_alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not processes.is_alive(int(pid))
