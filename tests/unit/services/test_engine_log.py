# SPDX-License-Identifier: Apache-2.0
"""The logs under data/logs were written by sglang 0.5.23 and sglang-router 0.3.2, shortened, with other paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_log import (
    LogMark,
    error_lines,
    explaining,
    is_benign,
    mark,
    plain,
    text_since,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.log_rotation import rotate

LOGS = Path(__file__).parents[1] / "data" / "logs"
START = LogMark(0, 0)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "wrong-attention-backend.log",
            [
                "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. "
                "Please use `--attention-backend flashinfer`.",
                "[2026-11-29 18:13:24] Received sigquit from a child process. It usually means the child failed.",
            ],
        ),
        (
            "port-in-use.log",
            [
                "[2026-11-29 18:11:07] ERROR:    [Errno 98] error while attempting to bind on address "
                "('127.0.0.1', 45222): address already in use",
                "[2026-11-29 18:11:33] Subprocess detokenizer (pid=2762) crashed with exit code -15. "
                "Triggering SIGQUIT for cleanup...",
                "[2026-11-29 18:11:33] Received sigquit from a child process. It usually means the child failed.",
            ],
        ),
        ("wrong-flag-value.log", ["sglang serve: error: argument --port: invalid int value: 'x'"]),
        ("router-unknown-flag.log", ["launch_router.py: error: unrecognized arguments: --bogus 1"]),
        (
            "model-missing.log",
            [
                "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
                "'namespace/repo_name': '/srv/models/none'. Use `repo_type` argument if needed. (×2)",
                "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/srv/models/none'. "
                "Use `repo_type` argument if needed. (×2)",
            ],
        ),
    ],
)
def test_a_death_at_start_is_explained_by_the_engines_own_words(name: str, wanted: list[str]) -> None:
    assert error_lines(str(LOGS / name), START, 5) == wanted


def test_many_like_failures_are_one_line_with_their_count() -> None:
    lines = error_lines(str(LOGS / "decode-lost-prefill.log"), START, 5)
    assert len(lines) == 3
    assert "Lost connection with prefill instance" in lines[-1]
    assert lines[-1].endswith("(×3)")


def test_a_healthy_log_gives_its_last_lines_and_no_request_lines() -> None:
    lines = error_lines(str(LOGS / "prefill-ready.log"), START, 3)
    assert lines[-1].endswith("The server is fired up and ready to roll!")
    assert not any("HTTP/1.1" in line for line in lines)


OUT_OF_MEMORY = """\
[2026-11-29 17:50:29 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/srv/pdlab/engine/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 3120, in run
    raise RuntimeError("failed") from error
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 95.00 GiB

[2026-11-29 17:50:30] Received sigquit from a child process. It usually means the child failed.
"""


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (OUT_OF_MEMORY, "torch.OutOfMemoryError: CUDA out of memory."),
        (
            "x\n[2026-11-29 17:50:30] ERROR:    [Errno 98] error while attempting to bind on address",
            "[2026-11-29 17:50:30] ERROR:",
        ),
        ("OSError: [Errno 98] Address already in use", "OSError: [Errno 98]"),
        ("/usr/bin/env: 'numactl': No such file or directory", "/usr/bin/env: 'numactl'"),
        ("thread 'main' panicked at src/server.rs:12: bind failed", "thread 'main' panicked"),
        ("/bin/sh: line 1: 411 Killed   python", "/bin/sh: line 1: 411 Killed"),
        ("usage: x [-h]\n  [--error-rate N]\nx: error: unrecognized arguments: --y", "x: error:"),
    ],
)
def test_each_kind_of_death_is_recognized(text: str, first: str) -> None:
    assert explaining(text.splitlines(), 3)[0].startswith(first)


def test_frames_and_source_lines_of_a_traceback_are_left_out() -> None:
    assert not any("File" in line or "raise" in line for line in explaining(OUT_OF_MEMORY.splitlines(), 10))


def test_strong_signs_push_out_weak_ones_and_order_is_kept() -> None:
    lines = [f"{word} failed" for word in ("a", "b", "c")] + ["ValueError: the cause", "d failed", "KeyError: 'x'"]
    assert explaining(lines, 3) == ["ValueError: the cause", "d failed", "KeyError: 'x'"]


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 17:50:34] WARNING:  Invalid HTTP request received.",
        'INFO: 127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
        "x.py:1: FutureWarning: error handling will change",
        "server_args={'log_level_http': 'error'}",
        "num_transfer_failed_reqs_total: 0",
    ],
)
def test_everyday_lines_explain_nothing(line: str) -> None:
    assert is_benign(line)
    assert explaining([line, "a plain line"], 5) == ["a plain line"]


def test_colours_and_progress_bars_are_made_plain() -> None:
    assert plain("\x1b[2m2026\x1b[0m \x1b[31mERROR\x1b[0m x\r\n 0%\r100%") == "2026 ERROR x\n 0%\n100%"


def test_only_what_this_life_wrote_is_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("ValueError: of an earlier life\n")
    since = mark(str(log))
    with log.open("a") as stream:
        stream.write("KeyError: of this life\n")
    assert error_lines(str(log), since) == ["KeyError: of this life"]


def test_a_rotation_by_renaming_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("before\n")
    since = mark(str(log))
    with log.open("a") as stream:
        stream.write("first\n")
    log.rename(tmp_path / "a.log.2")
    (tmp_path / "a.log.1").write_text("second\n")
    log.write_text("third\n")
    assert text_since(str(log), since) == "first\nsecond\nthird\n"


def test_a_truncated_log_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("a long line of before\n")
    since = mark(str(log))
    log.write_text("new\n")
    assert text_since(str(log), since) == "new\n"


def test_a_log_whose_marked_file_is_gone_is_read_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("new\n")
    assert text_since(str(log), LogMark(100, mark(str(log)).inode + 1)) == "new\n"


def test_no_log_gives_no_line(tmp_path: Path) -> None:
    assert error_lines(str(tmp_path / "none"), START) == []


def test_a_huge_log_costs_a_bounded_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"ValueError: early\n" + b"x" * 6_000_000 + b"\nKeyError: late\n")
    assert error_lines(str(log), START) == ["KeyError: late"]


def test_a_large_log_is_rotated_as_supervisor_does_and_a_small_one_is_left(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert rotate(str(log), 3, 2) is False
    for text in ("one", "two", "three"):
        log.write_text(text)
        assert rotate(str(log), 3, 2) is True
    log.write_text("4")
    assert rotate(str(log), 3, 2) is False
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.log": "4", "a.log.1": "three", "a.log.2": "two",
    }  # fmt: skip
