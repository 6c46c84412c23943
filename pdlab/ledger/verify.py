# SPDX-License-Identifier: Apache-2.0
"""`pdlab verify-run`: a run folder against its manifest, and its report against what can be made of the folder again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pdlab.file_errors import explain
from pdlab.ledger import sealing
from pdlab.ledger.made_by import differences, made_by
from pdlab.ledger.manifest import FileEntry, Manifest, ManifestError, entries
from pdlab.store import RunFolder, StoreError

SCHEMA_VERSION = 1

What = Literal["changed", "missing", "added"]
Rebuilt = Literal["same", "differs", "made by another pdlab", "not looked at", "no report"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(_Model):
    """One file that is not as the manifest says. Null where there is no such file."""

    path: str
    what: What
    words: str
    wanted_bytes: int | None = None
    wanted_sha256: str | None = None
    seen_bytes: int | None = None
    seen_sha256: str | None = None


class RunVerification(_Model):
    """What `pdlab verify-run --json` prints."""

    schema_version: int = SCHEMA_VERSION
    run: str
    ok: bool = Field(description="Every file is as it was when the run ended, and the report follows from them.")
    digest: str | None = Field(
        description="One hash for all that was measured, which a report that is made again does not change. Null when the "
        "manifest is missing or changed."
    )
    files: int = Field(description="Files that were held against the manifest.")
    bytes: int
    faults: list[Fault]
    report: Rebuilt = Field(description="The report that pdlab makes of the folder now, against the one in it.")
    report_words: str


def verify(folder: RunFolder, page: Callable[[RunFolder], str]) -> RunVerification:
    """Look at every byte of a run folder. `page` makes the report from a folder without writing it.

    Raises StoreError when a file cannot be read, or the run has no manifest yet.
    """
    path = folder.manifest_path
    root = RunFolder(path.parent)
    try:
        manifest = sealing.read(path)
        if manifest is None and not root.over():
            raise StoreError(f"{root.path} has no {path.name}: the run goes on, and gets one at its end")
        seen = entries(root.path, skip=(path.name,))
    except ManifestError as error:
        return _without_manifest(root, Fault(path=path.name, what="changed", words=f"{path.name} {error}"))
    except OSError as error:
        raise StoreError(explain("read", root.path, error)) from error
    if manifest is None:
        words = f"{path.name} is gone; there was one when the run ended"
        if not root.had_manifest:
            words = f"{path.name} was never written: `pdlab report` writes it, and vouches for nothing before that"
        return _without_manifest(root, Fault(path=path.name, what="missing", words=words))
    faults = compare(manifest.files, seen)
    state, words = _rebuilt(root, manifest, faults, page)
    if state == "differs":
        faults = [*faults, Fault(path=root.report_path.name, what="changed", words=words)]
    return RunVerification(
        run=manifest.run,
        ok=not faults,
        digest=manifest.run_digest,
        files=len(seen),
        bytes=sum(one.bytes for one in seen),
        faults=faults,
        report=state,
        report_words=words,
    )


def compare(wanted: list[FileEntry], seen: list[FileEntry]) -> list[Fault]:
    """Every file that differs between the manifest and the folder, by path. Pure."""
    then, now = {one.path: one for one in wanted}, {one.path: one for one in seen}
    faults = []
    for path in sorted(then.keys() | now.keys()):
        before, after = then.get(path), now.get(path)
        if before == after:
            continue
        what: What = "added" if before is None else "missing" if after is None else "changed"
        faults.append(
            Fault(
                path=path,
                what=what,
                words=_words(path, before, after),
                wanted_bytes=before.bytes if before else None,
                wanted_sha256=before.sha256 if before else None,
                seen_bytes=after.bytes if after else None,
                seen_sha256=after.sha256 if after else None,
            )
        )
    return faults


def lines(found: RunVerification) -> list[str]:
    """The verification as text: one line a fault, then one for the report, then one for the whole."""
    shown = [f"{fault.what:<8}{fault.words}" for fault in found.faults]
    shown.append(f"report  {found.report}: {found.report_words}")
    if found.ok:
        shown.append(f"run {found.run} is whole: {found.files} files, {found.bytes} bytes, digest {found.digest}")
    elif found.digest is None:
        shown.append(f"run {found.run}: nobody can tell whether it is what it was when it ended")
    else:
        count = len(found.faults)
        shown.append(f"run {found.run} is NOT what it was when it ended: {count} fault{'s' * (count > 1)}")
    return shown


def _words(path: str, before: FileEntry | None, after: FileEntry | None) -> str:
    if before is None:
        return f"{path} is not in the manifest"
    if after is None:
        return f"{path} is gone ({before.bytes} bytes, sha256 {before.sha256})"
    if before.link != after.link:
        return f"{path} was {_kind(before)} and is {_kind(after)}"
    if before.bytes != after.bytes:
        return f"{path} has {after.bytes} bytes, had {before.bytes}"
    return f"{path} has other bytes: sha256 {after.sha256}, was {before.sha256}"


def _kind(one: FileEntry) -> str:
    return "a file" if one.link is None else f"a link to {one.link}"


def _without_manifest(root: RunFolder, fault: Fault) -> RunVerification:
    return RunVerification(
        run=root.run_name,
        ok=False,
        digest=None,
        files=0,
        bytes=0,
        faults=[fault],
        report="not looked at",
        report_words="there is no manifest to hold it against",
    )


def _rebuilt(
    root: RunFolder, manifest: Manifest, faults: list[Fault], page: Callable[[RunFolder], str]
) -> tuple[Rebuilt, str]:
    name = root.report_path.name
    made = next((one.made_by for one in manifest.derived if one.path == name), None)
    wanted = next((one.sha256 for one in manifest.files if one.path == name), None)
    if made is None or wanted is None:
        return "no report", f"no {name} was made since the run ended; `pdlab report` makes one"
    if faults:
        return "not looked at", "files differ from the manifest, so a report of them would differ, too"
    if hashlib.sha256(page(root).encode("utf-8")).hexdigest() == wanted:
        return "same", f"made again from the folder, {name} is the same byte for byte"
    if other := differences(made, made_by()):
        return (
            "made by another pdlab",
            f"{name} is as it was; it cannot be held against this one's ({'; '.join(other)})",
        )
    return "differs", f"{name} is not what this same pdlab makes of the folder: it, or the manifest too, was replaced"
