# SPDX-License-Identifier: Apache-2.0
"""manifest.json: every file of a run folder with its size and sha256, and a hash over all of that.

The text has one form alone (`text_of`), so that a changed byte of the manifest itself is found, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 1
# What pdlab makes from the other files of a run, or of a leg.
PAGES = ("report.html",)
_CHUNK = 1024 * 1024
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class ManifestError(ValueError):
    """A text is no manifest, or one that was changed. The message says in what."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Model):
    """One file. A symbolic link is kept by its target and not followed; then `bytes` and `sha256` are the target's text.

    What is neither (a socket, a pipe) has no content: 0 bytes and an empty hash.
    """

    path: str = Field(description="Relative to the run folder. What is not printable ASCII is percent-encoded, % too.")
    bytes: int
    sha256: str
    link: str | None = Field(default=None, description="The target, for a symbolic link; encoded as the path is.")


class Derived(_Model):
    """A page that can be made again from the other files."""

    path: str
    made_by: dict[str, str] = Field(description="pdlab's version and source hash, and the libraries behind the page.")


class Manifest(_Model):
    """manifest.json of a run folder."""

    schema_version: int = SCHEMA_VERSION
    run: str
    files: list[FileEntry]
    derived: list[Derived] = Field(default_factory=list, description="Which of the files pdlab makes from the others.")
    run_digest: str = Field(
        default="",
        description="sha256 over the files that pdlab does not make from others: stays as long as the run does.",
    )
    digest: str = Field(default="", description="sha256 over this document's other fields.")


def manifest_of(root: Path, run: str, skip: Iterable[str] = ()) -> Manifest:
    """Look at every file below `root`, but for those in `skip` (relative). Raises OSError when one cannot be read."""
    return signed(Manifest(run=run, files=entries(root, skip)))


def run_digest_of(files: Iterable[FileEntry]) -> str:
    """sha256 over the files that are no PAGES: a line with hash and path for each."""
    lines = (
        f"{one.sha256}  {one.path}{'' if one.link is None else ' -> ' + one.link}\n"
        for one in files
        if one.path.rpartition("/")[2] not in PAGES
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def entries(root: Path, skip: Iterable[str] = ()) -> list[FileEntry]:
    """Every file below `root`, sorted by path. Raises OSError when one cannot be read."""
    left_out = set(skip)
    found = []
    for folder, names, files in os.walk(root, onerror=_raise):
        paths = [Path(folder, name) for name in names]
        for path in [*(Path(folder, name) for name in files), *(path for path in paths if path.is_symlink())]:
            relative = encoded(path.relative_to(root).as_posix())
            if relative not in left_out:
                found.append(entry(path, relative))
    return sorted(found, key=lambda one: one.path)


def entry(path: Path, relative: str) -> FileEntry:
    """One file as the manifest names it. Raises OSError."""
    kind = path.lstat().st_mode
    if stat.S_ISLNK(kind):
        target = str(path.readlink())
        raw = os.fsencode(target)
        return FileEntry(path=relative, bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest(), link=encoded(target))
    if not stat.S_ISREG(kind):
        return FileEntry(path=relative, bytes=0, sha256="")
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return FileEntry(path=relative, bytes=size, sha256=digest.hexdigest())


def encoded(path: str) -> str:
    """A path as printable ASCII, which a terminal and JSON take, whatever bytes it is made of."""
    return quote(os.fsencode(path), safe=_PRINTABLE)


def with_file(manifest: Manifest, new: FileEntry, made_by: dict[str, str]) -> Manifest:
    """The manifest after pdlab has made the page `new` (again). Nothing else in it changes."""
    files = sorted([*(one for one in manifest.files if one.path != new.path), new], key=lambda one: one.path)
    derived = [one for one in manifest.derived if one.path != new.path] + [Derived(path=new.path, made_by=made_by)]
    changed = {"files": files, "derived": sorted(derived, key=lambda one: one.path)}
    return signed(manifest.model_copy(update=changed))


def signed(manifest: Manifest) -> Manifest:
    """The manifest with its digests."""
    named = manifest.model_copy(update={"run_digest": run_digest_of(manifest.files)})
    return named.model_copy(update={"digest": digest_of(named)})


def digest_of(manifest: Manifest) -> str:
    """sha256 over the document without its digest."""
    return hashlib.sha256(_json(manifest.model_copy(update={"digest": ""})).encode()).hexdigest()


def text_of(manifest: Manifest) -> str:
    """The one text of a manifest."""
    return _json(manifest)


def parse(text: str) -> Manifest:
    """The manifest that `text` is. Raises ManifestError when a byte of it was changed."""
    try:
        found = Manifest.model_validate_json(text)
    except ValidationError as error:
        where = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the document'}: {one['msg']}" for one in error.errors()[:3]
        )
        raise ManifestError(f"is no manifest ({where})") from error
    if found.schema_version != SCHEMA_VERSION:
        raise ManifestError(f"has schema_version {found.schema_version}; this pdlab reads {SCHEMA_VERSION}")
    if found.run_digest != run_digest_of(found.files):
        raise ManifestError("was changed: the run's digest is not that of its files")
    if found.digest != digest_of(found):
        raise ManifestError("was changed: its digest is not that of its content")
    if text_of(found) != text:
        raise ManifestError("was changed: it is not written as pdlab writes it")
    return found


def _json(manifest: Manifest) -> str:
    """One line a file, so that people and `diff` can read it."""
    document = manifest.model_dump(mode="json")
    rows = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            items = (json.dumps({key: item for key, item in one.items() if item is not None}) for one in value)
            rows.append(f' "{name}": [\n  ' + ",\n  ".join(items) + "\n ]")
        else:
            rows.append(f' "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _raise(error: OSError) -> None:
    raise error
