# SPDX-License-Identifier: Apache-2.0
"""The client runs unchanged, and what it did to itself is seen: in a process of its own, as on a target."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_client

FOLDER = Path(__file__).parent
COLLECTIONS = FOLDER.parents[2] / ".collections"
# As bench_forkserver and bench_conductor do it: the module is imported, then run.
DRIVER = f"""
import importlib, sys
from {bench_client.__name__} import run
importlib.import_module(sys.argv[3])
sys.exit(run(sys.argv[3:], sys.argv[1], int(sys.argv[2])))
"""


def run(tmp_path: Path, behaviour: str, word: bytes = b"g") -> tuple[subprocess.CompletedProcess[str], Any]:
    report = tmp_path / "report.json"
    go_there, go_here = os.pipe()
    os.write(go_here, word)
    os.close(go_here)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(report), str(go_there), "client_standin", behaviour, "--flag", "a b"],
        env={**os.environ, "PYTHONPATH": f"{FOLDER}:{COLLECTIONS}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        pass_fds=(go_there,),
    )
    os.close(go_there)
    return done, json.loads(report.read_text()) if report.exists() else None


def test_the_client_runs_as_main_with_its_own_arguments_and_its_words_come_through(tmp_path: Path) -> None:
    done, _report = run(tmp_path, "good")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("arguments ['good', '--flag', 'a b'] in __main__\n")
    assert "Serving Benchmark Result" in done.stdout and "12/12 [00:01" in done.stderr


def test_an_idle_client_is_not_called_busy(tmp_path: Path) -> None:
    _done, report = run(tmp_path, "good")
    assert 0.5 < report["window_s"] < 1.0
    assert report["ended"] - report["started"] == pytest.approx(report["window_s"], abs=0.05)
    assert report["cpu_share"] < 0.3
    # What blocks the loop before the first request and after the last one is no part of it.
    assert report["loop_lag_ms"]["n"] > 10 and report["loop_lag_ms"]["max"] < 300


def test_a_loop_that_was_blocked_before_the_first_request_is_not_called_late(tmp_path: Path) -> None:
    _done, report = run(tmp_path, "late")
    assert report["loop_lag_ms"]["n"] > 10 and report["loop_lag_ms"]["max"] < 300


def test_a_client_that_computes_all_the_time_is_seen_by_its_share_of_a_core(tmp_path: Path) -> None:
    _done, report = run(tmp_path, "busy")
    idle = run(tmp_path, "good")[1]
    assert report["cpu_s"] > 0.45 > 3 * idle["cpu_s"]
    assert report["cpu_share"] == pytest.approx(report["cpu_s"] / report["window_s"], abs=0.01)
    assert report["cpu_share"] > 3 * idle["cpu_share"]


def test_a_client_whose_loop_is_blocked_is_seen_by_its_lag(tmp_path: Path) -> None:
    _done, report = run(tmp_path, "blocked")
    assert report["loop_lag_ms"]["max"] > 100 and report["loop_lag_ms"]["mean"] > 20


def test_a_client_without_a_progress_bar_is_not_judged(tmp_path: Path) -> None:
    done, report = run(tmp_path, "silent")
    assert done.returncode == 0 and set(report.values()) == {None}


def test_the_clients_exit_status_is_kept_and_so_is_what_was_seen(tmp_path: Path) -> None:
    done, report = run(tmp_path, "failing")
    assert done.returncode == 7 and report["window_s"]


def test_a_client_that_gets_no_word_does_not_run(tmp_path: Path) -> None:
    done, report = run(tmp_path, "good", word=b"")
    assert done.returncode == bench_client.EXIT_NO_GO and done.stdout == "" and report is None
