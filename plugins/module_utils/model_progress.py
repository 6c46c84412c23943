# SPDX-License-Identifier: GPL-3.0-or-later
"""One line that says how far long work on a model's files is. Pure.

pdlab-progress: model box1  fetching 12.3 of 168.0 GiB  3/46 files  412 MiB/s  6 min left
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_progress import PROGRESS_PREFIX

GIB = 2.0**30
MIB = 2.0**20


def progress_line(host: str, seen: Mapping[str, Any], elapsed_s: float) -> str:
    """`seen` is {"phase", "bytes", "bytes_done", "files", "files_done", "bytes_at_start"}; unknown parts may be missing."""
    words = [f"{PROGRESS_PREFIX}model {host}", str(seen.get("phase") or "starting")]
    total, done = seen.get("bytes") or 0, seen.get("bytes_done") or 0
    if total:
        unit, name = (GIB, "GiB") if total >= GIB else (MIB, "MiB")
        words[-1] += f" {done / unit:.1f} of {total / unit:.1f} {name}"
        words.append(f"{seen.get('files_done') or 0}/{seen.get('files') or 0} files")
        gained = done - (seen.get("bytes_at_start") or 0)
        if gained > 0 and elapsed_s >= 1:
            rate = gained / elapsed_s
            words += [f"{rate / MIB:.0f} MiB/s", left(max(0, total - done) / rate)]
    return "  ".join(words)


def left(seconds: float) -> str:
    """A duration as one would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s left"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min left"
    return f"{seconds / 3600:.1f} h left"
