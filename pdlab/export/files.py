# SPDX-License-Identifier: Apache-2.0
"""`pdlab export`: a run read, and its table or reports written, to a file, a folder or standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.export import llm_d, table
from pdlab.export.table import ExportError
from pdlab.file_errors import explain
from pdlab.store import RunFolder

FORMATS = ("csv", "json", "parquet", "llm-d")


def export_run(folder: RunFolder, format: str, output: Path | None) -> str:
    """Write a run in one of FORMATS; says what was written, nothing when it was printed. Raises ExportError."""
    legs = legs_of(folder)
    evidence = build_evidence(legs, folder.run_name)
    if format == "llm-d":
        documents = [(leg, label, llm_d.as_yaml(made)) for leg, label, made in llm_d.documents(evidence, legs)]
        return _write_folder(documents, output)
    rows = table.rows_of(evidence)
    if format == "parquet":
        made = table.as_parquet(rows)
        if output is None and sys.stdout.isatty():
            raise ExportError("Parquet is not text: name a file with -o, or send it into one")
    else:
        made = (table.as_csv(rows) if format == "csv" else table.as_json(evidence, rows)).encode("utf-8", "replace")
    if output is None:
        _print(made)
        return ""
    _write(output, made)
    return f"{output} ({len(rows)} point{'s' * (len(rows) != 1)})"


def _write_folder(documents: list[tuple[str, str, str]], output: Path | None) -> str:
    """Reports one after the other, or each in a file of its own."""
    if output is None:
        _print("".join(f"---\n{text}" for _leg, _label, text in documents).encode("utf-8", "replace"))
        return ""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(explain("make the folder", output, error)) from error
    for leg, label, text in documents:
        _write(output / f"{quote(leg, safe='')}_{quote(label, safe='')}.yaml", text.encode("utf-8", "replace"))
    return f"{output} ({len(documents)} report{'s' * (len(documents) != 1)})"


def _print(made: bytes) -> None:
    sys.stdout.buffer.write(made)
    sys.stdout.buffer.flush()


def _write(path: Path, made: bytes) -> None:
    """Whole or not at all, but into what is no file (a pipe, /dev/stdout) as it comes."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(made)
            return
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(made)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ExportError(explain("write", path, error)) from error
