# SPDX-License-Identifier: Apache-2.0
"""What kind of rehearsal a plan is, in the words that every report says: on a CPU, with the canary model, or declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdlab.loose import as_mapping

ON_A_CPU = "says nothing about any GPU"


def rehearsal_note(plan: Mapping[str, Any] | None) -> str:
    """The words for a plan that is a rehearsal. A run without a plan says no more than that it is one."""
    plan = plan or {}
    canary = as_mapping(plan.get("model")).get("source") == "canary"
    match plan.get("device"), canary:
        case "cpu", True:
            return f"rehearsal on CPU with the canary model: {ON_A_CPU}"
        case "cpu", False:
            return f"rehearsal on CPU: {ON_A_CPU}"
        case "cuda", True:
            return "rehearsal on GPUs with the canary model: says nothing about any other model"
        case "cuda", False:
            return "rehearsal on GPUs, declared so (pd_rehearsal): its figures are not meant to be used"
        case _:
            return "rehearsal: its figures are not meant to be used"


def kind_of_run(plan: Mapping[str, Any] | None, rehearsal: bool) -> str | None:
    """What a run is beside others: figures of one kind are not held against those of another. None where nobody knows."""
    where = {"cpu": "a CPU", "cuda": "GPUs"}.get(str((plan or {}).get("device")))
    if where is None:
        return None
    if not rehearsal:
        return f"measured on {where}"
    canary = as_mapping((plan or {}).get("model")).get("source") == "canary"
    return f"rehearsal on {where}{' with the canary model' if canary else ''}"
