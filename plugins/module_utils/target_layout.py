# SPDX-License-Identifier: GPL-3.0-or-later
"""Where pdlab keeps things on a target, all under one root directory."""

from __future__ import annotations

import posixpath


def under(root: str, *parts: str) -> str:
    """Return the path of `parts` below `root` (POSIX, whatever the controller runs)."""
    return posixpath.join(root, *parts)


def engine_dir(root: str) -> str:
    """The engine's virtual environment. One stable path, so that command lines do not change with its content."""
    return under(root, "engine")


# What a virtual environment was built from; written last, so that a half-made one has none.
VENV_STAMP = "pdlab-lock.json"
# Below the engine's folder: local distributions for an engine that pdlab did not build.
EXTRAS = "extras"


def engine_python(root: str) -> str:
    """The Python of the engine's virtual environment."""
    return under(engine_dir(root), "bin", "python")


def supervisor_venv(root: str) -> str:
    """The virtual environment of supervisor, where it keeps the services."""
    return under(root, "supervisor", "venv")


def log_file(root: str, service: str) -> str:
    """The file that takes a service's standard output and error."""
    return under(root, "logs", service + ".log")


def state_dir(root: str) -> str:
    """What pdlab remembers on the target: stamps, the flag table, references, probe results."""
    return under(root, "state")


def bench_dir(root: str) -> str:
    """Raw benchmark output of runs, a directory a run."""
    return under(root, "bench")


def account_home(root: str) -> str:
    """HOME of the account that servers run as, when they have one: their caches, the only folder that is its own."""
    return under(root, "home")
