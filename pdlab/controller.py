# SPDX-License-Identifier: Apache-2.0
"""The process on the controller that writes a run: what run.json keeps of it, and whether it still lives."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import read_process, started_at

from pdlab.loose import as_mapping
from pdlab.moments import epoch

# A controller's clock may be set back a little between the start of its process and of its run.
_CLOCK_SLACK_S = 5.0


def controller_facts() -> dict[str, Any]:
    """What run.json keeps about the controller: its host, process and versions."""
    try:
        ansible_core = version("ansible-core")
    except PackageNotFoundError:
        ansible_core = "unknown"
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "ansible_core": ansible_core,
    }


def controller_alive(run: Mapping[str, Any]) -> bool | None:
    """Whether the process that writes this run still lives; None when this host cannot know.

    A PID is taken for another process's when that one started after the run did (PIDs are soon reused in containers).
    """
    controller = as_mapping(run.get("controller"))
    pid = controller.get("pid")
    if controller.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    process = read_process(pid)
    if process is not None and process.state in "ZX":
        return False
    began = started_at(pid)
    started = epoch(run.get("started"))
    return not (began is not None and started is not None and began > started + _CLOCK_SLACK_S)
