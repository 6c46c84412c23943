# SPDX-License-Identifier: GPL-3.0-or-later
"""Scripts that travel with a module and run in another Python, the engine's.

Ansible carries the module_utils that a module imports, inside a zip. A script kept there as a stand-alone
module_util therefore reaches the target without a copy task of its own.
"""

from __future__ import annotations

import inspect
from types import ModuleType


def command(python: str, script: ModuleType, *arguments: str) -> list[str]:
    """The argv that runs `script` (an imported stand-alone module_util) under another interpreter."""
    return [python, "-c", inspect.getsource(script), *arguments]
