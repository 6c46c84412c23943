# SPDX-License-Identifier: Apache-2.0
"""Arms whose prefill and decode compute on the same GPU: no verdict on them is one on GPUs of their own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pdlab.evidence.legs import Leg
from pdlab.loose import as_list, as_rows


def shared_gpus_note(legs: Sequence[Leg]) -> str | None:
    """What a verdict has to say of arms that share; None where none does."""
    names = sorted({leg.arm for leg in legs if _shares(leg.contents.plan or {})})
    if not names:
        return None
    who = f"{' and '.join(names)}: prefill and decode compute on the same GPU"
    return f"{who}, which says nothing about GPUs of their own"


def _shares(plan: Mapping[str, Any]) -> bool:
    if plan.get("device") != "cuda":
        return False  # a CPU is shared always, and its runs are labelled as rehearsals
    prefill, decode = (_gpus(plan, role) for role in ("prefill", "decode"))
    return bool(prefill & decode)


def _gpus(plan: Mapping[str, Any], role: str) -> set[tuple[Any, Any]]:
    servers = [server for server in as_rows(plan.get("servers")) if server.get("role") == role]
    return {(server.get("host"), gpu) for server in servers for gpu in as_list(server.get("gpus"))}
