# SPDX-License-Identifier: GPL-3.0-or-later
"""An overlay: patches for installed distributions, with the SHA-256 of every file before and after. Pure: no I/O.

As a document, which travels to a target and into a lock file:

    {"patches": [{"patch", "distribution", "version", "reason", "text",
                  "files": {path below site-packages: {"before": sha256 or None, "after": sha256 or None}}}]}

None stands for no file. Patches are applied in order; a file may be in several.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import shapes
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID
from ansible_collections.pdlab.pdlab.plugins.module_utils.unified_diff import DiffError, FileDiff, apply, parse, reverse

MANIFEST = "overlay.yml"
# What an environment carries of the overlay that was applied to it: it is needed to take it back.
APPLIED = "pdlab-overlay.json"
REBUILD = "`pdlab rebuild` builds the environment anew from its lock and applies the overlay again"

Document = Mapping[str, Any]
Reader = Callable[[str], "bytes | None"]


class OverlayError(ValueError):
    """Files that an overlay does not fit; the message has one line for each, with what to do."""


def _sha256(faults: Faults, key: str, value: Any) -> Any:
    if isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef"):
        return value
    faults.add(key, f"is {shapes.kind(value)}, not a SHA-256", "write what `sha256sum FILE` prints, in quotes")
    return INVALID


def _files(faults: Faults, key: str, value: Any) -> Any:
    sums = shapes.mapping({"before": _sha256, "after": _sha256})
    if not isinstance(value, Mapping) or not value:
        faults.add(key, f"is {shapes.kind(value)}", "write `path: {before: SHA-256, after: SHA-256}` lines below it")
        return INVALID
    kept = {}
    for path, entry in value.items():
        where = f"{key}.{path}"
        if not isinstance(path, str) or path.startswith(("/", "..")) or posixpath.normpath(path) != path:
            faults.add(where, "is no path below site-packages", "write for example sglang/srt/server_args.py")
            continue
        checked = sums(faults, where, entry)
        if checked is not INVALID and not checked:
            faults.add(
                where, "has neither before nor after", "write both; leave one out for a file that is new or goes"
            )
        elif checked is not INVALID:
            kept[path] = {"before": checked.get("before"), "after": checked.get("after")}
    return kept


CHECK = shapes.mapping(
    {
        "patches": shapes.list_of(
            shapes.mapping(
                {
                    "patch": shapes.text("0001-what-it-does.patch"),
                    "distribution": shapes.text("sglang"),
                    "version": shapes.text("0.5.23"),
                    "reason": shapes.prose("why it is needed, and until when"),
                    "files": _files,
                },
                required={
                    "patch": "0001-what-it-does.patch",
                    "distribution": "sglang",
                    "version": "0.5.23",
                    "reason": "why it is needed, and until when",
                    "files": "{sglang/srt/server_args.py: {before: SHA-256, after: SHA-256}}",
                },
            ),
            what="patches",
        )
    },
    required={"patches": "[{patch: 0001-what-it-does.patch, …}]"},
)


def document_of(manifest: Any, texts: Mapping[str, str], faults: Faults) -> dict[str, Any] | None:
    """The document of a manifest and its patches' texts by file name; None when a fault was noted.

    All faults are noted at once: wrong shapes, patches that are missing, unnamed or no diffs, files that only one
    of manifest and patch names, checksums that do not follow each other.
    """
    before = len(faults)
    checked = CHECK(faults, MANIFEST, manifest)
    entries = [entry for entry in (checked or {}).get("patches", []) if entry] if checked is not INVALID else []
    latest: dict[str, Any] = {}
    for index, entry in enumerate(entries):
        key = f"{MANIFEST}.patches[{index}]"
        name = entry.get("patch")
        if name is not None and name not in texts:
            faults.add(f"{key}.patch", f"{name} is not in the overlay's folder", "add the file, or remove the entry")
        elif name is not None and "files" in entry:
            _check_patch(entry, texts[name], latest, key, faults)
    for name in sorted(set(texts) - {entry.get("patch") for entry in entries}):
        faults.add(MANIFEST, f"does not name {name}", "add an entry for it, or remove the file")
    if len(faults) > before:
        return None
    return {"patches": [{**entry, "text": texts[entry["patch"]]} for entry in entries]}


def _check_patch(entry: Mapping[str, Any], text: str, latest: dict[str, Any], key: str, faults: Faults) -> None:
    try:
        diffs = parse(text)
    except DiffError as error:
        faults.add(f"{key}.patch", f"{entry['patch']}: {error}", "make it with `diff -u` or `git diff`")
        return
    named = [diff.path for diff in diffs]
    for path in sorted({path for path in named if named.count(path) > 1}):
        faults.add(f"{key}.patch", f"{entry['patch']} changes {path} twice", "make it one change")
    for path in sorted(set(named) ^ set(entry["files"])):
        only = (f"only {entry['patch']} names it", "add it") if path in named else ("the patch does not", "remove it")
        faults.add(f"{key}.files.{path}", *only)
    for diff in diffs:
        sums = entry["files"].get(diff.path)
        if sums is None:
            continue
        for side, named_there in (("before", diff.old), ("after", diff.new)):
            if (named_there is None) != (sums[side] is None):
                cure = "leave it out: there is no such file then" if named_there is None else "add the SHA-256"
                faults.add(f"{key}.files.{diff.path}.{side}", "does not say what the patch says", cure)
        if diff.path in latest and latest[diff.path] != sums["before"]:
            faults.add(f"{key}.files.{diff.path}.before", "is not what the patch before it leaves", "correct it")
        latest[diff.path] = sums["after"]


def digest(document: Document | None) -> str:
    """One SHA-256 for a document, empty for none. Reasons count: they are part of what was agreed to."""
    if not document:
        return ""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def outcome(document: Document) -> dict[str, str | None]:
    """The SHA-256 that each file has when all patches are applied."""
    return {path: sums["after"] for patch in document["patches"] for path, sums in patch["files"].items()}


def changed_files(document: Document, read: Reader) -> list[str]:
    """A line for every file that is not what the applied overlay made it. `read` gives a file's content or None."""
    faults = []
    before: dict[str, str | None] = {}
    for patch in document["patches"]:
        for path, sums in patch["files"].items():
            before.setdefault(path, sums["before"])
    for path, wanted in outcome(document).items():
        seen = _sum(read(path))
        if seen != wanted:
            what = "the patch is not applied to it" if seen == before[path] else "somebody changed it"
            faults.append(f"{path}: {what} ({_named(seen)}; the overlay makes it {_named(wanted)})")
    return faults


