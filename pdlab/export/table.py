# SPDX-License-Identifier: Apache-2.0
"""One row a point, and its writers: CSV, JSON, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pdlab.evidence.cells import figures_of
from pdlab.evidence.model import Evidence
from pdlab.export.columns import Column, columns, value_at

SCHEMA_VERSION = 1
PARQUET_EXTRA = (
    "Parquet needs pyarrow, which is not installed beside pdlab by itself (55 MB). In pdlab's environment: "
    "python -m pip install 'pyarrow>=20' (the extra `parquet` of pdlab)"
)

Row = dict[str, Any]


class ExportError(Exception):
    """An export cannot be made here. The message says what to do."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnWords(_Model):
    """One column of the table."""

    name: str
    kind: str = Field(description="text, integer, number, boolean, or json: a list or mapping.")
    unit: str
    words: str


class Export(_Model):
    """What `pdlab export --format json` writes: all points of a run, one mapping a point with a key a column."""

    schema_version: int = SCHEMA_VERSION
    run: str
    rehearsal: bool
    columns: list[ColumnWords]
    points: list[dict[str, Any]] = Field(description="Null where a point has no such figure.")


def rows_of(evidence: Evidence) -> list[Row]:
    """One row a point, in the order in which they ran; a key for every column."""
    legs = {leg.id: leg for leg in evidence.legs}
    arms = {arm.name: arm for arm in evidence.arms}
    rows = []
    for one in evidence.points:
        leg, arm = legs[one.leg], arms[one.arm]
        row: Row = {column.name: value_at(one.point, column.name) for column in columns()}
        row |= {
            "run": evidence.name,
            "rehearsal": evidence.rehearsal,
            "leg": one.leg,
            "arm": one.arm,
            "repeat": one.repeat,
            "order": leg.order,
            "started": leg.started,
            "disaggregated": arm.disaggregated,
            "prefill": arm.prefill,
            "decode": arm.decode,
            "colocated": arm.colocated,
            "gpus": arm.gpus,
            "bound": one.bound,
            "output_tok_s_per_gpu": figures_of(one.point, arm.gpus).get("output_tok_s_per_gpu"),
            # As the evidence has them: a point without a workload's name belongs to its plan's sweep.
            "workload": one.workload,
            "loop": one.load.loop,
            "concurrency": one.load.concurrency,
            "rate_s": one.load.rate_s,
            "counts": one.counts,
        }
        rows.append(row)
    return rows


def as_csv(rows: Sequence[Row]) -> str:
    """RFC 4180 with a head line. Nothing is an empty field, yes and no are true and false, lists are JSON."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow([column.name for column in columns()])
    writer.writerows([_cell(row[column.name], column) for column in columns()] for row in rows)
    return stream.getvalue()


def as_json(evidence: Evidence, rows: Sequence[Row]) -> str:
    """One document with the columns and the points."""
    named = [ColumnWords(name=one.name, kind=one.kind, unit=one.unit, words=one.words) for one in columns()]
    made = Export(run=evidence.name, rehearsal=evidence.rehearsal, columns=named, points=list(rows))
    return json.dumps(made.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"


def as_parquet(rows: Sequence[Row]) -> bytes:
    """A Parquet file; units and words are metadata of its fields, lists are JSON text. Raises ExportError."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ExportError(PARQUET_EXTRA) from error
    kinds = {
        "text": pyarrow.string(),
        "json": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    schema = pyarrow.schema(
        [pyarrow.field(one.name, kinds[one.kind], metadata={"unit": one.unit, "words": one.words}) for one in columns()]
    )
    table = pyarrow.table({one.name: [_value(row[one.name], one) for row in rows] for one in columns()}, schema=schema)
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def _value(value: Any, column: Column) -> Any:
    """A value as its column's type takes it."""
    if value is None:
        return None
    if column.kind == "json":
        return json.dumps(value, ensure_ascii=False)
    return float(value) if column.kind == "number" else value


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    made = _value(value, column)
    return repr(made) if isinstance(made, float) else str(made)
