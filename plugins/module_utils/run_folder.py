# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of a run folder and the only writers of its files.

Action plug-ins write here while a run goes on; pdlab/store.py reads. Every document is written whole and
renamed into place, every log line is appended with one write, so a run that dies stays readable.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import replace_bytes

RUN = "run.json"
PLAN = "plan.json"
STAGES = "stages.jsonl"
RECORDS = "records"
BENCH = "bench"
SAMPLES_ENDING = ".samples.jsonl"
LOGS = "logs"
ANSIBLE = "ansible"
REPORT = "report.html"
FINDINGS = "findings.md"
MANIFEST = "manifest.json"
# A run of arms: what was planned, and a whole run folder for each deployment of an arm and the sweep on it.
ARMS = "arms.json"
LEGS = "legs"
RESTORE = "restore"

_LEG = re.compile(r"(?P<number>\d{3,})-(?P<id>(?P<arm>.+)-r(?P<repeat>\d+))")


def new_run_name(now: float | None = None) -> str:
    """A name that sorts by time (UTC) and does not clash: 20260131T235959Z-1a2b3c."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)) + "-" + secrets.token_hex(3)


def create_run(runs_dir: str, document: Mapping[str, Any]) -> str:
    """Make a new run folder below `runs_dir` with its run.json; return its absolute path.

    Raises OSError when the folder cannot be made (read-only or full file system, a file in the way).
    """
    return _make_run(os.path.join(os.path.abspath(runs_dir), new_run_name()), document)


def create_leg(run_dir: str, number: int, leg_id: str, document: Mapping[str, Any]) -> str:
    """Make the run folder of one leg of a run of arms; `number` is its place in time. Raises OSError."""
    return _make_run(os.path.join(run_dir, LEGS, f"{number:03d}-{leg_id}"), document)


def create_restore(run_dir: str, document: Mapping[str, Any]) -> str:
    """Make the run folder in which the first arm is deployed again; an older one goes. Raises OSError."""
    path = os.path.join(run_dir, RESTORE)
    if os.path.isdir(path):
        shutil.rmtree(path)
    return _make_run(path, document)


def leg_of(name: str) -> dict[str, Any] | None:
    """{"number", "id", "arm", "repeat"} of a leg's folder name such as 003-pd-r2; None when it is none."""
    match = _LEG.fullmatch(name)
    if match is None:
        return None
    return {"number": int(match["number"]), "id": match["id"], "arm": match["arm"], "repeat": int(match["repeat"])}


def _make_run(run_dir: str, document: Mapping[str, Any]) -> str:
    os.makedirs(os.path.dirname(run_dir), exist_ok=True)
    os.mkdir(run_dir, 0o700)
    for part in (RECORDS, BENCH, LOGS):
        os.mkdir(os.path.join(run_dir, part))
    write_json(os.path.join(run_dir, RUN), {"run": os.path.basename(run_dir), **document})
    return run_dir


def write_text(path: str, text: str) -> None:
    """Replace a file by `text`, whole or not at all, readable for whom the umask says. Raises OSError."""
    replace_bytes(path, text.encode(), None)


def write_json(path: str, data: Any) -> None:
    """Replace a file by `data` as JSON, whole or not at all. Raises OSError."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n")


def record_path(run_dir: str, name: str) -> str:
    """Where the document `name` of a run lies."""
    return os.path.join(run_dir, RECORDS, name + ".json")


def write_record(run_dir: str, name: str, data: Mapping[str, Any]) -> None:
    """Keep one stage's result as records/NAME.json. Raises OSError."""
    os.makedirs(os.path.join(run_dir, RECORDS), exist_ok=True)
    write_json(record_path(run_dir, name), data)


def bench_dir(run_dir: str) -> str:
    """The folder of a run's raw benchmark output; made when missing."""
    path = os.path.join(run_dir, BENCH)
    os.makedirs(path, exist_ok=True)
    return path


def sealed_by(run_dir: str) -> str:
    """The path of the manifest that covers a run folder: its own, or for a leg the one of the run that it is part of."""
    above, leg = os.path.split(os.path.abspath(run_dir))
    folder = os.path.dirname(above) if os.path.basename(above) == LEGS else os.path.join(above, leg)
    return os.path.join(folder, MANIFEST)


def reopen(run_dir: str) -> None:
    """A run goes on that had ended: its manifest holds no longer, and is taken away. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(sealed_by(run_dir))


def append_stage(run_dir: str, stage: str, event: str, ok: bool | None = None, why: str | None = None) -> None:
    """Note that a stage started or ended. One line, one write. Raises OSError."""
    reopen(run_dir)
    line = {"stage": stage, "event": event, "time": time.time()}
    if event == "end":
        line.update(ok=ok, why=why)
    with open(os.path.join(run_dir, STAGES), "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
