# SPDX-License-Identifier: GPL-3.0-or-later
"""Text files: whole or not at all, and, on a target, never rewritten when they already say the same."""

from __future__ import annotations

import contextlib
import os
import secrets


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


def replace_bytes(path: str, content: bytes, mode: int | None) -> None:
    """Put a new file in a file's place, made beside it and renamed: what shares the old one's content keeps it.

    `mode` None: what the umask leaves of 0666, as a file that its user makes by hand. Raises OSError when its folder
    cannot be written.
    """
    temporary = os.path.join(os.path.dirname(path), f".pdlab-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
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
