# SPDX-License-Identifier: Apache-2.0
"""The run folder as the controller sees it: make one, find one, read what it holds, update its run.json.

The only place in pdlab/ that knows how a run folder is laid out. The names of its files and their atomic
writing are in module_utils/run_folder.py, which the action plug-ins share.

A run that died stays readable: a document that is missing reads as None, one that is damaged reads as None and
is named in `RunContents.damaged`, a cut last line of a .jsonl file is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout

from pdlab.controller import controller_alive, controller_facts
from pdlab.damaged_files import read_json, read_jsonl, tail
from pdlab.file_errors import explain
from pdlab.loose import as_list, as_mapping, as_rows, as_text
from pdlab.moments import utc_now
from pdlab.run_stages import Stage, pair_stages

LATEST = "latest"
RUNNING = "running"
OK = "ok"
FAILED = "failed"
CANCELLED = "cancelled"

POINT_RECORD_PREFIX = "point-"

_RUN_NAME = re.compile(r"\d{8}T\d{6}Z-(?P<id>[0-9a-f]{6})")

Document = dict[str, Any]


class StoreError(Exception):
    """The runs directory or a run cannot be used. The message names the path and what to do about it."""


@dataclass(frozen=True)
class PointFiles:
    """What a run holds about one benchmark point; each part None when it is missing."""

    label: str
    planned: Document | None
    record: Document | None
    raw: Document | None


@dataclass(frozen=True)
class RunContents:
    """Everything a report needs from a run folder, read once. Nothing here touches a disk again."""

    name: str
    path: Path
    run: Document
    plan: Document | None
    stages: tuple[Stage, ...]
    records: Mapping[str, Document]
    points: tuple[PointFiles, ...]
    logs: Mapping[str, str]
    files: tuple[str, ...]
    damaged: tuple[str, ...]
    controller_alive: bool | None

    def record(self, name: str) -> Document | None:
        """One stage's record, or None when the run did not get that far."""
        return self.records.get(name)

    def host_records(self, kind: str) -> dict[str, Document]:
        """The records named `<kind>-<host or server>`, by that host or server."""
        prefix = kind + "-"
        return {name[len(prefix) :]: data for name, data in self.records.items() if name.startswith(prefix)}

    @property
    def died(self) -> bool:
        """Whether run.json still says "running" though its controller is gone, or was never written."""
        if not self.run:
            return True
        return self.run.get("status") == RUNNING and self.controller_alive is False

    @property
    def open_stage(self) -> str | None:
        """The stage that started and never ended: how far a run got that died."""
        return next((stage.name for stage in reversed(self.stages) if not stage.finished), None)


