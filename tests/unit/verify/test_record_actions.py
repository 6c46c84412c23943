# SPDX-License-Identifier: Apache-2.0
"""The action plug-ins of the verifying modules: which record each result becomes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase

RESULT = {"changed": False, "ok": False, "failed": True, "msg": "no", "invocation": {"module_args": {}}}


def run_action(
    name: str, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], result: dict[str, Any]
) -> dict[str, Any]:
    """Run the action plug-in with a module that returns `result`."""
    plugin = importlib.import_module(f"ansible_collections.pdlab.pdlab.plugins.action.{name}").ActionModule
    monkeypatch.setattr(ActionBase, "run", lambda *_args, **_kwargs: {})
    monkeypatch.setattr(plugin, "execute", lambda *_args, **_kwargs: dict(result))
    action = plugin.__new__(plugin)
    action._task = SimpleNamespace(args=arguments, action=f"pdlab.pdlab.{name}")
    returned: dict[str, Any] = action.run(None, {})
    return returned


@pytest.mark.parametrize(
    ("name", "record"), [("pd_ready", "ready"), ("pd_answers", "answers"), ("pd_oracle", "oracle")]
)
def test_a_result_becomes_its_record_failed_or_not(
    name: str, record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_action(name, monkeypatch, {"run_dir": str(tmp_path)}, RESULT)
    document = json.loads((tmp_path / "records" / f"{record}.json").read_text())
    assert document["ok"] is False
    assert "invocation" not in document


def test_the_record_of_the_counters_has_the_number_of_failed_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_action("pd_kv_counters", monkeypatch, {"run_dir": str(tmp_path)}, {**RESULT, "failed_requests": 3})
    assert result["failed"] is True
    document = json.loads((tmp_path / "records" / "kv_transfer.json").read_text())
    assert document["failed"] == 3
    assert "failed_requests" not in document


def test_another_name_is_taken_for_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"run_dir": str(tmp_path), "record": "stability"}
    run_action("pd_answers", monkeypatch, arguments, RESULT)
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["stability.json"]


def test_a_warning_is_kept_as_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = SimpleNamespace(event=SimpleNamespace(msg="numactl is missing"))
    result = {**RESULT, "warnings": [wrapped, "another"]}
    run_action("pd_ready", monkeypatch, {"run_dir": str(tmp_path)}, result)
    document = json.loads((tmp_path / "records" / "ready.json").read_text())
    assert document["warnings"] == ["numactl is missing", "another"]


@pytest.mark.parametrize("name", ["pd_ready", "pd_answers", "pd_oracle", "pd_kv_counters"])
def test_without_a_run_folder_or_in_check_mode_nothing_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_action(name, monkeypatch, {}, {**RESULT, "failed_requests": 0})
    run_action(name, monkeypatch, {"run_dir": str(tmp_path)}, {"skipped": True, "changed": False})
    assert list(tmp_path.iterdir()) == []
