# SPDX-License-Identifier: Apache-2.0
"""Unified diffs, held against those that difflib, diff and git make."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.unified_diff import DiffError, apply, parse, reverse
from hypothesis import given
from hypothesis import strategies as st

# Few different lines, so that diffs have something in common; characters that a careless reader would split at.
LINES = st.sampled_from(["", "a", "b", "c", " a", "-a", "+a", "@@ -1 +1 @@", "--- x", "\x0c", "\r", "\u2028", "é"])
TEXTS = st.tuples(st.lists(LINES, max_size=12), st.booleans())


def text_of(drawn: tuple[list[str], bool]) -> str:
    lines, ended = drawn
    return "\n".join(lines) + ("\n" if ended and lines else "")


def split(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def difflib_diff(old: str, new: str, context: int) -> str:
    """What difflib makes, with the mark that diff puts behind a last line without its end."""
    made = difflib.unified_diff(split(old), split(new), "a/f.py", "b/f.py", n=context)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in made)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_what_difflib_makes_is_applied_and_taken_back_exactly(
    first: tuple[list[str], bool], second: tuple[list[str], bool], context: int
) -> None:
    old, new = text_of(first), text_of(second)
    if old == new:
        return
    (diff,) = parse(difflib_diff(old, new, context))
    assert diff.path == "f.py"
    assert apply(old.encode(), diff) == new.encode()
    assert apply(new.encode(), reverse(diff)) == old.encode()


@given(TEXTS, TEXTS, st.integers(0, 3), st.lists(LINES, max_size=12))
def test_a_file_that_it_was_not_made_for_is_changed_as_said_or_refused(
    first: tuple[list[str], bool], second: tuple[list[str], bool], context: int, other: list[str]
) -> None:
    old, new = text_of(first), text_of(second)
    if old == new:
        return
    (diff,) = parse(difflib_diff(old, new, context))
    try:
        made = apply("\n".join(other).encode(), diff)
    except DiffError:
        return
    # It fitted by its own lines; then taking it back must give what was there.
    assert apply(made, reverse(diff)) == "\n".join(other).encode()


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_what_git_makes_for_changed_new_and_removed_files(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        argv = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    (tmp_path / "kept.py").write_text("".join(f"{n}\n" for n in range(40)))
    (tmp_path / "gone.py").write_text("x = 1\n")
    git("add", ".")
    git("commit", "-qm", "x")
    before = (tmp_path / "kept.py").read_bytes()
    (tmp_path / "kept.py").write_text("".join(f"{n}\n" for n in range(40) if n != 3) + "end")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("y = 2\n")
    git("add", ".")
    diffs = {diff.path: diff for diff in parse(git("diff", "--cached"))}
    assert apply(before, diffs["kept.py"]) == (tmp_path / "kept.py").read_bytes()
    assert apply(b"x = 1\n", diffs["gone.py"]) is None
    assert apply(None, diffs["new.py"]) == b"y = 2\n"
    assert apply(b"y = 2\n", reverse(diffs["new.py"])) is None
    with pytest.raises(DiffError, match="is not there"):
        apply(None, diffs["kept.py"])
    with pytest.raises(DiffError, match="is there already"):
        apply(b"", diffs["new.py"])


def test_one_wrong_line_refuses_the_whole_file() -> None:
    (diff,) = parse("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
    assert apply(b"a\nb\nc\n", diff) == b"a\nB\nc\n"
    for content in (b"a\nb\nx\n", b"\na\nb\nc\n", b"a\nb \nc\n", b"a\nb\n", b""):
        with pytest.raises(DiffError, match="hunk 1 does not fit at line 1"):
            apply(content, diff)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it changes no file"),
        ("@@ -1 +1 @@\n-a\n+b\n", "a hunk without the file"),
        ("--- a/f\n+++ b/f\n", "has no hunk"),
        ("--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "with the same path"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n", "ends before"),
        ("--- a/f\n+++ b/f\n@@ one @@\n-a\n+b\n", "no head of a hunk"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "both sides are"),
        ("diff --git a/f b/g\nrename from f\nrename to g\n", "more than a change of text"),
    ],
)
def test_what_is_no_unified_diff_is_refused_with_the_line(text: str, said: str) -> None:
    with pytest.raises(DiffError, match=said):
        parse(text)
