# SPDX-License-Identifier: Apache-2.0
"""On this platform KV pages lie in host memory, and NIXL must be told so.

SGLang's NIXL code calls its KV buffers VRAM unless told otherwise, and NIXL refuses host memory that is registered
as VRAM ("VRAM memory is detected as host by UCX"). SGLang carries a memory kind a buffer from end to end: both roles
pass theirs through ``_normalize_kv_mem_kinds``, decode sends its own to prefill, and every registration, descriptor
and prepared list follows from them. So one answer in that one place is enough. It is given through SGLang's own hook
registry, which applies it in each process that it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdlab_rehearsal.platform import named

TARGET = "sglang.srt.disaggregation.nixl.conn._normalize_kv_mem_kinds"
Kinds = Callable[[Sequence[str] | None, int], list[str]]


def register() -> None:
    """Entry point of group ``sglang.srt.plugins``; does nothing unless this platform was asked for by name."""
    if not named():
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(TARGET, all_dram, HookType.AROUND)


def all_dram(original: Kinds, kinds: Sequence[str] | None, expected_len: int) -> list[str]:
    """The kinds of ``expected_len`` KV buffers, all "DRAM"; the original still checks what it was given."""
    return ["DRAM"] * len(original(kinds, expected_len))
