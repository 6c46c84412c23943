# SPDX-License-Identifier: Apache-2.0
"""`pdlab export`: every format holds every point whole, the same run gives the same bytes, unknown things stay out."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet
import pytest
import yaml
from typer.testing import CliRunner

from pdlab.cli import app
from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.exit_codes import Exit
from pdlab.export import llm_d
from pdlab.export.columns import columns
from pdlab.export.files import FORMATS, export_run
from pdlab.export.llm_d_stack import arguments
from pdlab.export.table import Export
from pdlab.ledger.figures import Ledger
from pdlab.store import RunFolder
from scripts import exports_page
from tests.unit.evidence import arms_run_factory as arms
from tests.unit.report import run_folder_factory as factory

SCHEMA = json.loads((Path(__file__).parents[1] / "data/llm-d-report-0.2/br_v0_2_json_schema.json").read_text())


def on_gpus(runs_dir: Path) -> RunFolder:
    """Two arms with a failed and a doubtful point, and preflight's names of the GPUs."""
    folder = arms.seeded_run(
        runs_dir, 2, arms=("pd", "tp2"), failed=[("tp2-r1", "short-c64-n40")], doubtful=[("pd-r2", "rag-r4-n40")]
    )
    for leg in folder.leg_folders():
        path = leg.path / "records" / "preflight-localhost.json"
        gpus = [{"index": index, "name": "NVIDIA H200"} for index in (0, 1)]
        path.write_text(json.dumps({**json.loads(path.read_text()), "facts": {"gpu": {"gpus": gpus}}}))
        for record in (leg.path / "records").glob("point-*.json"):
            engine = {"prefill_waiting": 1.5, "decode_running": 9.25, "token_usage": 0.4}
            record.write_text(json.dumps({**json.loads(record.read_text()), "engine": engine}))
    return folder


RUNS: list[Callable[[Path], RunFolder]] = [
    factory.good_run,
    factory.failed_point_run,
    factory.died_run,
    factory.veto_run,
    on_gpus,
    arms.h200_run,
]


def exported(folder: RunFolder, tmp_path: Path, format: str) -> Path:
    path = tmp_path / f"export.{format}"
    export_run(folder, format, path)
    return path


def reports(folder: RunFolder) -> dict[str, dict[str, Any]]:
    legs = legs_of(folder)
    made = llm_d.documents(build_evidence(legs, folder.run_name), legs)
    return {f"{leg}:{label}": document for leg, label, document in made}


