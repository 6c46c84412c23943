# SPDX-License-Identifier: Apache-2.0
"""The published JSON Schemas are those of the models."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from scripts import schemas


def test_the_schemas_in_docs_are_what_the_models_say() -> None:
    assert schemas.stale() == [], "run: python scripts/schemas.py"


def test_every_published_schema_is_a_valid_schema() -> None:
    for source in schemas.REGISTRY:
        for schema in source().values():
            jsonschema.Draft202012Validator.check_schema(schema)


def test_a_changed_missing_or_left_over_schema_file_is_found(tmp_path: Path) -> None:
    wanted = schemas.published()
    for name, text in wanted.items():
        (tmp_path / name).write_text(text)
    assert schemas.stale(tmp_path) == []
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    assert schemas.stale(tmp_path) == ["old.json", "report.json"]


def test_the_check_writes_nothing_and_fails_when_a_file_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schemas, "stale", lambda: ["report.json"])
    monkeypatch.setattr(schemas, "FOLDER", tmp_path)
    assert schemas.main(["--check"]) == 1
    assert "report.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
