# SPDX-License-Identifier: Apache-2.0
"""Run a module's main() in this process with given arguments and take its result."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args


def run_module(
    module: ModuleType, capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], check: bool = False
) -> dict[str, Any]:
    """The module's JSON result; `failed` is always there."""
    with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
        module.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    result.setdefault("failed", False)
    return result
