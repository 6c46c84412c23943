# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVLink carried, counted by the GPUs themselves, held against what the engine says that it sent.

The engine counts the KV cache that it handed to UCX, whatever way it went. NVLink's own counters say whether it went
over NVLink: where it did not, the requests complete all the same, and the first token takes an order of magnitude
longer. Seen on two H200s: 68.5 GiB by both counts, and 0 over NVLink with UCX_TLS=tcp,cuda_copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.live_gpus import ask

# Payload only (d), not the protocol's own bytes (r).
QUERY = ("nvidia-smi", "nvlink", "-gt", "d")
KIB = 1024
# The counters tick on for other reasons, too; below this a share of them says nothing.
LEAST_BYTES = 8 * 1024 * 1024
AGREES = 0.05
# Well below what any rounding or other traffic explains: the KV cache went another way.
LEAST_SHARE = 0.5
_GPU = re.compile(r"^GPU (\d+):")
_LINK = re.compile(r"^\s*Link \d+: Data (Tx|Rx): (\d+) KiB")

# {GPU index as text: {"tx": bytes, "rx": bytes}}; plain JSON.
Reading = dict[str, dict[str, int]]
Ask = Callable[[Sequence[str]], "str | None"]


class Comparison(NamedTuple):
    """NVLink's count of what left the prefill GPUs, and its share of the KV cache that the engine counted."""

    bytes: int
    share: float
    agrees: bool
    went_another_way: bool


def parse(text: str) -> Reading:
    """The sum over all links of each GPU."""
    found: Reading = {}
    gpu: str | None = None
    for line in text.splitlines():
        head, link = _GPU.match(line), _LINK.match(line)
        if head:
            gpu = head.group(1)
        elif link and gpu is not None:
            counts = found.setdefault(gpu, {"tx": 0, "rx": 0})
            counts[link.group(1).lower()] += int(link.group(2)) * KIB
    return found


def applies(workers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all that leaves a prefill GPU over NVLink is KV cache: one host, one GPU a server, no GPU in two."""
    gpus = [gpu for worker in workers for gpu in worker.get("gpus") or []]
    return (
        {PREFILL, DECODE} <= {worker["role"] for worker in workers}
        and len({worker.get("host") for worker in workers}) == 1
        and len(gpus) == len(workers) == len(set(gpus))
        and all(len(worker["gpus"]) == 1 for worker in workers)
    )


def read(workers: Sequence[Mapping[str, Any]], said: Ask = ask) -> Reading | None:
    """The counters of the workers' GPUs now; None where they say nothing about KV cache, or where there is no NVLink."""
    if not applies(workers):
        return None
    text = said(QUERY)
    found = parse(text) if text else {}
    wanted = {str(gpu) for worker in workers for gpu in worker["gpus"]}
    return {gpu: found[gpu] for gpu in sorted(wanted)} if wanted <= set(found) else None


def compare(
    workers: Sequence[Mapping[str, Any]], before: Reading | None, after: Reading | None, kv_bytes: int
) -> Comparison | None:
    """Hold NVLink's counters against the engine's; None when there is too little, or a counter was reset."""
    if not before or not after or kv_bytes < LEAST_BYTES:
        return None
    sent = 0
    for worker in workers:
        for gpu in map(str, worker["gpus"]) if worker["role"] == PREFILL else ():
            gained = after.get(gpu, {}).get("tx", 0) - before.get(gpu, {}).get("tx", 0)
            if gpu not in before or gained < 0:
                return None
            sent += gained
    share = sent / kv_bytes
    return Comparison(sent, round(share, 4), abs(share - 1) <= AGREES, share < LEAST_SHARE)
