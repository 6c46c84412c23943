# SPDX-License-Identifier: GPL-3.0-or-later
"""Unified diffs, applied without any tolerance. Pure: no I/O.

Python's standard library makes such diffs (difflib) and cannot apply them, and a target need not have patch or git.
Strict means: every line that a hunk names stands exactly where the hunk says, or nothing is applied. Text is bytes
here, lines end with a line feed and nothing else, so that a carriage return or a form feed is only a character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

NOTHING = "/dev/null"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\"
# What git writes and this cannot do.
_REFUSED = ("rename from ", "rename to ", "copy from ", "copy to ", "GIT binary patch", "Binary files ", "new mode ")


class DiffError(ValueError):
    """A text that is no such diff, or a file that it does not fit; the message says where."""


@dataclass(frozen=True)
class Hunk:
    """Lines that stand from line `old_start` on (from 1; 0 in an empty file), and those that shall stand there."""

    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


@dataclass(frozen=True)
class FileDiff:
    """The hunks of one file. `old` or `new` is None when there is no file before or after."""

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...]

    @property
    def path(self) -> str:
        """The file's path; both sides name the same one."""
        return self.new if self.new is not None else str(self.old)


def parse(text: str) -> list[FileDiff]:
    """The files of a unified diff, as difflib, diff -u and git write it.

    A leading `a/` and `b/` is taken off. Lines outside of hunks and headers are somebody's words and are skipped.
    Raises DiffError.
    """
    lines = text.split("\n")
    found: list[FileDiff] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(_REFUSED):
            raise DiffError(f"line {at + 1}: {line.split('  ')[0].strip()!r} is more than a change of text")
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            paths = _paths(line, lines[at + 1], at)
            at += 2
            hunks = []
            while at < len(lines) and lines[at].startswith("@@ "):
                hunk, at = _hunk(lines, at)
                hunks.append(hunk)
            if not hunks:
                raise DiffError(f"line {at + 1}: {paths[1] or paths[0]} has no hunk")
            found.append(FileDiff(*paths, tuple(hunks)))
        elif line.startswith("@@ "):
            raise DiffError(f"line {at + 1}: a hunk without the file that it belongs to")
        else:
            at += 1
    if not found:
        raise DiffError("it changes no file: there are no `---` and `+++` lines")
    return found


def reverse(diff: FileDiff) -> FileDiff:
    """The diff that takes back what this one does."""
    hunks = tuple(Hunk(hunk.new_start, hunk.old_start, hunk.new, hunk.old) for hunk in diff.hunks)
    return replace(diff, old=diff.new, new=diff.old, hunks=hunks)


def apply(content: bytes | None, diff: FileDiff) -> bytes | None:
    """The file's content after the diff; None stands for no file. Raises DiffError, and then nothing was changed."""
    if (content is None) != (diff.old is None):
        there = "is not there" if content is None else "is there already"
        raise DiffError(f"{diff.path} {there}")
    lines = _split(content or b"")
    made: list[bytes] = []
    taken = 0
    for number, hunk in enumerate(diff.hunks, 1):
        # A hunk that names no old line stands behind the line that it gives; all others begin at theirs.
        begin = hunk.old_start - 1 if hunk.old else hunk.old_start
        if not taken <= begin <= len(lines) or tuple(lines[begin : begin + len(hunk.old)]) != hunk.old:
            raise DiffError(f"{diff.path}: hunk {number} does not fit at line {hunk.old_start}")
        made += [*lines[taken:begin], *hunk.new]
        taken = begin + len(hunk.old)
    made += lines[taken:]
    if diff.new is None:
        if made:
            raise DiffError(f"{diff.path}: would be removed, and the diff does not name all of its lines")
        return None
    if any(not line.endswith(b"\n") for line in made[:-1]):
        raise DiffError(f"{diff.path}: a line without its end would stand in the middle of the file")
    return b"".join(made)


def _split(content: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _paths(old_line: str, new_line: str, at: int) -> tuple[str | None, str | None]:
    """Both sides' paths without the time that diff puts behind a tab; None for /dev/null."""
    old, new = (line[4:].split("\t")[0].rstrip("\r") for line in (old_line, new_line))
    if (old == NOTHING or old.startswith("a/")) and (new == NOTHING or new.startswith("b/")):
        old, new = (path if path == NOTHING else path[2:] for path in (old, new))
    if NOTHING not in (old, new) and old != new:
        raise DiffError(f"line {at + 1}: {old} would become {new}; write both sides with the same path")
    if old == new == NOTHING:
        raise DiffError(f"line {at + 1}: both sides are {NOTHING}")
    return (None if old == NOTHING else old), (None if new == NOTHING else new)


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    """The hunk that begins at line index `at`, and the index behind it."""
    match = _HUNK.match(lines[at])
    if match is None:
        raise DiffError(f"line {at + 1}: {lines[at]!r} is no head of a hunk")
    first = at + 1
    old_count, new_count = (int(match[group]) if match[group] is not None else 1 for group in (2, 4))
    old: list[bytes] = []
    new: list[bytes] = []
    at += 1
    while len(old) < old_count or len(new) < new_count:
        if at >= len(lines) or lines[at][:1] not in ("-", "+", " "):
            raise DiffError(
                f"line {at + 1}: the hunk of line {first} ends before its {old_count} and {new_count} lines"
            )
        side, text = lines[at][0], lines[at][1:].encode() + b"\n"
        at += 1
        if at < len(lines) and lines[at].startswith(_NO_NEWLINE):
            text = text[:-1]
            at += 1
        old += [text] if side in "- " else []
        new += [text] if side in "+ " else []
    if len(old) != old_count or len(new) != new_count:
        raise DiffError(f"line {first}: the hunk has {len(old)} and {len(new)} lines, not {old_count} and {new_count}")
    return Hunk(int(match[1]), int(match[3]), tuple(old), tuple(new)), at
