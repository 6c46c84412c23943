# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark job as a service: a point is handed to the one that waits for it, or to a new one.

It lies in ROOT/state/bench/: code/ (what it runs), home/ (its HOME), request.json and state.json (bench_forkserver).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    bench_client,
    bench_command,
    bench_conductor,
    bench_forkserver,
    bench_job,
    bench_warmup,
    box_telemetry,
    carried_script,
    engine_metrics,
    forked,
    http_json,
    leased_job,
    processes,
    prometheus_text,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_job import JobFiles
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import NEVER, PREFIX, ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    ABSENT,
    RUNNING,
    STARTING,
    ServiceManager,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

SERVICE = PREFIX + "job-bench"
# What the job needs on the target.
CARRIED = (
    bench_client,
    bench_conductor,
    bench_forkserver,
    bench_warmup,
    box_telemetry,
    engine_metrics,
    forked,
    http_json,
    leased_job,
    prometheus_text,
)
TICK_S = 0.05
# How long the job may take to say that it runs, and to end once it was told to (leased_job's own grace is 5 s).
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 15


class NotStarted(Exception):
    """The job did not say that it runs; the text says what it said instead."""


class Job:
    """The benchmark job of one root."""

    def __init__(self, root: str, manager: ServiceManager) -> None:
        self._manager = manager
        self._folder = under(state_dir(root), "bench")
        self._code = under(self._folder, "code")
        self._request = under(self._folder, bench_forkserver.REQUEST)

    def waits_for(self, python: str, environment: Mapping[str, str]) -> bool:
        """Whether a job is there that would take a point with this interpreter and environment."""
        state = bench_job.read_json(under(self._folder, bench_forkserver.STATE))
        if not state.get("waiting") or state.get("key") != key_of(python, environment):
            return False
        seen = self._manager.status(SERVICE)
        return seen.state == RUNNING and seen.pid == state.get("pid")

    def begin(self, files: JobFiles, python: str, environment: Mapping[str, str], request: Mapping[str, Any]) -> None:
        """Have a point run: by the job that waits, otherwise by a new one in place of whatever is there.

        `environment` is the client's without HOME, `request` what bench_forkserver needs beside the point's files.
        Raises NotStarted, ServiceError, OSError, ControllerGone.
        """
        whole = {
            **request,
            "client": bench_command.CLIENT_MODULE,
            "setup": files.setup,
            "log": files.log,
            "status": files.status,
            "lease": files.lease,
        }
        try:
            if self.waits_for(python, environment):
                write_json(self._request, whole)
                if self._taken(files):
                    return
            self.clear_away()
            carried_script.write_tree(self._code, CARRIED)
            write_json(self._request, whole)
            self._manager.write(self._definition(files, python, environment))
            self._manager.start(SERVICE)
            if not self._taken(files):
                raise NotStarted(self._last_words(files))
        except BaseException:
            self.clear_away()
            raise

    def _definition(self, files: JobFiles, python: str, environment: Mapping[str, str]) -> ServiceDefinition:
        paths = [self._code, *filter(None, [environment.get("PYTHONPATH")])]
        return ServiceDefinition(
            name=SERVICE,
            description="pdlab benchmark",
            argv=(python, "-m", bench_forkserver.__name__, self._folder, key_of(python, environment)),
            environment={
                "HOME": under(self._folder, "home"),
                **environment,
                "PYTHONPATH": os.pathsep.join(paths),
            },
            working_directory=files.directory,
            log_path=files.log,
            restart=NEVER,
            stop_timeout_s=STOP_TIMEOUT_S,
        )

    def _taken(self, files: JobFiles) -> bool:
        """Whether the job has said that the point runs, or that it cannot."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if bench_job.read_json(files.status):
                return True
            if not self.runs():
                # Its last words may have come just now.
                return bool(bench_job.read_json(files.status))
            processes.stop_if_controller_gone()
            time.sleep(TICK_S)
        return False

    def _last_words(self, files: JobFiles) -> str:
        seen = self._manager.status(SERVICE)
        said = bench_job.text_tail(files.log, 2000).strip() or seen.detail or "it said nothing"
        return f"{SERVICE} is {seen.state}: {said}"

    def runs(self) -> bool:
        """Whether the service manager has it running."""
        return self._manager.status(SERVICE).state in (RUNNING, STARTING)

    def stop(self) -> None:
        """End it with all that it runs; the service manager still knows it. Raises ServiceError."""
        self._manager.stop(SERVICE, STOP_TIMEOUT_S)

    def clear_away(self) -> bool:
        """End it if it runs, and remove it from the service manager; whether there was one. Raises ServiceError."""
        there = self._manager.status(SERVICE).state != ABSENT
        if there:
            self.stop()
            there = self._manager.remove(SERVICE)
        shutil.rmtree(self._folder, ignore_errors=True)
        return there


def key_of(python: str, environment: Mapping[str, str]) -> str:
    """What two points must have in common to be run by one job."""
    sources = [inspect.getsource(module) for module in CARRIED]
    parts = [python, bench_command.CLIENT_MODULE, dict(environment), sources]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
