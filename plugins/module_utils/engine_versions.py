# SPDX-License-Identifier: GPL-3.0-or-later
"""What one version of sglang offers and another does not, as tables, and which version was deployed.

Flags that a version lacks are found by asking its own parser (flag_table.py), what it does with a model on a chip
stands in engine_rule_table.py, variables of the environment in collectives.py. Here is the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import version_within
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import VENV_STAMP, engine_dir

# Where a router asks a server whether it serves.
HEALTH_PATH = "health_path"


@dataclass(frozen=True)
class Trait:
    """`value` of `what` holds for since <= sglang < before. `everywhere`: it works, if less well, in every version."""

    what: str
    value: str
    since: str | None
    before: str | None
    everywhere: bool
    source: str


TRAITS: tuple[Trait, ...] = (
    Trait(HEALTH_PATH, "/ready", "0.5.23", None, False, "sglang 0.5.23, srt/entrypoints/http_server.py, /ready"),
    Trait(HEALTH_PATH, "/health", None, "0.5.23", True, "sglang 0.5.17, srt/entrypoints/http_server.py, /health"),
)

# Flags of the benchmark client (sglang/benchmark/serving.py) that pdlab gives and an older one does not have.
# 0.5.17's client flushes as well, and does not wait until the servers are idle.
# Goodput of an older client's run is asked of the times that it keeps per request.
CLIENT_FLAGS_SINCE = {"flush-cache-timeout": "0.5.23", "goodput": "0.5.23"}


def client_flags(flags: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """The flags that the client of this version has; all of them when it is not known."""
    return {
        name: value
        for name, value in flags.items()
        if version_within(version, CLIENT_FLAGS_SINCE.get(name), None) is not False
    }


# Since when the client's shared-prefix generator gives token ids, each drawn by itself (--tokenize-prompt).
PREFIXES_OF_IDS_SINCE = "0.5.23"


def draws_each_id(version: str | None) -> bool:
    """Whether this version's client can make prompts of ids that are drawn one by one; yes when it is not known."""
    return version_within(version, PREFIXES_OF_IDS_SINCE, None) is not False


def deployed_version(root: str) -> str | None:
    """The version of sglang that was deployed below `root` on this host, or None."""
    try:
        with open(os.path.join(engine_dir(root), VENV_STAMP), encoding="utf-8") as stream:
            version = json.load(stream)["packages"]["sglang"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) else None


def trait(what: str, version: str | None) -> str:
    """The value of `what` in a version of sglang; in an unknown one the value that works in every version.

    Raises StopIteration for a `what` that the table does not have.
    """
    rows = [row for row in TRAITS if row.what == what]
    sure = [row.value for row in rows if version and version_within(version, row.since, row.before)]
    return sure[0] if sure else next(row.value for row in rows if row.everywhere)