class RunFolder:
    """One run's folder. Reading never fails on a damaged run; writing raises StoreError with a cure."""

    def __init__(self, path: Path) -> None:
        # Absolute, so that paths of a run, its legs and its manifest can be held against each other.
        self.path = Path(os.path.abspath(path))  # noqa: PTH100

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The run's name, `<YYYYmmddTHHMMSSZ>-<6 hex>`."""
        return self.path.name

    @property
    def report_path(self) -> Path:
        """Where report.html belongs."""
        return self.path / layout.REPORT

    @property
    def manifest_path(self) -> Path:
        """Where manifest.json belongs; a leg's is that of its run."""
        return Path(layout.sealed_by(str(self.path)))

    @property
    def within_a_run(self) -> bool:
        """Whether this is a leg's folder, whose run has the manifest and the findings."""
        return self.manifest_path.parent != self.path

    @property
    def sealed(self) -> bool:
        """Whether the run ended and a manifest says what it held then."""
        return self.manifest_path.is_file()

    @property
    def had_manifest(self) -> bool:
        """Whether a manifest was written when the run ended. If there is none now, somebody took it away."""
        document, _ = read_json(self.path / layout.RUN)
        return bool((document or {}).get("manifest"))

    @property
    def run_name(self) -> str:
        """The name that the run was given, wherever its folder lies by now."""
        document, _ = read_json(self.path / layout.RUN)
        given = as_text((document or {}).get("run")) or ""
        return given if _RUN_NAME.fullmatch(given) else self.name

    @property
    def findings_path(self) -> Path:
        """findings.md, one level up: one section a run."""
        return self.path.parent / layout.FINDINGS

    @property
    def ansible_path(self) -> Path:
        """The folder for ansible-runner's artifacts; made by whoever writes there first."""
        return self.path / layout.ANSIBLE

    # --- finding -----------------------------------------------------------------------------------------------

    @classmethod
    def all_runs(cls, runs_dir: str | Path) -> list[RunFolder]:
        """Every run below `runs_dir`, oldest first; none when the directory does not exist.

        Raises StoreError when the directory cannot be read.
        """
        directory = Path(runs_dir)
        try:
            entries = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(explain("read the runs directory", directory, error)) from error
        return [cls(directory / name) for name in entries if _RUN_NAME.fullmatch(name)]

    @classmethod
    def find(cls, runs_dir: str | Path, reference: str = LATEST) -> RunFolder:
        """The run that `reference` names: "latest", a name, its six-digit id, a unique prefix, or a path.

        Raises StoreError that says what there is instead.
        """
        runs = cls.all_runs(runs_dir)
        names = {run.name: run for run in runs}
        if reference in names:
            return names[reference]
        if reference == LATEST:
            if not runs:
                raise StoreError(
                    f"no run in {runs_dir}: start one with `pdlab up`, or name another directory with --runs-dir"
                )
            return runs[-1]
        if os.sep in reference or reference in (os.curdir, os.pardir):
            return cls.open(reference)
        found = [run for run in runs if run.name.startswith(reference) or run.name.endswith("-" + reference)]
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(run.name for run in found[-5:])
            raise StoreError(f"{reference!r} fits {len(found)} runs in {runs_dir}: {some}; give more of the name")
        latest = f"the latest is {runs[-1].name}" if runs else "it holds none"
        raise StoreError(f"no run {reference!r} in {runs_dir}; {latest}")

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The run folder at `path`. Raises StoreError when that is no run folder."""
        folder = Path(path).expanduser().resolve()
        if not folder.is_dir():
            raise StoreError(f"{folder} is not a directory; give a run's folder, its name, or `latest`")
        if not (folder / layout.RUN).is_file() and not _RUN_NAME.fullmatch(folder.name):
            raise StoreError(f"{folder} is no run folder (it has no {layout.RUN}); give a run's folder or its name")
        return cls(folder)

    # --- writing -----------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        runs_dir: str | Path,
        *,
        command: Sequence[str],
        inventory: str,
        rehearsal: bool | None,
        pdlab_version: str,
    ) -> RunFolder:
        """Start a new run folder with its run.json (status "running"). `rehearsal` None: the plan will say.

        Raises StoreError when the runs directory is read-only, full, or not a directory.
        """
        document = _begun(command, inventory, rehearsal, pdlab_version)
        try:
            return cls(Path(layout.create_run(str(runs_dir), document)))
        except OSError as error:
            raise StoreError(explain("make a run folder in", Path(runs_dir), error)) from error

    def create_leg(self, leg_id: str, *, command: Sequence[str], pdlab_version: str) -> RunFolder:
        """The folder of this run's next leg, after all that are there. Raises StoreError."""
        taken = [found["number"] for part in self.leg_folders() if (found := layout.leg_of(part.name))]
        document = _begun(command, str(self.run_document().get("inventory")), None, pdlab_version)
        try:
            return RunFolder(Path(layout.create_leg(str(self.path), max(taken, default=-1) + 1, leg_id, document)))
        except OSError as error:
            raise StoreError(explain("make a leg's folder in", self.path / layout.LEGS, error)) from error

    def create_restore(self, *, command: Sequence[str], pdlab_version: str) -> RunFolder:
        """The folder in which the first arm is deployed again after the legs. Raises StoreError."""
        document = _begun(command, str(self.run_document().get("inventory")), None, pdlab_version)
        try:
            return RunFolder(Path(layout.create_restore(str(self.path), document)))
        except OSError as error:
            raise StoreError(explain("make", self.path / layout.RESTORE, error)) from error

    def write_arms(self, document: Mapping[str, Any]) -> None:
        """Write arms.json, whole or not at all. Raises StoreError."""
        try:
            layout.write_json(str(self.path / layout.ARMS), dict(document))
        except OSError as error:
            raise StoreError(explain("write", self.path / layout.ARMS, error)) from error

    def update(self, **fields: Any) -> None:
        """Change fields of run.json, whole or not at all. Raises StoreError."""
        document, _ = read_json(self.path / layout.RUN)
        try:
            layout.reopen(str(self.path))
            layout.write_json(str(self.path / layout.RUN), {"run": self.name, **(document or {}), **fields})
        except OSError as error:
            raise StoreError(explain("write", self.path / layout.RUN, error)) from error

    def take_over(self, command: Sequence[str]) -> None:
        """This process goes on with a run that another one left. Raises StoreError."""
        before = self.run_document()
        resumed = [*(before.get("resumed") or []), {"at": utc_now(), "command": list(command)}]
        begun = {"status": RUNNING, "exit_code": None, "why": None, "ended": None, "manifest": False}
        self.update(**begun, controller=controller_facts(), resumed=resumed)
        try:
            # What it says holds no longer; the run's new end writes another.
            self.manifest_path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(explain("remove", self.manifest_path, error)) from error

    def finish(self, status: str, exit_code: int, why: str | None = None) -> None:
        """Note the run's end: `status` is ok, failed or cancelled. Raises StoreError.

        A stage that is still open ended here as well, and not well: a failed task skips the stage's own end.
        """
        events, _ = read_jsonl(self.path / layout.STAGES)
        try:
            for stage in pair_stages(events):
                if not stage.finished:
                    layout.append_stage(str(self.path), stage.name, "end", False, why or status)
        except OSError as error:
            raise StoreError(explain("write", self.path / layout.STAGES, error)) from error
        # Kept in run.json: a run that had a manifest and has none is not one of an older pdlab.
        self.update(status=status, exit_code=exit_code, why=why, ended=utc_now(), manifest=True)
        self.seal()

    def seal(self) -> None:
        """Write manifest.json: what the run held when it ended. A leg has none of its own. Raises StoreError."""
        # Loaded here: pydantic is a third of what `pdlab` would load before it can start anything.
        from pdlab.ledger import sealing

        if not self.within_a_run:
            try:
                sealing.seal(self.manifest_path, self.run_name)
            except OSError as error:
                raise StoreError(explain("write", self.manifest_path, error)) from error

    def seal_if_over(self) -> None:
        """Write the manifest of a run that ended and never had one. Raises StoreError."""
        if not self.sealed and self.over() and not self.had_manifest:
            self.seal()

    def write_report(self, html: str) -> Path:
        """Write report.html, whole or not at all; return its path. Raises StoreError."""
        return self.write_derived(layout.REPORT, html)

    def write_derived(self, name: str, text: str) -> Path:
        """Write a page that is made from the run's files, whole or not at all, and into the manifest if there is one.

        Raises StoreError.
        """
        from pdlab.ledger import sealing

        path = self.path / name
        try:
            layout.write_text(str(path), text)
            sealing.enter(self.manifest_path, path)
        except OSError as error:
            raise StoreError(explain("write", path, error)) from error
        return path

    # --- reading -----------------------------------------------------------------------------------------------

    def read(self) -> RunContents:
        """Read the whole run. Never raises for what is missing or damaged inside it."""
        damaged: list[str] = []

        def document(path: Path) -> Document | None:
            data, fault = read_json(path)
            if fault:
                damaged.append(f"{path.relative_to(self.path)}: {fault}")
            return data

        run = document(self.path / layout.RUN) or {}
        plan = document(self.path / layout.PLAN)
        records = {}
        for path in sorted((self.path / layout.RECORDS).glob("*.json")):
            data = document(path)
            if data is not None:
                records[path.stem] = data
        stage_events, faults = read_jsonl(self.path / layout.STAGES)
        damaged += [f"{layout.STAGES}: {fault}" for fault in faults]
        points, faults = self._points(plan, records)
        damaged += faults
        return RunContents(
            name=self.run_name,
            path=self.path,
            run=run,
            plan=plan,
            stages=pair_stages(stage_events),
            records=records,
            points=points,
            logs={path.stem: tail(path) for path in sorted((self.path / layout.LOGS).glob("*.log"))},
            files=tuple(sorted(str(path.relative_to(self.path)) for path in self._own_files())),
            damaged=tuple(damaged),
            # A sealed run is over, whichever machine reads it.
            controller_alive=False if self.sealed else controller_alive(run),
        )

    def arms_document(self) -> Document | None:
        """arms.json of a run of arms; None for a plain run, or when it cannot be read."""
        return read_json(self.path / layout.ARMS)[0]

    def leg_folders(self) -> list[RunFolder]:
        """The folders of a run of arms' legs, in the order in which they were made; none for a plain run."""
        legs = self.path / layout.LEGS
        return [RunFolder(path) for path in sorted(legs.iterdir()) if path.is_dir()] if legs.is_dir() else []

    def over(self) -> bool:
        """Whether nothing will be added to the run: it says its end, or its controller is gone.

        ansible-playbook writes no end: its run is over with its last stage.
        """
        run, _ = read_json(self.path / layout.RUN)
        run = run or {}
        if run.get("status") in (OK, FAILED, CANCELLED) or controller_alive(run) is False:
            return True
        events, _ = read_jsonl(self.path / layout.STAGES)
        stages = pair_stages(events)
        by_playbook = as_list(run.get("command"))[:1] == ["ansible-playbook"]
        return by_playbook and bool(stages) and stages[-1].name == "report" and all(one.finished for one in stages)

    def run_document(self) -> Document:
        """run.json alone; empty when it cannot be read."""
        return read_json(self.path / layout.RUN)[0] or {}

    def plan_document(self) -> Document:
        """plan.json alone; empty when it cannot be read."""
        return read_json(self.path / layout.PLAN)[0] or {}

    def held_by(self) -> int | None:
        """PID of the process that writes this run now; None when it has ended, or nobody here can know."""
        run = self.run_document()
        if run.get("status") != RUNNING or not controller_alive(run):
            return None
        return int(as_mapping(run.get("controller")).get("pid") or 0) or None

    def leg_id(self) -> str | None:
        """ARM-rREPEAT of a leg's folder; None for any other."""
        found = layout.leg_of(self.name)
        return str(found["id"]) if found else None

    def raw_path(self, label: str) -> Path:
        """The benchmark client's JSONL of one point."""
        return self.path / layout.BENCH / f"{label}.jsonl"

    def samples_path(self, label: str) -> Path:
        """What engine, router and box said about every second of one point: a JSON object a line."""
        return self.path / layout.BENCH / f"{label}{layout.SAMPLES_ENDING}"

    def read_samples(self, label: str) -> list[Document]:
        """What engine, router and box said over time during one point; empty when nothing was kept."""
        return read_jsonl(self.samples_path(label))[0]

    def _own_files(self) -> list[Path]:
        """The run's files for a reader, without ansible-runner's thousands."""
        names = [self.path / name for name in (layout.RUN, layout.PLAN, layout.STAGES)]
        for part in (layout.RECORDS, layout.BENCH, layout.LOGS):
            names += (self.path / part).glob("*")
        return [path for path in names if path.is_file() and not path.name.endswith(".tmp")]

    def _points(
        self, plan: Document | None, records: Mapping[str, Document]
    ) -> tuple[tuple[PointFiles, ...], list[str]]:
        """The points in sweep order: as planned, then any that no plan names."""
        sweep = as_rows(as_mapping((plan or {}).get("benchmark")).get("points"))
        planned = {str(point["label"]): dict(point) for point in sweep if "label" in point}
        recorded = {
            str(data.get("label") or name[len(POINT_RECORD_PREFIX) :]): data
            for name, data in records.items()
            if name.startswith(POINT_RECORD_PREFIX)
        }
        raw_labels = [
            path.stem
            for path in sorted((self.path / layout.BENCH).glob("*.jsonl"))
            if not path.name.endswith(layout.SAMPLES_ENDING)
        ]
        labels = dict.fromkeys([*planned, *recorded, *raw_labels])
        points, damaged = [], []
        for label in labels:
            lines, faults = read_jsonl(self.raw_path(label))
            damaged += [f"{layout.BENCH}/{label}.jsonl: {fault}" for fault in faults]
            # The client appends: the last line is the measurement.
            raw = lines[-1] if lines else None
            if raw is None and not faults and recorded.get(label, {}).get("ok") and self.raw_path(label).exists():
                damaged.append(f"{layout.BENCH}/{label}.jsonl: holds no whole line")
            points.append(PointFiles(label, planned.get(label), recorded.get(label), raw))
        return tuple(points), damaged


def _begun(command: Sequence[str], inventory: str, rehearsal: bool | None, pdlab_version: str) -> Document:
    """run.json of a run that begins now."""
    return {
        "started": utc_now(),
        "ended": None,
        "command": list(command),
        "inventory": str(inventory),
        "rehearsal": rehearsal,
        "pdlab_version": pdlab_version,
        "controller": controller_facts(),
        "status": RUNNING,
        "exit_code": None,
        "why": None,
    }
