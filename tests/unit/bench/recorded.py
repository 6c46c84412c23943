# SPDX-License-Identifier: Apache-2.0
"""What the real client wrote (sglang 0.5.23, sglang-router 0.3.2, prefill and decode on a CPU), and its points.

good: 12 requests at concurrency 4, all well.
prefill_killed: prefill killed with SIGKILL in mid-run; the client went on to its end and exited with 0.
prefill_killed_ended: the same, with the client ended as soon as prefill was seen to be gone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "bench"

GOOD_POINT: dict[str, Any] = {
    "label": "c4-n12",
    "concurrency": 4,
    "prompts": 12,
    "input_len": 64,
    "output_len": 32,
    "range_ratio": 1.0,
    "seed": 42,
    "limit_s": 180,
}
KILLED_POINT: dict[str, Any] = {**GOOD_POINT, "label": "c4-n24", "prompts": 24, "input_len": 256, "output_len": 64}
WELL_ENDED: dict[str, Any] = {"argv": ["client"], "reason": "exited", "exit_code": 0, "seconds": 41.5, "cpu_s": 9.1}


def log(name: str) -> str:
    with (DATA / f"{name}.log").open(encoding="utf-8", newline="") as stream:
        return stream.read()


def output_text(name: str) -> str:
    return (DATA / f"{name}.jsonl").read_text(encoding="utf-8")


def output(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(output_text(name))
    return value