def applied(document: Document, installed: Mapping[str, str], read: Reader) -> dict[str, bytes | None]:
    """The new content of every file that the overlay changes. Raises OverlayError with every file that it does not fit.

    `installed`: the distributions' versions by name.
    """
    faults = []
    versions = {normalized(name): version for name, version in installed.items()}
    for patch in document["patches"]:
        version = versions.get(normalized(patch["distribution"]))
        if version != patch["version"]:
            there = f"installed is {version}" if version else "it is not installed"
            faults.append(
                f"{patch['patch']} is for {patch['distribution']} {patch['version']}, and {there}: "
                "make the patch anew for that version, or remove it from the overlay"
            )
    if faults:
        raise OverlayError("\n".join(faults))
    return _changed(
        [(patch, diff) for patch in document["patches"] for diff in parse(patch["text"])], "before", "after", read
    )


def taken_back(document: Document, read: Reader) -> dict[str, bytes | None]:
    """The content that every file of an applied overlay had before. Raises OverlayError."""
    steps = [(patch, reverse(diff)) for patch in document["patches"] for diff in parse(patch["text"])]
    return _changed(steps[::-1], "after", "before", read)


def _changed(steps: list[tuple[Document, FileDiff]], start: str, goal: str, read: Reader) -> dict[str, bytes | None]:
    contents: dict[str, bytes | None] = {}
    faults: dict[str, str] = {}
    for patch, diff in steps:
        path, sums = diff.path, patch["files"][diff.path]
        if path in faults:
            continue
        content = contents[path] if path in contents else read(path)
        if _sum(content) != sums[start]:
            faults[path] = (
                f"{path} is not the file that {patch['patch']} was made for "
                f"({_named(_sum(content))}; wanted {_named(sums[start])}): make the patch anew from the installed file"
            )
            continue
        try:
            contents[path] = apply(content, diff)
        except DiffError as error:
            faults[path] = f"{patch['patch']}: {error}: make the patch anew from the installed file"
            continue
        if _sum(contents[path]) != sums[goal]:
            faults[path] = (
                f"{patch['patch']} makes {path} {_named(_sum(contents[path]))}, and the manifest says "
                f"{_named(sums[goal])}: correct the manifest's `{goal}`, or the patch"
            )
    if faults:
        raise OverlayError("\n".join(faults.values()))
    return contents


def summary(document: Document | None) -> list[dict[str, Any]]:
    """The patches without their texts, for results and records."""
    return [{key: patch[key] for key in patch if key != "text"} for patch in (document or {"patches": []})["patches"]]


def normalized(name: str) -> str:
    """A distribution's name as the folders of installed ones spell it, but for dashes."""
    return name.lower().replace("_", "-").replace(".", "-")


def _sum(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _named(sum_: str | None) -> str:
    return f"sha256 {sum_}" if sum_ else "no such file"
