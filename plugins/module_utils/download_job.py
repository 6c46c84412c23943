# SPDX-License-Identifier: GPL-3.0-or-later
"""The download of a model as a job of the service manager: its files, its definition, how it stands.

A job lies in ROOT/state/download/ as report.json (hub_download), status.json (leased_job), lease, log, the two
scripts, and, for a moment, the FIFO through which the token goes. Nothing of it is the token itself.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_job, hub_download, leased_job
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_text
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import NEVER, PREFIX, ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    ABSENT,
    RUNNING,
    STARTING,
    ServiceManager,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

SERVICE = PREFIX + "job-model"
# A model of a terabyte at 12 MB/s takes a day.
LIMIT_S = 24 * 3600.0
STOP_TIMEOUT_S = 15
START_TIMEOUT_S = 20.0
TICK_S = 0.1
# A proxy's address may hold a password: these go the token's way, never into the definition.
PASSED_ON = (
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)


class JobFiles:
    """Where the job's files lie."""

    def __init__(self, root: str) -> None:
        self.directory = under(state_dir(root), "download")
        self.report = under(self.directory, "report.json")
        self.status = under(self.directory, "status.json")
        self.lease = under(self.directory, "lease")
        self.log = under(self.directory, "log")
        self.keeper = under(self.directory, "leased_job.py")
        self.script = under(self.directory, "hub_download.py")
        self.fifo = under(self.directory, "secrets")

    def prepare(self) -> None:
        """Make the folder anew, open to its owner alone. Raises OSError."""
        self.remove()
        os.makedirs(os.path.dirname(self.directory), exist_ok=True)
        os.mkdir(self.directory, 0o700)
        os.mkfifo(self.fifo, 0o600)
        write_text(self.keeper, inspect.getsource(leased_job))
        write_text(self.script, inspect.getsource(hub_download))
        self.touch_lease()

    def remove(self) -> None:
        """Take it all away."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def touch_lease(self) -> None:
        """Say that somebody still cares. Raises OSError."""
        with open(self.lease, "ab"):
            os.utime(self.lease)


def hub_options(options: Mapping[str, Any]) -> list[str]:
    """hub_download's own options, from the module's."""
    words = ["--repo", options["repo"], "--revision", options["revision"], "--path", options["path"]]
    if options["endpoint"]:
        words += ["--endpoint", options["endpoint"]]
    for pattern in options["exclude"]:
        words += [f"--exclude={pattern}"]
    return [*words, "--margin-bytes", str(int(options["margin_gib"] * 2**30))]


def environment(python: str, home: str, endpoint: str | None, pythonpath: Sequence[str] = ()) -> dict[str, str]:
    """The download's whole environment, less what is secret (huggingface_hub's documented variables)."""
    return {
        "HOME": home,
        "HF_HOME": under(home, "huggingface"),
        # A token that somebody left on the target is not asked for.
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        # Its protocol cannot go on in the middle of a file.
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "30",
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([os.path.dirname(python), "/usr/local/bin", "/usr/bin", "/bin"]),
        "PYTHONUNBUFFERED": "1",
        **({"HF_ENDPOINT": endpoint} if endpoint else {}),
        **({"PYTHONPATH": os.pathsep.join(pythonpath)} if pythonpath else {}),
    }


def secrets(token: str | None) -> str:
    """What goes through the FIFO: the token, and how this host reaches the network."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return json.dumps({"token": token or None, "environment": passed})


def definition(files: JobFiles, options: Mapping[str, Any]) -> ServiceDefinition:
    """The job as the service manager knows it."""
    python = options["python"]
    keeper: Sequence[str] = [
        *(python, files.keeper, "--status", files.status, "--lease", files.lease),
        *("--lease-s", f"{options['lease_s']:g}", "--limit-s", f"{LIMIT_S:g}", "--"),
    ]
    script = [python, files.script, "--report", files.report, "--secrets", files.fifo, *hub_options(options)]
    return ServiceDefinition(
        name=SERVICE,
        description=f"pdlab download of {options['repo']}",
        argv=(*keeper, *script),
        environment=environment(python, files.directory, options["endpoint"], options["pythonpath"]),
        working_directory=files.directory,
        log_path=files.log,
        restart=NEVER,
        stop_timeout_s=STOP_TIMEOUT_S,
    )


def start(manager: ServiceManager, files: JobFiles, options: Mapping[str, Any], tick: Callable[[], None]) -> str | None:
    """Start the download and hand it the token; returns why it did not start, or None.

    Raises ServiceError, OSError, and what `tick` raises.
    """
    clear_away(manager)
    files.prepare()
    try:
        manager.write(definition(files, options))
        manager.start(SERVICE)
        if hand_over(files.fifo, secrets(options["token"]), tick):
            return None
    except BaseException:
        clear_away(manager)
        raise
    said = bench_job.text_tail(files.log, 2000).strip()
    why = said or bench_job.read_json(files.status).get("reason") or manager.status(SERVICE).detail or "it said nothing"
    clear_away(manager)
    return str(why)


def hand_over(fifo: str, text: str, tick: Callable[[], None]) -> bool:
    """Write through a FIFO as soon as somebody reads; False when nobody does. Raises OSError."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            tick()
            time.sleep(TICK_S)
            continue
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        with contextlib.suppress(OSError):
            os.unlink(fifo)
        return True
    return False


def poll(
    manager: ServiceManager, files: JobFiles, wait_s: float, tick: Callable[[], None]
) -> tuple[bool, dict[str, Any]]:
    """(whether it has ended, its report), after `wait_s` seconds at most; renews the lease."""
    deadline = time.monotonic() + wait_s
    files.touch_lease()
    while True:
        finished = ended(manager, files)
        if finished or time.monotonic() >= deadline:
            return finished, bench_job.read_json(files.report)
        tick()
        time.sleep(TICK_S)


def ended(manager: ServiceManager, files: JobFiles) -> bool:
    """Whether the job is over: it said so, or its keeper is gone without a word."""
    if bench_job.read_json(files.status).get("ended") is not None:
        return True
    return manager.status(SERVICE).state not in (RUNNING, STARTING)


def outcome(files: JobFiles) -> dict[str, Any]:
    """How an ended download went: its last report, with `ok`, `kind` and `message` set whatever became of it."""
    report = bench_job.read_json(files.report)
    if report.get("ok") is not None:
        return report
    reasons = {
        "lease": "nobody asked for it any more (the controller was gone)",
        "stopped": "it was stopped",
        "limit": f"it took longer than {LIMIT_S / 3600:g} hours",
    }
    reason = bench_job.read_json(files.status).get("reason")
    said = "\n".join(bench_job.text_tail(files.log).strip().splitlines()[-15:])
    why = reasons.get(str(reason)) or f"it ended without a word ({reason or 'vanished'}): {said or 'nothing was said'}"
    message = f"the download ended early: {why}. What came over stays; deploy again and it goes on behind it"
    return {**report, "ok": False, "kind": "ended", "message": message}


def clear_away(manager: ServiceManager) -> bool:
    """End the job if it runs, and remove it from the service manager; whether there was one."""
    if manager.status(SERVICE).state == ABSENT:
        return False
    manager.stop(SERVICE, STOP_TIMEOUT_S)
    return manager.remove(SERVICE)
