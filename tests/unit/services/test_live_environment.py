# SPDX-License-Identifier: Apache-2.0
"""The environment of live processes, held against the one that was asked for."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.live_environment import check, sentences

WANTED = {"PATH": "/usr/bin:/bin", "SPT_NOENV": "1", "NCCL_DEBUG": "WARN", "EMPTY": "", "JSON": '{"num_threads": "2"}'}
SLEEP = "import time; print('up', flush=True); time.sleep(60)"
# A parent that makes its own changes before it starts a rank, as an engine does.
ENGINE = f"""
import os, subprocess, sys
os.environ.update({{changes}})
[os.environ.pop(name, None) for name in {{gone}}]
rank = subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
rank.wait()
"""
# What setproctitle does without SPT_NOENV: the memory of the environment is overwritten.
WIPED = """
import ctypes, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
print("up", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def running(code: str, env: dict[str, str], title: str | None = None) -> Iterator[list[int]]:
    """The PIDs of a process tree, once its last process says that it is up."""
    argv = [title or sys.executable, "-c", code]
    process = subprocess.Popen(
        argv, executable=sys.executable, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield processes.process_tree(process.pid)
    finally:
        processes.end_group(process.pid, 0.0)
        process.wait()


def engine(changes: dict[str, str] | None = None, gone: list[str] | None = None) -> str:
    return ENGINE.format(changes=changes or {}, gone=gone or [])


def test_a_server_whose_processes_all_have_what_was_asked_for_is_fine() -> None:
    with running(engine({"ADDED": "by the engine"}), {**WANTED, "MORE": "from the manager"}) as pids:
        found = check(pids, WANTED)
    assert found == {"ok": True, "checked": 2, "differences": [], "unknown": []}
    assert sentences(found) == []


def test_a_variable_that_the_engine_overwrites_is_named_with_what_was_wanted_and_what_is_seen() -> None:
    with running(engine({"NCCL_DEBUG": "INFO"}), WANTED) as pids:
        found = check(pids, WANTED)
        rank = pids[-1]
    assert not found["ok"]
    (line,) = sentences(found)
    assert line.startswith(f"NCCL_DEBUG: wanted WARN, seen INFO in PID {rank} (")


def test_a_variable_that_is_missing_is_named() -> None:
    with running(engine(gone=["JSON", "EMPTY"]), WANTED) as pids:
        found = check(pids, WANTED)
    assert [(item["name"], item["seen"]) for item in found["differences"]] == [("EMPTY", None), ("JSON", None)]
    assert "seen nothing" in sentences(found)[0]


def test_the_search_path_may_be_the_librarys_own() -> None:
    with running(engine({"PATH": "/opt/tool/bin:/usr/bin:/bin"}), WANTED) as pids:
        assert check(pids, WANTED)["ok"]


def test_a_tool_that_a_rank_calls_may_have_any_environment() -> None:
    code = "import subprocess; tool = subprocess.Popen(['/bin/sh', '-c', 'echo up; sleep 60'], env={}); tool.wait()"
    with running(code, WANTED) as pids:
        time.sleep(0.05)
        found = check(pids, WANTED)
    assert found["ok"] and found["checked"] == 1


def test_a_process_that_has_wiped_its_environment_is_unknown_and_never_fine() -> None:
    with running(WIPED, WANTED, title="sglang::scheduler") as pids:
        found = check(pids, WANTED)
    assert found["checked"] == 0 and not found["ok"] and not found["differences"]
    assert sentences(found)[0].endswith("its environment cannot be read")


def test_no_process_is_not_fine() -> None:
    assert sentences(check([], WANTED)) == ["no process is left to look at"]


@pytest.mark.parametrize("name", ["HF_TOKEN", "SGLANG_API_KEY", "MY_PASSWORD"])
def test_the_value_of_a_secret_is_not_shown(name: str) -> None:
    wanted = {"SPT_NOENV": "1", name: "hunter2"}
    with running(SLEEP, {"SPT_NOENV": "1", name: "swordfish"}) as pids:
        (line,) = sentences(check(pids, wanted))
    assert name in line and "hunter2" not in line and "swordfish" not in line
