# SPDX-License-Identifier: Apache-2.0
"""Lets NIXL's progress thread breathe, so that two idle servers do not fill two cores.

NIXL asks UCX for news in a thread of its own, and its Python API fixes the pause between two questions at zero: a
whole core for each server, idle or not. Where every core also computes, that starves the servers themselves. A pause
of a tenth of a millisecond brings it to one or two hundredths of a core. Nothing else about the transfer changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pdlab_rehearsal.platform import named

TARGET = "sglang.srt.disaggregation.nixl.conn.NixlKVManager.__init__"
PAUSE_US = 100


def register() -> None:
    """Entry point of group ``sglang.srt.plugins``; does nothing unless this platform was asked for by name."""
    if not named():
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(TARGET, with_pauses, HookType.AROUND)


def with_pauses(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Runs the KV manager's constructor, whose NIXL agent then pauses."""
    # Only here, where SGLang needs NIXL anyway: most of its processes do not.
    from nixl._api import nixl_agent

    api = sys.modules[nixl_agent.__module__]  # nixl is a façade; this is the package of the CUDA version in use
    api.nixlBind = Bindings(api.nixlBind)  # type: ignore[attr-defined]
    original(*args, **kwargs)


class Bindings:
    """NIXL's compiled bindings, of which one function is given a pause."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def nixlAgent(self, name: str, config: Any) -> Any:
        config.pthrDelay = PAUSE_US
        return self._real.nixlAgent(name, config)
