# SPDX-License-Identifier: Apache-2.0
"""Writing and reading manifest.json. `path` is always the manifest's own; the folder that it covers is the one it is in."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_text

from pdlab.ledger.made_by import made_by
from pdlab.ledger.manifest import (
    FileEntry,
    Manifest,
    ManifestError,
    encoded,
    entry,
    manifest_of,
    parse,
    text_of,
    with_file,
)


def seal(path: Path, run: str) -> None:
    """Write the manifest of everything in its folder. Raises OSError.

    A report that is there was made while the run went on, and will be made anew: no page counts as derived yet.
    """
    write_text(str(path), text_of(manifest_of(path.parent, run, skip=(path.name,))))


def enter(path: Path, page: Path) -> None:
    """Put a page that was made (again) into the manifest, if there is one. The other entries stay as they are.

    So making a page hides no change of another file. A damaged manifest is left alone: verify-run names it.
    Raises OSError.
    """
    try:
        before = read(path)
    except ManifestError:
        return
    if before is not None and (after := with_file(before, _entry(path, page), made_by())) != before:
        write_text(str(path), text_of(after))


def read(path: Path) -> Manifest | None:
    """The manifest; None when there is none. Raises ManifestError when it was changed, OSError."""
    try:
        return parse(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ManifestError("was changed: it is not UTF-8") from error


def _entry(path: Path, page: Path) -> FileEntry:
    return entry(page, encoded(page.relative_to(path.parent).as_posix()))
