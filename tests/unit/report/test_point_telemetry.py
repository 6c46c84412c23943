# SPDX-License-Identifier: Apache-2.0
"""What is kept with a point beside its figures comes from the record into the report and the analysis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pdlab import tables
from pdlab.analysis.measurement import Servers, from_point
from pdlab.point_telemetry import box_telemetry, client_figures, engine_figures, limits_of
from pdlab.report import markdown
from pdlab.results.build import build_report
from pdlab.results.model import Point
from tests.unit.report import run_folder_factory as factory

ENGINE = {
    "samples": 9,
    "prefill_waiting": 2.5,
    "decode_running": 12.0,
    "decode_places": 48.0,
    "pool_tokens": 65536.0,
    "kv_transfer_bytes": 1024000,
    "prompt_tokens": 1000.0,
}
BOX = {
    "load_1m": {"min": 1.0, "mean": 2.0, "max": 3.0},
    "cpu_mhz": None,
    "gpus": [{"index": 1, "sm_mhz": {"min": 1, "mean": 2, "max": 3}, "throttle_reasons": ["power cap"]}],
}
LAG = {"n": 50, "mean": 0.5, "p99": 2.0, "max": 9.0}


def point(tmp_path: Path, **changes: Any) -> Point:
    """The second point of a good run with changes to its record."""
    run = factory.good_run(tmp_path)
    path = run.path / "records" / "point-c16-n48.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return build_report(run.read()).points[1]


def test_a_record_without_telemetry_is_one_of_an_earlier_pdlab_and_still_counts(tmp_path: Path) -> None:
    found = point(tmp_path)
    assert found.ok and found.counts and found.loop == "closed"
    assert (found.engine, found.box, found.client, found.limits) == (None, None, None, [])


def test_a_doubt_keeps_the_figures_and_the_point_does_not_count(tmp_path: Path) -> None:
    checks = [{"id": "client_slow", "ok": False, "seen": "97%", "wanted": "80%", "grade": "doubt"}]
    found = point(tmp_path, counts=False, checks=checks, why=["client_slow: 97%"])
    assert found.ok and not found.counts and found.output_tok_s
    assert found.checks[0].grade == "doubt" and found.why == ["client_slow: 97%"]


def test_what_the_engine_said_reaches_the_analysis(tmp_path: Path) -> None:
    found = point(tmp_path, engine=ENGINE)
    measured = from_point(found, Servers())
    assert measured is not None and measured.engine is not None
    assert (measured.engine.prefill_waiting, measured.engine.decode_running) == (2.5, 12.0)
    assert measured.engine.decode_prealloc is None
    assert (measured.kv.bytes_per_token_at_most, measured.kv.pool_tokens) == (1024, 65536)


def test_an_open_loop_is_measured_at_its_rate(tmp_path: Path) -> None:
    found = point(tmp_path, loop="open", rate_s=4.0, concurrency=None, limits=[{"ttft_ms": 500}], workload="chat")
    measured = from_point(found, Servers())
    assert measured is not None and (measured.rate_s, measured.concurrency) == (4.0, None)
    assert found.workload == "chat" and found.limits[0].ttft_ms == 500 and found.limits[0].tpot_ms is None


def test_box_and_client_are_read_as_they_were_kept() -> None:
    box = box_telemetry(BOX)
    assert box is not None and box.load_1m is not None and box.load_1m.mean == 2.0 and box.cpu_mhz is None
    assert box.gpus[0].throttle_reasons == ["power cap"] and box.gpus[0].power_w is None
    client = client_figures({"cpu_share": 0.25, "loop_lag_ms": LAG, "argv": ["x"]})
    assert client is not None and client.cpu_share == 0.25 and client.loop_lag_ms is not None
    assert client.loop_lag_ms.p99 == 2.0


@pytest.mark.parametrize("damaged", [None, "text", 5, [], {"gpus": "x", "load_1m": 5, "loop_lag_ms": "y"}])
def test_damaged_telemetry_is_no_telemetry(damaged: Any) -> None:
    assert client_figures(damaged) is None
    engine, box = engine_figures(damaged), box_telemetry(damaged)
    assert engine is None or engine.samples is None
    assert box is None or (box.load_1m is None and box.gpus == [])
    assert limits_of(damaged) in ([], [limits_of([{}])[0]])


def test_a_doubtful_point_and_an_open_loop_say_so_on_the_terminal_and_in_the_findings(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    records = run.path / "records"
    doubt = {"counts": False, "why": ["client_slow: 97% of a core"]}
    opened = {"loop": "open", "rate_s": 0.5, "concurrency": None}
    for name, change in (("point-c16-n48", doubt), ("point-c64-n96", opened)):
        path = records / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found = build_report(run.read())
    shown = tables.plain(tables.results_table(found))
    assert "c16-n48 is doubtful, and left out of verdicts: client_slow: 97% of a core" in " ".join(shown.split())
    assert "256 in, 128 out, open loop" in shown and "0.5/s" in shown
    assert max(map(len, shown.splitlines())) <= 80
    written = markdown.section(run.read())
    assert "c16-n48 is doubtful, and left out of verdicts: " in written
    assert "| 0.5/s " in written
