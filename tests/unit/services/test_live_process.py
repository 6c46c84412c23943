# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ansible_collections.pdlab.pdlab.plugins.module_utils.live_process import difference, program_argv
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import ServiceDefinition

SLEEP = (sys.executable, "-c", "import time; time.sleep(30)")
DEFINITION = ServiceDefinition(
    name="pdlab-x", description="", argv=SLEEP, environment={"A": "1"}, working_directory="/", log_path="/tmp/x.log"
)


@contextmanager
def running(argv: tuple[str, ...], env: dict[str, str], executable: str | None = None) -> Iterator[int]:
    process = subprocess.Popen(argv, env=env, executable=executable)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_the_process_of_a_definition_is_known_again() -> None:
    with running(SLEEP, {"A": "1", "EXTRA": "from the manager"}) as pid:
        assert difference(pid, DEFINITION) is None


def test_numactl_in_front_does_not_make_another_process() -> None:
    definition = replace(DEFINITION, argv=("numactl", "--cpunodebind=0", "--membind=0", *SLEEP))
    with running(SLEEP, {"A": "1"}) as pid:
        assert difference(pid, definition) is None
    assert program_argv(definition.argv) == list(SLEEP)


def test_another_command_is_told() -> None:
    with running((sys.executable, "-c", "import time; time.sleep(31)"), {"A": "1"}) as pid:
        assert "another command" in (difference(pid, DEFINITION) or "")


def test_another_environment_is_told_by_name() -> None:
    with running(SLEEP, {"A": "2"}) as pid:
        assert difference(pid, DEFINITION) == f"PID {pid} has another environment: A"


def test_the_way_to_the_program_is_not_another_command() -> None:
    wrapped = ("/bin/sh", "-c", 'sleep 30; exec "$@"', "x", *SLEEP)
    with running(wrapped, {}) as pid:
        time.sleep(0.2)
        assert difference(pid, DEFINITION) is None


def test_a_process_with_a_title_of_its_own_is_known_by_its_executable() -> None:
    real = os.path.realpath(sys.executable)
    with running(("sglang::router", *SLEEP[1:]), {}, executable=real) as pid:
        assert difference(pid, DEFINITION) is None
        assert "not /bin/sh" in (difference(pid, replace(DEFINITION, argv=("/bin/sh", "-c", "x"))) or "")


def test_a_process_that_is_gone_is_told() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert "gone" in (difference(process.pid, DEFINITION) or "")
