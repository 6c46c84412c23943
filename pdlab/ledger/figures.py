# SPDX-License-Identifier: Apache-2.0
"""From a figure's id to its raw lines: `pdlab explain ID`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from pdlab.analysis.goodput import Limits, goodput
from pdlab.analysis.refusal import RefusedError
from pdlab.evidence import figure_ids as ids
from pdlab.evidence import row_ids
from pdlab.evidence.build import build_evidence
from pdlab.evidence.cells import figures_of
from pdlab.evidence.legs import Leg, legs_of
from pdlab.evidence.measured import servers_of
from pdlab.evidence.model import Evidence, LimitSet
from pdlab.evidence.side_by_side import legs_side_by_side
from pdlab.ledger import derived_figures as derived
from pdlab.ledger.explained import Explained, Value
from pdlab.ledger.places import Places
from pdlab.ledger.point_figures import PER_GPU, UnknownFieldError, goodput_figure, point_figure
from pdlab.ledger.run_figures import run_figure
from pdlab.ledger.time_figures import time_figure, time_ids
from pdlab.results.model import Point
from pdlab.store import RunFolder


class FigureError(ValueError):
    """An id names no figure of this run. The message says what there is instead."""


class Ledger:
    """The figures of a run, plain or of arms, or of several side by side. Nothing is written.

    With several runs, legs are named as `pdlab compare` names them, and files are below the name of their run.
    """

    def __init__(self, folders: RunFolder | Sequence[RunFolder], limits: Limits | None = None) -> None:
        self.folders = [folders] if isinstance(folders, RunFolder) else list(folders)
        self.limits = limits
        self._known: dict[str, Explained] = {}

    @functools.cached_property
    def legs(self) -> dict[str, Leg]:
        """The run's legs by id."""
        legs = legs_of(self.folders[0]) if len(self.folders) == 1 else legs_side_by_side(self.folders)
        return {leg.id: leg for leg in legs}

    @functools.cached_property
    def evidence(self) -> Evidence:
        """What reports show."""
        name = " ".join(folder.run_name for folder in self.folders)
        # Unlike runs are put side by side when somebody asked for that: a page that was refused has no such figure.
        several = len(self.folders) > 1
        return build_evidence(list(self.legs.values()), name, self.limits, allow_unlike=several)

    def explain(self, id: str) -> Explained:
        """Where a figure comes from. Raises FigureIdError when `id` is none, FigureError when this run has it not."""
        if id not in self._known:
            figure = ids.parse(id)
            try:
                self._known[id] = self._of(id, figure)
            except (UnknownFieldError, derived.NoFigureError) as error:
                raise FigureError(f"{id}: {error}") from error
        return self._known[id]

    def every_id(self) -> Iterator[str]:
        """The id of every figure of the evidence that has a value."""
        yield from row_ids.point_ids(self.evidence, lambda row: self._gpus(row.leg))
        yield from row_ids.cell_ids(self.evidence.cells)
        yield from time_ids(self.evidence)
        yield from row_ids.comparison_ids(self.evidence)
        yield from row_ids.rate_ids(self.evidence)
        yield from row_ids.winner_ids(self.evidence)
        yield from row_ids.verdict_ids(self.evidence)

    def _of(self, id: str, figure: ids.Figure) -> Explained:
        match figure:
            case ids.PointFigure(leg, label, field):
                return point_figure(self._places(leg), id, label, field, self._point_shown(leg, label, field))
            case ids.GoodputFigure(leg, label, limits):
                return goodput_figure(self._places(leg), id, label, limits, self._goodput_shown(leg, label, limits))
            case ids.RunFigure(leg, field):
                return run_figure(self._places(leg), id, field, _plain(_at(self.legs[leg].report, field)))
            case ids.CellFigure():
                return derived.cell_figure(self.evidence, figure, self.explain)
            case ids.TimeFigure():
                return time_figure(self.evidence, figure, self.explain)
            case ids.CompareFigure():
                return derived.compare_figure(self.evidence, figure, self.explain)
            case ids.RateFigure():
                return derived.rate_figure(self.evidence, figure, self.explain)
            case ids.WinnerFigure():
                return derived.winner_figure(self.evidence, figure, self.explain)
            case ids.VerdictFigure():
                return derived.verdict_figure(self.evidence, figure, self.explain)

    def _gpus(self, leg: str) -> int | None:
        return servers_of(self.legs[leg].contents.plan or {}).gpus

    def _places(self, leg: str) -> Places:
        if leg not in self._read:
            if leg not in self.legs:
                raise FigureError(f"this run has no leg {leg!r}; it has {', '.join(self.legs) or 'none'}")
            own = RunFolder(self.legs[leg].contents.path)
            root = RunFolder(own.manifest_path.parent)
            self._read[leg] = Places(own, root, f"{root.run_name}/" if len(self.folders) > 1 else "")
        return self._read[leg]

    @functools.cached_property
    def _read(self) -> dict[str, Places]:
        return {}

    def _point(self, leg: str, label: str) -> Point:
        points = {point.label: point for point in self.legs[leg].report.points}
        if label not in points:
            raise FigureError(f"leg {leg} has no point {label!r}; it has {', '.join(points) or 'none'}")
        return points[label]

    def _point_shown(self, leg: str, label: str, field: str) -> Value:
        point = self._point(leg, label)
        if field == PER_GPU:
            return figures_of(point, self._gpus(leg)).get(field)
        if field.startswith("checks."):
            check = field.removeprefix("checks.")
            return next((one.seen for one in point.checks if one.id == check), None)
        return _plain(_at(point, field))

    def _goodput_shown(self, leg: str, label: str, limits: LimitSet) -> Value:
        self._point(leg, label)
        found = next((one for one in self.legs[leg].measurements if one.label == label), None)
        if found is None:
            return None
        if limits == LimitSet():
            return found.request_s
        try:
            return goodput(found, Limits(limits.ttft_ms, limits.tpot_ms, limits.e2e_ms)).request_s
        except RefusedError:
            return None


def _at(document: BaseModel, field: str) -> Any:
    """The value at a path of field names, list indices and names of list items; None when there is none."""
    found: Any = document
    for step in field.split("."):
        if isinstance(found, BaseModel):
            found = getattr(found, step, None)
        elif isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, Sequence) and not isinstance(found, str):
            found = _item(found, step)
        else:
            return None
    return found


def _item(rows: Sequence[Any], step: str) -> Any:
    if step.isdigit():
        return rows[int(step)] if int(step) < len(rows) else None
    named = [row for row in rows if step in (getattr(row, "name", None), getattr(row, "label", None))]
    # A stage that ran twice: the report shows both, the last one counts.
    return named[-1] if named else None


def _plain(value: Any) -> Value:
    return value if isinstance(value, float | int | str | bool) else None
