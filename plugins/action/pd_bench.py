# SPDX-License-Identifier: GPL-3.0-or-later
"""Drive one benchmark point: start the job, tell how far it is, fetch what it left, keep its record.

While it runs, one line every few seconds goes to Ansible's output:

    pdlab-progress: benchmark c16-n48  31/48 requests  42 s

PROGRESS_PREFIX and read_line() in module_utils/bench_progress.py are for programs that read it; under
ansible-runner it comes as an event of the kind "verbose".
"""

from __future__ import annotations

import base64
import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_point, run_folder
from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_progress import progress_line
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.interruptible import signals_as_exceptions

MODULE = "pdlab.pdlab.pd_bench"
DEFAULT_RUN = "by-hand"
POLL_WAIT_S = 5
LINE_EVERY_S = 3.0

# What the module takes of a server; the plan's own descriptions, which say much more, may be handed in whole.
WORKER_KEYS = ("name", "url", "role", "bootstrap_port")
WATCH_KEYS = ("name", "pid", "unit", "url", "log")

display = Display()


class ActionModule(ActionBase):
    """state=measured is done here; every other state is the module's own."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = dict(self._task.args)
        run_dir = options.pop("run_dir", None)
        fail = self._flag(options.pop("fail", False))
        state = options.pop("state", "measured")
        if not options.get("run"):
            options["run"] = os.path.basename(os.path.normpath(run_dir)) if run_dir else DEFAULT_RUN
        for key, wanted in (("workers", WORKER_KEYS), ("watch", WATCH_KEYS)):
            if isinstance(options.get(key), list):
                options[key] = [only(server, wanted) for server in options[key]]
        if state != "measured" or self._task.check_mode:
            state = "started" if state == "measured" else state
            result.update(self._call(state, options, task_vars))
            return result
        if not isinstance(options.get("point"), Mapping) or "label" not in options["point"]:
            raise AnsibleActionFail("pd_bench: point: a mapping with a label is needed; take one of the plan's points")
        with signals_as_exceptions():
            try:
                collected = self._measure(options, task_vars)
                files = self._fetch(collected, run_dir, task_vars)
            except StepFailed as error:
                # Not the point but the machinery failed; the module's own words say where.
                self._call("absent", options, task_vars)
                result.update(error.answer)
                return result
            except BaseException:
                # Ctrl-C, a lost connection, a full disk: whatever it was, the client must not run on.
                with contextlib.suppress(Exception):
                    self._call("absent", options, task_vars)
                raise
        record = collected["record"]
        if run_dir:
            run_folder.write_record(run_dir, "point-" + record["label"], record)
        result.update(
            changed=False, ok=record["ok"], why=record["why"], checks=record["checks"], record=record, files=files
        )
        if fail and not record["ok"]:
            result.update(failed=True, msg=f"point {record['label']}: " + "; ".join(record["why"]))
        return result

    def _measure(self, options: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Run the job to its end, in as few calls as can be; return what state=collected gives."""
        point = options["point"]
        onward = {**options, "onward": True, "wait_s": POLL_WAIT_S}
        seen = self._call("started", onward, task_vars)
        if "missing" in seen:
            # A job that an earlier point left waiting has nothing to wait for.
            self._call("absent", options, task_vars)
            return {"record": not_started(point, seen["missing"])}
        told_at = 0.0
        while True:
            if seen.get("failed"):
                raise StepFailed(seen)
            if seen["finished"] or time.monotonic() - told_at >= LINE_EVERY_S:
                told_at = time.monotonic()
                display.display(progress_line(point["label"], seen["progress"], seen["elapsed_s"]))
            if seen["finished"]:
                collected: dict[str, Any] = seen["collected"]
                return collected
            seen = self._call("polled", onward, task_vars)

    def _call(self, state: str, options: Mapping[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module_name=MODULE, module_args={**options, "state": state}, task_vars=task_vars
        )
        return answer

    def _fetch(
        self, collected: Mapping[str, Any], run_dir: str | None, task_vars: dict[str, Any] | None
    ) -> dict[str, str]:
        """Copy the raw files into the run folder, whole; return where they lie by kind ("output", "log", "samples")."""
        if not run_dir:
            return dict(collected.get("files") or {})
        fetched = {}
        for kind, remote in (collected.get("files") or {}).items():
            size = collected["sizes"].get(remote)
            if size is None:
                continue
            local = os.path.join(run_folder.bench_dir(run_dir), os.path.basename(remote))
            if self._connection.become:
                # The connection's own copy would be the login user's, who may not read the file.
                self._slurp(remote, local, task_vars)
            else:
                self._connection.fetch_file(remote, local)
            if os.path.getsize(local) != size:
                raise AnsibleActionFail(f"{remote} has {size} bytes, but {os.path.getsize(local)} came over as {local}")
            fetched[kind] = local
        return fetched

    def _slurp(self, remote: str, local: str, task_vars: dict[str, Any] | None) -> None:
        answer = self._execute_module(
            module_name="ansible.legacy.slurp", module_args={"src": remote}, task_vars=task_vars
        )
        if answer.get("failed"):
            raise StepFailed(answer)
        with open(local, "wb") as stream:
            stream.write(base64.b64decode(answer["content"]))

    def _flag(self, value: Any) -> bool:
        return value if isinstance(value, bool) else str(value).lower() in ("1", "true", "yes", "on")


def only(server: Any, keys: tuple[str, ...]) -> Any:
    """The named keys of a server's description."""
    return {key: server[key] for key in keys if key in server} if isinstance(server, Mapping) else server


def not_started(point: Mapping[str, Any], missing: list[str]) -> dict[str, Any]:
    """The record of a point whose client was never started."""
    wanted = "all that the point needs is there"
    check = bench_point.check("not_ready", False, "; ".join(missing), wanted)
    return {**bench_point.record(point, None, {}, [check]), "why": list(missing)}


class StepFailed(Exception):
    """A module did not do its step; `answer` is its whole result."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(str(answer.get("msg")))
        self.answer = answer
