# SPDX-License-Identifier: GPL-3.0-or-later
"""Text files of a target: whole or not at all, and never rewritten when they already say the same."""

from __future__ import annotations

import contextlib
import os
import tempfile


def read_text(path: str) -> str | None:
    """Return a file's text, or None when there is no such file. Raises OSError when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def replace_text(path: str, text: str, mode: int = 0o644) -> bool:
    """Make the file hold `text`, made beside it and renamed; return whether that changed it.

    Raises OSError when its folder cannot be written.
    """
    if read_text(path) == text:
        return False
    replace_bytes(path, text.encode(), mode)
    return True


def replace_bytes(path: str, content: bytes, mode: int) -> None:
    """Put a new file in a file's place, made beside it and renamed: what shares the old one's content keeps it.

    Raises OSError when its folder cannot be written.
    """
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".pdlab-")
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def remove_file(path: str) -> bool:
    """Remove a file; return whether there was one. Raises OSError when it cannot be removed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
