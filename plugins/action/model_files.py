# SPDX-License-Identifier: GPL-3.0-or-later
"""The model_files module, driven to its end, with its result kept in the run folder.

A download is a job on the target: started, asked for its progress, collected. Hashing and warming up go in slices
of time. Meanwhile one line every few seconds goes to Ansible's output (module_utils/model_progress.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.pdlab.pdlab.plugins.module_utils import checksums, model_state
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_progress import progress_line
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.interruptible import signals_as_exceptions
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction

SLICE_S = 5.0
POLL_WAIT_S = 3.0
LINE_EVERY_S = 3.0
# What of the options a step of the download needs beside its state.
JOB_OPTIONS = ("root", "service_manager", "lease_s", "wait_s")
DOWNLOAD_OPTIONS = (
    *JOB_OPTIONS,
    "path",
    "python",
    "pythonpath",
    "repo",
    "revision",
    "endpoint",
    "exclude",
    "margin_gib",
    "token",
)

display = Display()


class ActionModule(RecordedAction):
    """state=present is driven to its end here; every other state is the module's own."""

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state", "present") != "present":
            return super().execute(arguments, task_vars)
        arguments["sha256"] = read_sums(arguments.get("sha256"))
        arguments.setdefault("slice_s", SLICE_S)
        host = str(task_vars.get("inventory_hostname"))
        began = time.monotonic()
        result = super().execute(arguments, task_vars)
        changes: dict[str, Any] = {}
        if result.get("unfinished") == "download" and not result.get("failed"):
            asked: dict[str, Any] = {key: result[key] for key in ("reason", "diff") if key in result}
            fetched = self._download(arguments, host, task_vars)
            if fetched.get("failed"):
                return {**fetched, **asked}
            changes = {**asked, "changed": True, "seconds": round(time.monotonic() - began, 2)}
            changes["download"] = fetched["download"]
            result = super().execute(arguments, task_vars)
            if result.get("unfinished") == "download":
                msg = f"the download ended well, and yet it is not done: {result.get('reason')}"
                return {**result, **changes, "failed": True, "msg": msg}
        read_bytes = 0
        while result.get("unfinished") and not result.get("failed"):
            display.display(progress_line(host, result["progress"], 0))
            read_bytes += (result.get("warm_up") or {}).get("read_bytes", 0)
            result = super().execute({**arguments, "warmed": result.get("warmed") or []}, task_vars)
        if read_bytes and result.get("warm_up"):
            result["warm_up"] = {key: value + read_bytes for key, value in result["warm_up"].items()}
        result.pop("warmed", None)
        return {**result, **changes}

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        model = seen.get("model")
        if not model or arguments.get("state", "present") != "present" or model["path"] != arguments.get("path"):
            return None
        return model_state.standing(model, arguments) if model["root"] == arguments.get("root") else None

    def _download(self, arguments: Mapping[str, Any], host: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run the download to its end; returns what state=collected gives, or a failed step's result."""
        with signals_as_exceptions():
            try:
                started = self._step("started", arguments, DOWNLOAD_OPTIONS, task_vars)
                if started.get("failed"):
                    return started
                began = told = time.monotonic()
                while True:
                    polled = self._step("polled", {**arguments, "wait_s": POLL_WAIT_S}, JOB_OPTIONS, task_vars)
                    if polled.get("failed"):
                        break
                    if polled["finished"] or time.monotonic() - told >= LINE_EVERY_S:
                        told = time.monotonic()
                        display.display(progress_line(host, polled["progress"], told - began))
                    if polled["finished"]:
                        break
                collected = self._step("collected", arguments, JOB_OPTIONS, task_vars)
            except BaseException:
                # Ctrl-C, a lost connection: nobody would watch it any more. What came over stays.
                with contextlib.suppress(Exception):
                    self._step("absent", arguments, JOB_OPTIONS, task_vars)
                raise
        for answer in (polled, collected):
            if answer.get("failed"):
                return answer
        outcome = collected["download"]
        if not outcome["ok"]:
            collected.update(failed=True, msg=outcome["message"])
        return collected

    def _step(
        self, state: str, arguments: Mapping[str, Any], names: tuple[str, ...], task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        options = {name: arguments[name] for name in names if arguments.get(name) is not None}
        return super().execute({**options, "state": state}, task_vars)


def read_sums(given: Any) -> dict[str, str]:
    """The SHA-256 list as a mapping; a text is the path of a list on the controller."""
    if not given:
        return {}
    if isinstance(given, Mapping):
        return {str(name): str(digest) for name, digest in given.items()}
    path = os.path.expanduser(str(given))
    try:
        with open(path, encoding="utf-8") as stream:
            return checksums.parse(stream.read())
    except (OSError, ValueError) as error:
        raise AnsibleActionFail(f"pd_model.sha256: {path}: {error}; write a list with `sha256sum *`") from error
