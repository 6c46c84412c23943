# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of one benchmark job on a target, and the servers that it watches.

A job lies in ROOT/bench/RUN/ as LABEL.jsonl (the client's output), LABEL.log (all that it said),
LABEL.samples.jsonl (what servers and box said meanwhile), LABEL.status.json (leased_job), LABEL.lease,
LABEL.job.json (what was started and what is watched), LABEL.setup.json and LABEL.conducted.json (bench_conductor),
LABEL.client.json (bench_client), LABEL.home/ (the client's HOME).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_log, processes, target_layout
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import SAMPLES_ENDING, write_json

TAIL_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 1.0
RUNS_KEPT = 5


@dataclass(frozen=True)
class JobFiles:
    """Where one point's files lie."""

    directory: str
    label: str

    @classmethod
    def of(cls, root: str, run: str, label: str) -> JobFiles:
        """The files of the point `label` of the run `run`. Raises ValueError for names that are no file names."""
        for name, value in (("run", run), ("point.label", label)):
            if not value or os.sep in value or value in (".", ".."):
                raise ValueError(f"{name}: {value!r} is no name of a file; use letters, digits and dashes")
        return cls(os.path.join(target_layout.bench_dir(root), run), label)

    def _path(self, ending: str) -> str:
        return os.path.join(self.directory, self.label + ending)

    @property
    def output(self) -> str:
        """The client's JSONL."""
        return self._path(".jsonl")

    @property
    def log(self) -> str:
        """The client's standard output and error."""
        return self._path(".log")

    @property
    def status(self) -> str:
        """How the job stands (leased_job)."""
        return self._path(".status.json")

    @property
    def lease(self) -> str:
        """The file that every poll touches."""
        return self._path(".lease")

    @property
    def job(self) -> str:
        """What was started, and the servers that are watched."""
        return self._path(".job.json")

    @property
    def samples(self) -> str:
        """What servers, router and box said, a line about every second."""
        return self._path(SAMPLES_ENDING)

    @property
    def setup(self) -> str:
        """What bench_conductor is to do."""
        return self._path(".setup.json")

    @property
    def conducted(self) -> str:
        """What bench_conductor did and read."""
        return self._path(".conducted.json")

    @property
    def client(self) -> str:
        """How busy the client was (bench_client)."""
        return self._path(".client.json")

    @property
    def home(self) -> str:
        """HOME of the client where no other was asked for."""
        return self._path(".home")

    def prepare(self) -> None:
        """Make the folder and clear away what an earlier job of this name left. Raises OSError."""
        os.makedirs(self.directory, exist_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)
        for path in (self.output, self.log, self.samples, self.status, self.conducted, self.client):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        for path in (self.lease, self.job, self.setup):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def forget_working_files(self) -> None:
        """Remove what only the running job needed; the output, the log and the status stay."""
        shutil.rmtree(self.home, ignore_errors=True)
        for path in (self.lease, self.setup):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def touch_lease(self) -> None:
        """Say that somebody still cares. Raises OSError."""
        with open(self.lease, "ab"):
            os.utime(self.lease)


def read_json(path: str) -> dict[str, Any]:
    """A JSON object from a file; empty when there is none or it is torn."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_job(files: JobFiles, job: Mapping[str, Any]) -> None:
    """Keep what was started. Raises OSError."""
    write_json(files.job, job)


def text_tail(path: str, limit: int = TAIL_BYTES) -> str:
    """The last `limit` bytes of a file as text; empty when there is none."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - limit))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def whole_text(path: str) -> str:
    """A file's text; empty when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def watch_from_now(servers: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """What to compare with later, and a sentence for each server that does not run even now.

    `servers` are {"name", "pid" or "url", "unit"?, "log"?}. A PID is told from its next life by the time it
    started; a server without one (on another host) is watched by whether its port takes connections.
    """
    watched, missing = [], []
    for server in servers:
        entry = {key: server.get(key) for key in ("name", "pid", "unit", "url", "log")}
        begins = engine_log.mark(entry["log"] or "")
        entry.update(log_offset=begins.offset, log_inode=begins.inode)
        if entry["pid"] is not None:
            process = processes.read_process(entry["pid"])
            if process is None or process.state in "ZX":
                missing.append(f"{entry['name']}: PID {entry['pid']} does not run; bring the server up first")
                continue
            entry["start_ticks"] = process.start_ticks
        elif not entry["url"]:
            missing.append(f"{entry['name']}: has neither a PID nor a URL by which it could be watched")
            continue
        elif not port_answers(entry["url"]):
            missing.append(f"{entry['name']}: nothing answers at {entry['url']}; bring the server up first")
            continue
        watched.append(entry)
    return watched, missing


def lost(watched: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The watched servers that are not the ones they were: [{"name", "why"}]."""
    gone = []
    for server in watched:
        if server.get("pid") is not None:
            if not processes.is_alive(server["pid"], server.get("start_ticks")):
                gone.append({"name": server["name"], "why": f"PID {server['pid']} is gone"})
        # Asked twice: one refused connection may be a full backlog, not a dead server.
        elif not port_answers(server["url"]) and not port_answers(server["url"]):
            gone.append({"name": server["name"], "why": f"nothing answers at {server['url']}"})
    return gone


def port_answers(url: str) -> bool:
    """Whether the address of a URL takes TCP connections."""
    parts = urllib.parse.urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def forget_old_runs(root: str, keep: str) -> None:
    """Keep the newest RUNS_KEPT folders of raw output, `keep` among them. Run names sort by time."""
    directory = target_layout.bench_dir(root)
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in [name for name in names if name != keep][: -(RUNS_KEPT - 1)]:
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