@pytest.mark.parametrize("made", RUNS)
def test_every_format_holds_every_point_with_the_same_values(made: Callable[[Path], RunFolder], tmp_path: Path) -> None:
    folder = made(tmp_path)
    evidence = Ledger(folder).evidence
    document = Export.model_validate_json(exported(folder, tmp_path, "json").read_text())
    assert [f"{row['leg']}:{row['label']}" for row in document.points] == [row.id for row in evidence.points]
    assert all(list(row) == [column.name for column in columns()] for row in document.points) or not document.points
    with exported(folder, tmp_path, "csv").open(newline="") as stream:
        told = list(csv.DictReader(stream))
    typed = pyarrow.parquet.read_table(exported(folder, tmp_path, "parquet")).to_pylist()
    assert len(told) == len(typed) == len(document.points)
    for row, text, typed_row in zip(document.points, told, typed, strict=True):
        for column in columns():
            value = row[column.name]
            if column.kind == "json":
                assert json.loads(text[column.name] or "null") == json.loads(typed_row[column.name] or "null") == value
            else:
                assert typed_row[column.name] == value
                assert text[column.name] == ("" if value is None else json.dumps(value).strip('"'))


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_run_gives_the_same_bytes_and_stays_untouched(tmp_path: Path, format: str) -> None:
    folder = factory.good_run(tmp_path / "runs")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    (tmp_path / "again").mkdir()
    first, second = exported(folder, tmp_path, format), exported(folder, tmp_path / "again", format)
    paths = [sorted(one.iterdir()) if one.is_dir() else [one] for one in (first, second)]
    assert [path.read_bytes() for path in paths[0]] == [path.read_bytes() for path in paths[1]]
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_column_is_the_field_of_a_figures_id(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    ledger = Ledger(folder)
    document = Export.model_validate_json(exported(folder, tmp_path, "json").read_text())
    for row in document.points:
        for name in ("ttft_ms.p50", "output_tok_s", "e2e_ms.mean", "completed", "seed"):
            assert ledger.explain(f"{row['leg']}:{row['label']}:{name}").value == row[name]


def test_every_column_has_words_and_every_figure_a_unit() -> None:
    for column in columns():
        assert column.words, f"say what {column.name} is, in its model or in pdlab/export/columns.py"
        if column.kind == "number" and "load_1m" not in column.name:
            assert column.unit, column


def test_the_page_has_every_column() -> None:
    text = exports_page.PAGE.read_text()
    assert exports_page.page(text) == text, "run: .venv/bin/python scripts/exports_page.py"


def test_a_failed_point_has_no_figures_in_any_format(tmp_path: Path) -> None:
    folder = factory.failed_point_run(tmp_path)
    rows = Export.model_validate_json(exported(folder, tmp_path, "json").read_text()).points
    (failed,) = (row for row in rows if row["label"] == "c16-n48")
    assert (failed["ok"], failed["counts"], failed["completed"], failed["output_tok_s"]) == (False, False, 31, None)
    report = reports(folder)["pd-r0:c16-n48"]
    assert "NOT A RESULT: 31 of 48" in report["run"]["description"]
    assert report["results"]["request_performance"]["aggregate"] == {
        "requests": {"total": 48, "failures": 17, "incomplete": 17}
    }


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = factory.good_run(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    arguments = ["export", str(folder.path), "--format", "parquet", "-o", str(tmp_path / "x.parquet")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == Exit.ERROR
    assert "pip install 'pyarrow>=20'" in done.stderr
    assert not (tmp_path / "x.parquet").exists()


# --- llm-d --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", RUNS)
def test_every_report_is_valid_by_llm_ds_schema(made: Callable[[Path], RunFolder], tmp_path: Path) -> None:
    folder = made(tmp_path)
    found = reports(folder)
    measured = [row.id for row in Ledger(folder).evidence.points if row.point.measured]
    assert list(found) == measured
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for document in found.values():
        validator.validate(document)


def test_a_report_carries_the_figures_and_what_ran(tmp_path: Path) -> None:
    folder = on_gpus(tmp_path)
    found = reports(folder)
    report, ledger = found["pd-r1:rag-r4-n40"], Ledger(folder)
    aggregate = report["results"]["request_performance"]["aggregate"]
    ttft = ledger.explain("pd-r1:rag-r4-n40:ttft_ms.p50").value
    assert aggregate["latency"]["time_to_first_token"]["p50"] == ttft
    assert "p90" not in aggregate["latency"]["time_to_first_token"], "40 requests support no p90"
    assert aggregate["throughput"]["request_rate"] == {"units": "queries/s", "mean": 4.0}
    assert aggregate["requests"]["output_length"]["mean"] == 64
    load = report["scenario"]["load"]["standardized"]
    assert (load["rate_qps"], load["input_seq_len"]) == (4.0, {"distribution": "fixed", "value": 2048})
    assert "concurrency" not in load
    parts = {one["metadata"]["label"]: one["standardized"] for one in report["scenario"]["stack"]}
    assert parts["decode-0"]["role"] == "decode"
    assert parts["decode-0"]["accelerator"] == {"model": "NVIDIA H200", "count": 1, "parallelism": {"tp": 1}}
    assert parts["router"]["kind"] == "generic"
    seen = {one["component_label"]: one["aggregate"] for one in report["results"]["observability"]["components"]}
    assert seen["decode-0"]["running_requests"] == {"units": "count", "mean": 9.25}
    colocated = found["tp2-r1:short-c16-n40"]["scenario"]
    assert colocated["load"]["standardized"]["concurrency"] == 16
    assert {one["standardized"].get("role") for one in colocated["stack"]} == {"replica", None}
    assert "NOT A RESULT" in found["pd-r2:rag-r4-n40"]["run"]["description"]
    assert len({document["run"]["uid"] for document in found.values()}) == len(found)


def test_a_reports_yaml_says_what_the_report_says(tmp_path: Path) -> None:
    for document in reports(factory.good_run(tmp_path)).values():
        assert yaml.safe_load(llm_d.as_yaml(document)) == document


def test_what_is_not_known_stays_out(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.measure(16, 48)
    folder = run.end("ok", 0)
    factory.write_raw(folder.path, "c16-n48", factory.client_line(16, 48, details=False))
    report = reports(folder)["pd-r0:c16-n48"]
    requests = report["results"]["request_performance"]["aggregate"]["requests"]
    assert requests == {"total": 48, "incomplete": 0}
    assert {one["standardized"]["kind"] for one in report["scenario"]["stack"]} == {"generic"}
    assert "observability" not in report["results"]
    assert "rehearsal" in report["run"]["keywords"]
    assert "null" not in json.dumps({**report, "scenario": None}).replace('"scenario": null', "")


def test_a_shared_prefix_is_in_the_input_lengths(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    path = folder.path / "records" / "point-c16-n48.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dataset": "shared-prefix"}))
    raw = json.loads(folder.raw_path("c16-n48").read_text())
    factory.write_raw(folder.path, "c16-n48", {**raw, "input_lens": [2176] * 24 + [2180] * 24})
    load = reports(folder)["pd-r0:c16-n48"]["scenario"]["load"]["standardized"]
    assert load["input_seq_len"] == {"distribution": "other", "value": 2178.0, "min": 2176, "max": 2180}


def test_options_are_read_from_a_command_line_and_secrets_are_hidden() -> None:
    argv = ["numactl", "--membind=0", "python", "-m", "sglang.launch_server", "--tp-size", "2", "--flag", "--x=1=2"]
    argv += ["--prefill", "http://a", "8998", "--prefill", "http://b", "8999", "--api-key", "geheim"]
    assert arguments(argv) == {
        "--tp-size": "2",
        "--flag": None,
        "--x": "1=2",
        "--prefill": ["http://a", "8998", "http://b", "8999"],
        "--api-key": "(hidden)",
    }


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_prints_or_writes_and_llm_d_fills_a_folder(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path / "runs")
    runs = ["--runs-dir", str(tmp_path / "runs")]
    printed = CliRunner().invoke(app, ["export", *runs])
    assert printed.exit_code == 0
    assert printed.stdout.splitlines()[0].startswith("run,rehearsal,leg,arm")
    assert len(list(yaml.safe_load_all(CliRunner().invoke(app, ["export", "-f", "llm-d", *runs]).stdout))) == 3
    out = tmp_path / "reports"
    done = CliRunner().invoke(app, ["export", folder.name, "-f", "llm-d", "-o", str(out), *runs])
    assert "(3 reports)" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "pd-r0_c1-n8.yaml", "pd-r0_c16-n48.yaml", "pd-r0_c64-n96.yaml",
    ]  # fmt: skip
    nowhere = CliRunner().invoke(app, ["export", "-o", str(tmp_path / "no" / "file"), *runs])
    assert nowhere.exit_code == Exit.ERROR
    assert "No such file" in nowhere.stderr
    assert CliRunner().invoke(app, ["export", "nothing", *runs]).exit_code == Exit.USAGE
