# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a live process is the one that a service definition asks for."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import ServiceDefinition

# Titles that SGLang's processes give themselves (setproctitle): "sglang::router" and the like.
TITLE_PREFIX = "sglang::"


def program_argv(argv: Sequence[str]) -> list[str]:
    """Return argv without a leading numactl and its options: what stands in the table once numactl has started it."""
    if os.path.basename(argv[0]) != "numactl":
        return list(argv)
    rest = list(argv[1:])
    while rest and rest[0].startswith("-"):
        rest.pop(0)
    return rest


def difference(pid: int, definition: ServiceDefinition) -> str | None:
    """Return how the process differs from the definition, or None when it is the one.

    A process that has set its own title shows neither argv nor environment; its executable is compared then.
    """
    live = _command_line(pid)
    wanted = list(definition.argv)
    program = program_argv(wanted)
    if not live:
        return f"PID {pid} is gone or shows no command line"
    if live[0].startswith(TITLE_PREFIX):
        return _executable_difference(pid, program[0])
    # Until numactl, or the shell and env of a start, have become the program, its argv is the end of theirs.
    if live != program and live[-len(wanted) :] != wanted:
        return f"PID {pid} runs another command: {processes.describe(pid)}"
    if live != program:
        return None
    environment = processes.environment(pid)
    if environment is None:
        return None
    other = sorted(key for key, value in definition.environment.items() if environment.get(key) != value)
    return f"PID {pid} has another environment: {', '.join(other)}" if other else None


def _command_line(pid: int) -> list[str]:
    """Return argv; in the middle of an exec it reads as empty for a moment."""
    for _ in range(10):
        argv = processes.command_line(pid)
        if argv or not processes.is_alive(pid):
            return argv
        time.sleep(0.02)
    return []


def _executable_difference(pid: int, program: str) -> str | None:
    try:
        seen = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None
    # A replaced interpreter reads as "… (deleted)".
    if seen == os.path.realpath(program):
        return None
    return f"PID {pid} runs {seen}, not {program}"
