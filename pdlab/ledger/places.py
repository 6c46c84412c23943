# SPDX-License-Identifier: Apache-2.0
"""Reading one raw line of a run folder, and saying where it is and whether its file is what it was."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout

from pdlab.file_errors import explain
from pdlab.ledger import sealing
from pdlab.ledger.explained import Source, State
from pdlab.ledger.json_place import Key, key_words, line_of
from pdlab.ledger.manifest import ManifestError, encoded
from pdlab.loose import as_mapping, as_rows
from pdlab.store import POINT_RECORD_PREFIX, RunFolder, StoreError


class Places:
    """One leg's folder, as places of figures. Files are read again here, and each once."""

    def __init__(self, leg: RunFolder, root: RunFolder, above: str = "") -> None:
        """`root`: the run that the leg is part of, or itself; `above` is put in front of its files' paths."""
        self.leg, self.root, self.above = leg, root, above
        self._read: dict[Path, bytes] = {}
        self._digests: dict[Path, str] = {}
        self._documents: dict[Path, Any] = {}
        self._lines: dict[Path, list[tuple[int, dict[str, Any]]]] = {}
        self._raw: dict[str, tuple[int, dict[str, Any]] | None] = {}

    # --- documents ---------------------------------------------------------------------------------------------

    @functools.cached_property
    def run(self) -> Path:
        """run.json."""
        return self.leg.path / layout.RUN

    @functools.cached_property
    def plan(self) -> Path:
        """plan.json."""
        return self.leg.path / layout.PLAN

    def record(self, name: str) -> Path:
        """records/NAME.json."""
        return Path(layout.record_path(str(self.leg.path), name))

    def point_record(self, label: str) -> Path:
        """The record of a point: the one that says that label, else the one of that name."""
        named = self.record(POINT_RECORD_PREFIX + label)
        others = sorted(named.parent.glob(f"{POINT_RECORD_PREFIX}*.json"))
        found = (path for path in [named, *others] if as_mapping(self.document(path)).get("label") == label)
        return next(found, named)

    def planned_index(self, label: str) -> int | None:
        """Where a point stands among the plan's."""
        points = as_rows(as_mapping(as_mapping(self.document(self.plan)).get("benchmark")).get("points"))
        return next((index for index, point in enumerate(points) if point.get("label") == label), None)

    def document(self, path: Path) -> Any:
        """The JSON of a file; None when there is none."""
        if path not in self._documents:
            try:
                self._documents[path] = json.loads(self.text(path))
            except ValueError:
                self._documents[path] = None
        return self._documents[path]

    def raw(self, label: str) -> tuple[int, dict[str, Any]] | None:
        """The line of the client's JSONL that is the measurement, and what it says: the last whole one, as reports take."""
        if label not in self._raw:
            self._raw[label] = self._last_whole(self.leg.raw_path(label))
        return self._raw[label]

    def _last_whole(self, path: Path) -> tuple[int, dict[str, Any]] | None:
        rows = self.text(path).split("\n")
        for number in range(len(rows), 0, -1):
            try:
                found = json.loads(rows[number - 1])
            except ValueError:
                continue
            if isinstance(found, dict):
                return number, found
        return None

    def lines(self, path: Path) -> list[tuple[int, dict[str, Any]]]:
        """The objects of a JSON-lines file, each with its line; a line that is none is left out."""
        if path not in self._lines:
            found = []
            for number, row in enumerate(self.text(path).split("\n"), start=1):
                try:
                    line = json.loads(row)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    found.append((number, line))
            self._lines[path] = found
        return self._lines[path]

    def stage_lines(self, stage: str) -> list[tuple[int, dict[str, Any]]]:
        """The lines of stages.jsonl about one stage."""
        found = self.lines(self.leg.path / layout.STAGES)
        return [(number, line) for number, line in found if line.get("stage") == stage]

    # --- places ------------------------------------------------------------------------------------------------

    def key(self, path: Path, keys: Sequence[Key]) -> Source:
        """A key of a JSON document."""
        return self.line(path, line_of(self.text(path), keys), key_words(keys))

    def stages(self, number: int, key: str) -> Source:
        """A key of a line of stages.jsonl."""
        return self.line(self.leg.path / layout.STAGES, number, key)

    def line(self, path: Path, number: int | None, key: str) -> Source:
        """A key in a line that is known."""
        digest = self._digest(path)
        return Source(
            file=self.above + path.relative_to(self.root.path).as_posix(),
            line=number,
            key=key,
            sha256=digest,
            state=self._state(path, digest),
        )

    def text(self, path: Path) -> str:
        """A file's text; empty when there is none."""
        return self._bytes(path).decode("utf-8", errors="replace")

    def _bytes(self, path: Path) -> bytes:
        if path not in self._read:
            try:
                self._read[path] = path.read_bytes()
            except FileNotFoundError:
                self._read[path] = b""
            except OSError as error:
                raise StoreError(explain("read", path, error)) from error
        return self._read[path]

    def _digest(self, path: Path) -> str | None:
        if path not in self._digests and path.is_file():
            self._digests[path] = hashlib.sha256(self._bytes(path)).hexdigest()
        return self._digests.get(path)

    @functools.cached_property
    def _manifest(self) -> dict[str, str] | None:
        """Hashes by path; None without a manifest, or with one that was changed: then nothing is vouched for."""
        try:
            found = sealing.read(self.root.manifest_path)
        except ManifestError:
            return {}
        return None if found is None else {one.path: one.sha256 for one in found.files}

    def _state(self, path: Path, digest: str | None) -> State:
        if self._manifest is None:
            return "no manifest yet"
        wanted = self._manifest.get(encoded(path.relative_to(self.root.path).as_posix()))
        if wanted is None:
            return "not in the manifest"
        return "as when the run ended" if wanted == digest else "CHANGED since the run ended"
