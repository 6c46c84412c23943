# SPDX-License-Identifier: Apache-2.0
"""SGLang's platform plug-in ``pdlab_cpu``: the engine on plain torch, without a GPU and without AMX.

SGLang's own CPU engine wants a CPU build of sgl-kernel, which is not on PyPI. A platform from outside SGLang's tree
makes its layers take their native torch path instead, and no file of SGLang is changed.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

NAME = "pdlab_cpu"
SUPPORTED = "0.5.17 and 0.5.23"


def named() -> bool:
    """Whether ``SGLANG_PLATFORM`` names this platform; only then may anything here take effect."""
    return os.environ.get("SGLANG_PLATFORM") == NAME


def activate() -> str | None:
    """Entry point of group ``sglang.srt.platforms``.

    Returns the class's dotted name, or None unless this platform was asked for by name: SGLang activates every
    plug-in that it finds when the variable is unset, and an accidental install on a GPU host must change nothing.
    Raises RuntimeError, naming the supported versions, where this SGLang has another plug-in interface.
    """
    if not named():
        return None
    try:
        from sglang.srt.platforms import interface

        import pdlab_rehearsal.cpu_platform as classes
    except Exception as error:
        # Left alone, this surfaces as "cannot import name 'current_platform'", far from its cause.
        raise RuntimeError(
            f"the platform {NAME} is written for sglang {SUPPORTED}, and {_sglang_version()} is installed, whose "
            f"plug-in interface differs: {error}"
        ) from error
    # Capabilities came with the interface of 0.5.23, which also asks for less.
    chosen = classes.RehearsalPlatform if hasattr(interface, "PlatformCapabilities") else classes.RehearsalPlatform0517
    return f"{chosen.__module__}.{chosen.__qualname__}"


def _sglang_version() -> str:
    try:
        return f"sglang {version('sglang')}"
    except PackageNotFoundError:
        return "no sglang"
