# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a Python environment on a target: what is installed there, and how its files are changed.

Files of an environment may be hard links into uv's cache, and into the environment beside which this one was built.
So nothing here ever writes into a file: a new one is made beside it and renamed over it.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import io
import os
import shutil
from collections.abc import Iterable, Mapping

from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import normalized
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import remove_file, replace_bytes

DIST_INFO = ".dist-info"


def site_packages(environment: str) -> list[str]:
    """The folders of an environment that hold its distributions."""
    return sorted(glob.glob(os.path.join(glob.escape(environment), "lib", "python*", "site-packages")))


def installed(folders: Iterable[str]) -> dict[str, str]:
    """Name and version of every distribution below `folders`, from the names of its dist-info directories.

    Of two with one name the one in the earlier folder counts, as for Python's own import.
    """
    found = {}
    for name, path in dist_info_folders(folders).items():
        found[name] = os.path.basename(path)[: -len(DIST_INFO)].rpartition("-")[2]
    return dict(sorted(found.items()))


def dist_info_folders(folders: Iterable[str]) -> dict[str, str]:
    """The dist-info directory of every distribution below `folders`, by name."""
    found: dict[str, str] = {}
    for folder in folders:
        for entry in os.listdir(folder) if os.path.isdir(folder) else []:
            if entry.endswith(DIST_INFO):
                name = entry[: -len(DIST_INFO)].rpartition("-")[0]
                found.setdefault(name.lower().replace("_", "-"), os.path.join(folder, entry))
    return found


def copy_of_links(source: str, target: str) -> None:
    """A second tree of the same files: hard links, no content is copied. Symbolic links stay what they are."""
    shutil.copytree(source, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> str:
    os.link(source, target, follow_symlinks=False)
    return target


def read_below(folder: str, path: str) -> bytes | None:
    """The content of a file below `folder`; None when there is none. Raises OSError for one that leads out of it."""
    full = os.path.join(folder, path)
    inside = os.path.realpath(folder)
    if os.path.commonpath([inside, os.path.realpath(full)]) != inside:
        raise OSError(f"{full} leads out of {folder}")
    try:
        with open(full, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def change(folder: str, contents: Mapping[str, bytes | None], distributions: Mapping[str, str]) -> None:
    """Make files below a site-packages folder what `contents` says; None removes one.

    `distributions` says to which distribution each path belongs: its RECORD is kept right. Compiled files of what
    changed are removed.
    """
    for path, content in contents.items():
        full = os.path.join(folder, path)
        if content is None:
            remove_file(full)
        else:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            _replace(full, content)
        stem = os.path.splitext(os.path.basename(path))[0]
        cache = os.path.join(os.path.dirname(full), "__pycache__")
        for compiled in glob.glob(os.path.join(glob.escape(cache), glob.escape(stem) + ".*.pyc")):
            os.unlink(compiled)
    for name in sorted(set(distributions.values())):
        mine = {path: content for path, content in contents.items() if distributions.get(path) == name}
        record = _record_of(folder, name)
        if record:
            with open(record, encoding="utf-8", newline="") as stream:
                text = stream.read()
            _replace(record, record_text(text, mine).encode())


def record_text(text: str, contents: Mapping[str, bytes | None]) -> str:
    """A RECORD with the lines of some files made what their contents are (packaging.python.org, "Recording installed
    projects"); the other lines stay as they are, in their order."""
    rows = list(csv.reader(io.StringIO(text)))
    known = {row[0] for row in rows if row}
    lines = {path: _record_row(path, content) for path, content in contents.items() if content is not None}
    kept = [lines.get(row[0], row) for row in rows if row and not (row[0] in contents and row[0] not in lines)]
    kept += [row for path, row in lines.items() if path not in known]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(kept)
    return out.getvalue()


def _record_row(path: str, content: bytes) -> list[str]:
    sum_ = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return [path, f"sha256={sum_}", str(len(content))]


def _record_of(folder: str, name: str) -> str | None:
    for entry in os.listdir(folder):
        if entry.endswith(DIST_INFO) and normalized(entry[: -len(DIST_INFO)].rpartition("-")[0]) == normalized(name):
            path = os.path.join(folder, entry, "RECORD")
            return path if os.path.exists(path) else None
    return None


def _replace(path: str, content: bytes) -> None:
    """Put a new file in a file's place, with the old one's mode."""
    mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    replace_bytes(path, content, mode)
