# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of flags that the installed engine knows: made by asking the engine, kept for as long as it is the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import flag_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.carried_script import command
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import load_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched

# Importing the engine takes a while on a small machine.
TIMEOUT_S = 300.0
SHOWN_LINES = 15
SHOWN_COLUMNS = 300


class FlagTableError(Exception):
    """The engine could not list its flags; the message holds its own last lines and what to do."""


def ensure_table(python: str, path: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the table at `path`, made with the engine's interpreter `python` when it is missing or damaged.

    `environment` is the server's own: an engine that pdlab did not build may need some of it to be found at all.

    Raises FlagTableError.
    """
    try:
        return load_table(path)
    except (OSError, ValueError):
        pass
    fresh = path + ".new"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        env = {**os.environ, **(environment or {})}
        done = run_watched(command(python, flag_table, fresh), timeout_s=TIMEOUT_S, env=env)
        table = load_table(fresh)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename == fresh:
            tail = "\n".join(line[:SHOWN_COLUMNS] for line in (done.stderr or "").strip().splitlines()[-SHOWN_LINES:])
            raise FlagTableError(
                f"the engine at {python} cannot list its flags (exit status {done.rc}): {tail}\n"
                "Run `pdlab rebuild`; if it stays, the lock does not make a working engine."
            ) from error
        raise FlagTableError(f"the engine's flags cannot be listed: {error}") from error
    except ValueError as error:
        raise FlagTableError(
            f"the engine at {python} listed its flags in a way that cannot be read: {error}"
        ) from error
    os.replace(fresh, path)
    return table
