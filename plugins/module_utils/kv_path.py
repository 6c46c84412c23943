# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether KV memory takes the path that it should, judged from a good result of the NIXL probe. Pure.

A transfer that works can still go through TCP and host memory: servers stay healthy, every request completes, TPOT
hardly moves, and the first token takes many times longer (13 times on two H200s over NVLink). Only the path tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIRECT = "cuda_ipc"
# Of a plain copy of 64 MiB, measured on two H200s over NVLink: 0.50 directly (0.35 on one and the same GPU), 0.001
# through TCP. The bound parts the two, and no more: what a link should give is preflight's to say.
LEAST_SHARE = 0.1
# Where several pairs write at the same time, on links or threads that they may share.
LEAST_SHARE_BESIDE_OTHERS = 0.01


def path_fault(probe: Mapping[str, Any], least_share: float = LEAST_SHARE) -> str | None:
    """What is wrong with the path of a probe that moved its bytes; None when nothing is.

    `probe` is the document of `nixl_probe`: memory ("VRAM", "DRAM"), transport, gib_s, copy_gib_s in GiB/s. Memory of
    the host may go any way, since only a rehearsal has its KV cache there.
    """
    if probe.get("memory") != "VRAM":
        return None
    speed, plain, transport = probe.get("gib_s"), probe.get("copy_gib_s"), probe.get("transport")
    speeds = f"{speed} GiB/s, where a plain copy between these GPUs makes {plain} GiB/s"
    if transport and DIRECT not in transport:
        return f"KV memory does not go from GPU to GPU: UCX uses {transport!r} instead of {DIRECT} ({speeds})"
    if speed is not None and plain is not None and speed < least_share * plain:
        return f"KV memory moves too slowly: {speeds}, and at least {least_share:.0%} of that is wanted"
    if transport is None and plain is None:
        return "the path of KV memory is unknown: UCX does not say how it writes"
    return None
