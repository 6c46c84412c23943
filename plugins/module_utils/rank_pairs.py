# SPDX-License-Identifier: GPL-3.0-or-later
"""Between which GPUs KV cache moves: each rank of decode takes it from one rank of prefill, or from several. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Pair = tuple[int, int]


def rank_pairs(prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> list[Pair]:
    """(GPU of a prefill rank, GPU of the decode rank that it writes to), in the order of decode's ranks.

    With equal TP rank i writes to rank i. Where decode has more ranks, each of prefill's writes to as many in a row, and
    where it has fewer, each of decode's is written to by as many in a row (S/disaggregation/common/conn.py
    _resolve_rank_mapping of sglang 0.5.17 and 0.5.23; with latent attention the first of those has it all, and the others
    are asked all the same). NIXL then cuts each page by heads (S/disaggregation/nixl/conn.py send_kvcache_slice). With
    pipeline stages, data-parallel attention or TP that do not divide each other, any GPU may meet any other.
    """
    sources, targets = list(prefill["gpus"]), list(decode["gpus"])
    if not (_plain(prefill) and _plain(decode)) or max(len(sources), len(targets)) % min(len(sources), len(targets)):
        return [(source, target) for target in targets for source in sources]
    if len(sources) <= len(targets):
        each = len(targets) // len(sources)
        return [(sources[rank // each], target) for rank, target in enumerate(targets)]
    each = len(sources) // len(targets)
    return [(source, targets[rank // each]) for rank, source in enumerate(sources)]


def _plain(server: Mapping[str, Any]) -> bool:
    """Whether a server's GPUs are its tensor parallel ranks and nothing else."""
    return server["tp"] == len(server["gpus"]) and not server["args"].get("enable-dp-attention")


def rounds(pairs: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """The pairs in groups that can be tried at the same time, since no GPU is twice in one."""
    groups: list[list[Sequence[int]]] = []
    for pair in pairs:
        free = next((one for one in groups if not set(pair) & {gpu for other in one for gpu in other}), None)
        if free is None:
            groups.append([pair])
        else:
            free.append(pair)
    return groups
