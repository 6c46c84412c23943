# SPDX-License-Identifier: GPL-3.0-or-later
"""Scripts that travel with a module and run in another Python, the engine's.

Ansible carries the module_utils that a module imports, inside a zip. A script kept there as a stand-alone
module_util therefore reaches the target without a copy task of its own.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched

# Without them an interpreter may not find the engine's packages and libraries.
OF_THE_INTERPRETER = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def command(python: str, script: ModuleType, *arguments: str) -> list[str]:
    """The argv that runs `script` (an imported stand-alone module_util) under another interpreter."""
    return [python, "-c", inspect.getsource(script), *arguments]


def write_tree(directory: str, modules: Sequence[ModuleType]) -> None:
    """Write module_utils below `directory` so that Python finds them under their own names (PYTHONPATH=directory).

    For scripts that are made of several: they import one another as they do here. Raises OSError.
    """
    for module in modules:
        path = os.path.join(directory, *module.__name__.split(".")) + ".py"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(inspect.getsource(module))


def run_for_document(
    python: str, script: ModuleType, arguments: Sequence[str], timeout_s: float, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run a script that prints one JSON object with `ok`; that object, or {"ok": False, "why": its last lines}.

    Of `environment`, a server's, the script inherits what its interpreter needs.
    """
    inherited = {name: environment[name] for name in OF_THE_INTERPRETER if name in environment}
    argv = command(python, script, *arguments)
    done = run_watched(argv, timeout_s=timeout_s, env={**os.environ, **inherited})
    for line in reversed(done.stdout.strip().splitlines()):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and "ok" in document:
            return document
    tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
    return {"ok": False, "why": f"the probe ended with exit status {done.rc} and no result: {tail}"}
