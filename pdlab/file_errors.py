# SPDX-License-Identifier: Apache-2.0
"""What the operating system refused, as one line that says what to do."""

from __future__ import annotations

import errno
from pathlib import Path

_CURES = {
    errno.EACCES: "make it writable for this user, or name another directory",
    errno.EPERM: "make it writable for this user, or name another directory",
    errno.EROFS: "the file system is mounted read-only: name a directory on another one, or mount it read-write",
    errno.ENOSPC: "the file system is full: free space there (`df -h` shows it), or name another directory",
    errno.EDQUOT: "this user's disk quota is used up: free space, or name another directory",
    errno.ENOTDIR: "a file is in the way: move it, or name another directory",
    errno.EEXIST: "a file is in the way: move it, or name another directory",
}


def explain(action: str, path: Path, error: OSError) -> str:
    """One line: what could not be done, where, why, and what to do."""
    cure = _CURES.get(error.errno or 0, "check the path and its permissions, or name another directory")
    return f"cannot {action} {path.absolute()}: {error.strerror or error}; {cure}"
