# SPDX-License-Identifier: Apache-2.0
"""The platform class itself; imports SGLang, so only ``platform.activate`` may import it."""

from __future__ import annotations

from typing import Any

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform


class RehearsalPlatform(CpuDeviceMixin, SRTPlatform):  # type: ignore[misc,unused-ignore]
    """A CPU that SGLang takes for foreign hardware, so that it asks for nothing compiled.

    The default capabilities (no triton, no graphs, no pynccl) are right as they are.
    """

    # OOT ("out of tree") is what selects the native torch path; CPU would select sgl-kernel's CPU build.
    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        return "native"


class RehearsalPlatform0517(RehearsalPlatform):
    """What sglang 0.5.17 asks of a foreign platform besides; 0.5.23 has its own answers and warns of these."""

    def get_mha_kv_pool_cls(self) -> type[Any]:
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

        return MHATokenToKVPool  # type: ignore[no-any-return,unused-ignore]

    def get_paged_allocator_cls(self) -> type[Any]:
        from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator

        class OneTokenPages(TokenToKVPoolAllocator):  # type: ignore[misc,unused-ignore]
            """Pages of one token, 0.5.17's default; its allocator for larger pages needs triton."""

            def __init__(self, size: int, *, page_size: int, **rest: Any) -> None:
                if page_size != 1:
                    raise ValueError(f"on this platform sglang 0.5.17 serves --page-size 1 only, not {page_size}")
                super().__init__(size, **rest)

        return OneTokenPages
