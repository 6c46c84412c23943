# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a server's log that explain why it died or is not ready."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

READ_BYTES = 4 * 1024 * 1024
LINE_CHARACTERS = 500
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# A sign of what went wrong, the strongest first: an exception's own line says more than a log line about it.
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Interrupt|Fault)\b(?::|$)")
_STRONG = re.compile(
    r"out of memory|Address already in use|EADDRINUSE|\[Errno \d+\]|: error: |Segmentation fault|core dumped|"
    r"Fatal Python error|\bSIG(?:KILL|QUIT|SEGV|ABRT|BUS|ILL)\b|\bpanicked at\b|\bkilled\b|"
    r"No such file or directory|Permission denied|command not found|connection refused|CUDA error|NCCL (?:error|failure)|"
    r"NIXL_ERR|UCX +ERROR|numactl|libnuma",
    re.IGNORECASE,
)
_WEAK = re.compile(r"\b(?:error|exception|fatal|critical|failed|failure|abort(?:ed)?|crash(?:ed)?)\b", re.IGNORECASE)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
# What servers write every day, or around an error, and what is no cause of anything.
_BENIGN = (
    re.compile(r"Invalid HTTP request received"),
    re.compile(r"\b(?:Future|Deprecation|User|Runtime|Resource|Syntax|Import)Warning\b|^\s*warnings\.warn\("),
    re.compile(r"server_args=|ServerArgs\("),
    re.compile(r"\"(?:GET|POST|PUT) /\S* HTTP/\d"),
    re.compile(r"Ignore import error when loading"),
    re.compile(r"(?:error|fail)\w*[_-]?(?:count|rate|total|reqs)\w*\s*[:=]\s*0", re.IGNORECASE),
    re.compile(r"During handling of the above exception|direct cause of the following exception"),
    # argparse prints all its flags before the one line that matters.
    re.compile(r"^\s*\[-|^usage: "),
)


@dataclass(frozen=True)
class LogMark:
    """Where a log stood when a life began: its size in bytes and its inode; no file is (0, 0)."""

    offset: int
    inode: int


def mark(path: str) -> LogMark:
    """Return where the log stands now."""
    try:
        seen = os.stat(path)
    except OSError:
        return LogMark(0, 0)
    return LogMark(seen.st_size, seen.st_ino)


def text_since(path: str, since: LogMark) -> str:
    """Return what was written after `since`, at most the last READ_BYTES, without colours.

    Follows a rotation by renaming (LOG.1, LOG.2, …) and one by truncation (copytruncate).
    """
    data = b""
    for name, start in _pieces(path, since):
        with contextlib.suppress(OSError), open(name, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(start if start <= size else 0, size - READ_BYTES))
            data += stream.read()
    return plain(data[-READ_BYTES:].decode("utf-8", "replace"))


def _pieces(path: str, since: LogMark) -> list[tuple[str, int]]:
    """Return (file, first byte) of what may hold text after the mark, oldest first."""
    if since.inode == 0 or mark(path).inode == since.inode:
        return [(path, since.offset)]
    rotated = [name for name in glob.glob(glob.escape(path) + ".*") if name[len(path) + 1 :].isdigit()]
    rotated.sort(key=lambda name: int(name[len(path) + 1 :]))
    pieces = [(path, 0)]
    for name in rotated:
        if mark(name).inode == since.inode:
            pieces.append((name, since.offset))
            break
        pieces.append((name, 0))
    else:
        return [(path, 0)]  # the marked file is gone: only what is there now can be read
    return pieces[::-1]


def plain(text: str) -> str:
    """Remove colours and let each carriage return begin a line, as progress bars use it."""
    return _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def error_lines(path: str, since: LogMark, limit: int = 12) -> list[str]:
    """Return the lines since `since` that explain a death, oldest first; the last lines when none does."""
    return explaining(text_since(path, since).splitlines(), limit)


def explaining(lines: Sequence[str], limit: int) -> list[str]:
    """Choose from a log's lines those that say what went wrong, at most `limit`, in their order.

    Stronger signs push out weaker ones. Lines that differ in numbers only are one, with their count. The frames of
    a traceback and everyday noise are left out.
    """
    useful = [line.rstrip() for line in _without_frames(lines) if line.strip() and not is_benign(line)]
    found: dict[str, tuple[int, int, int]] = {}
    for position, line in enumerate(useful):
        rank = _rank(line)
        if rank:
            count = found.pop(_kind(line), (0, 0, 0))[2] + 1
            found[_kind(line)] = (rank, position, count)
    if not found:
        return [_short(line) for line in useful[-limit:]]
    kept = sorted(found.values(), key=lambda item: (-item[0], -item[1]))[:limit]
    return [
        _short(useful[position]) + (f" (×{count})" if count > 1 else "")
        for _, position, count in sorted(kept, key=lambda item: item[1])
    ]


def _without_frames(lines: Sequence[str]) -> list[str]:
    """Leave out what is indented below the head of a traceback, and the head."""
    kept = []
    inside = False
    for line in lines:
        if _TRACEBACK.search(line):
            inside = True
        elif not inside or (line.strip() and not line[0].isspace()):
            inside = False
            kept.append(line)
    return kept


def is_benign(line: str) -> bool:
    """Tell whether this line is known to explain nothing."""
    return any(pattern.search(line) for pattern in _BENIGN)


def _rank(line: str) -> int:
    bare = _message(line)
    if _EXCEPTION.search(bare):
        return 3
    if _STRONG.search(line):
        return 2
    return 1 if _WEAK.search(line) else 0


def _message(line: str) -> str:
    """Return a log line without its time stamp and rank marks."""
    return re.sub(r"^\s*(?:\[[^\]]*\]\s*)*(?:\d{4}-\d\d-\d\d[ T]\S+\s*)?", "", line).strip()


def _kind(line: str) -> str:
    """Return what repeats of a message have in common: all but time, numbers and identifiers."""
    return re.sub(r"[\w-]*\d[\w-]*", "#", _message(line))


def _short(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 1] + "…"
