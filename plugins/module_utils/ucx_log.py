# SPDX-License-Identifier: GPL-3.0-or-later
"""What UCX says in the log of a prefill server: over which transport it writes the KV cache. Pure.

The probe of kv_transfer is made once for each boot, in processes of its own. What UCX does in the servers themselves
can be another thing: a ucx.conf in their HOME, in their working directory or in /etc/ucx is read by them alone, or came
later. With UCX_PROTO_INFO=y and UCX_LOG_LEVEL=info in a server's environment UCX writes a table for each way, and what
prefill writes into decode's cache stands there as "remote memory write by ucp_put from cuda".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.kv_path import DIRECT
from ansible_collections.pdlab.pdlab.plugins.module_utils.nixl_probe import transport

# A row of a table holds for a range of sizes; pages of one layer that lie together are written at once.
WRITE_BYTES = 1024 * 1024
# [1795970126.580911] [vm:5699 :0]: threads of one process write their tables at the same time.
_WRITER = re.compile(r"\[\d+\.\d+\] (\[[^\]]+\]) ")
CURE = (
    "take UCX_TLS out of the servers' environment and out of every ucx.conf that they read (in their HOME, in their "
    "working directory, in /etc/ucx), then start them anew: pdlab rebuild (a deployment leaves a server alone whose "
    "definition is what it was)"
)


def applies(workers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether KV cache should go from GPU to GPU: prefill and decode on GPUs of one host."""
    return (
        {PREFILL, DECODE} <= {worker["role"] for worker in workers}
        and all(worker.get("gpus") for worker in workers)
        and len({worker.get("host") for worker in workers}) == 1
    )


def paths(log: str) -> list[str]:
    """How UCX wrote GPU memory into another process, one entry a way; empty when it did not say."""
    tables: dict[str, list[str]] = {}
    for line in log.splitlines():
        writer = _WRITER.search(line)
        if writer:
            tables.setdefault(writer.group(1), []).append(line)
    found = [transport("\n".join(lines), WRITE_BYTES, "vram") for lines in tables.values()]
    return sorted({path for path in found if path})


def detour(name: str, ways: Sequence[str]) -> str | None:
    """What is wrong with the ways of one server, with the cure; None when nothing is, or nothing is known."""
    wrong = [way for way in ways if DIRECT not in way]
    if not wrong:
        return None
    return (
        f"The log of {name} says that UCX writes KV memory through {' and '.join(map(repr, wrong))} instead of {DIRECT}: "
        "it does not go from GPU to GPU, every request completes all the same, and the first token takes an order of "
        f"magnitude longer; {CURE}."
    )
