# SPDX-License-Identifier: Apache-2.0
"""Figures of a run that belong to no point: stages, answers, the oracle, KV transfer, run.json."""

from __future__ import annotations

from pdlab.ledger.explained import Explained, Value
from pdlab.ledger.json_place import Key
from pdlab.ledger.places import Places
from pdlab.ledger.point_figures import UnknownFieldError, at
from pdlab.loose import as_number
from pdlab.moments import seconds_between

# First part of a field of Report (results/model.py) -> the record that it is read from.
RECORDS = {"oracle": "oracle", "kv_transfer": "kv_transfer", "answers": "answers", "stability": "stability"}
OF_RUN = ("started", "ended", "exit_code", "why", "inventory", "pdlab_version")


def run_figure(places: Places, id: str, field: str, shown: Value) -> Explained:
    """One figure of a run. Raises UnknownFieldError."""
    keys: list[Key] = [int(part) if part.isdigit() else part for part in field.split(".")]
    first = str(keys[0])
    if first in RECORDS and len(keys) > 1:
        path = places.record(RECORDS[first])
        # The answers of a record stand below a key of their own.
        below = ["answers", *keys[1:]] if first in ("answers", "stability") else keys[1:]
        return Explained(
            id=id,
            what=f"{field} of the run",
            value=_plain(at(places.document(path), below)),
            shown=shown,
            formula=f"{'.'.join(map(str, below))} of the record {RECORDS[first]}",
            sources=[places.key(path, below)],
        )
    if first == "stages" and len(keys) == 3 and keys[2] == "seconds":
        return _stage_seconds(places, id, str(keys[1]), shown)
    if field == "seconds":
        run = places.document(places.run)
        return Explained(
            id=id,
            what="how long the run took, s",
            value=seconds_between(at(run, ["started"]), at(run, ["ended"])),
            shown=shown,
            formula="ended - started",
            sources=[places.key(places.run, [key]) for key in ("started", "ended")],
        )
    if field in OF_RUN:
        return Explained(
            id=id,
            what=f"{field} of the run",
            value=_plain(at(places.document(places.run), [field])),
            shown=shown,
            formula=f"{field} of run.json",
            sources=[places.key(places.run, [field])],
        )
    known = ["seconds", *OF_RUN, "stages.NAME.seconds", *(f"{name}.KEY" for name in RECORDS)]
    raise UnknownFieldError(f"a run has no figure {field!r}; it has {', '.join(known)}")


def _stage_seconds(places: Places, id: str, stage: str, shown: Value) -> Explained:
    lines = places.stage_lines(stage)
    starts = [(number, line) for number, line in lines if line.get("event") == "start"]
    ends = [(number, line) for number, line in lines if line.get("event") == "end"]
    began = as_number(starts[-1][1].get("time")) if starts else None
    ended = as_number(ends[-1][1].get("time")) if ends else None
    return Explained(
        id=id,
        what=f"how long stage {stage} took, s",
        value=None if began is None or ended is None else round(max(0.0, ended - began), 3),
        shown=shown,
        formula="time of its end - time of its start",
        sources=[places.stages(number, "time") for number, _line in [*starts[-1:], *ends[-1:]]],
    )


def _plain(value: object) -> Value:
    return value if isinstance(value, float | int | str | bool) else None
