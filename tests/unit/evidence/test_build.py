# SPDX-License-Identifier: Apache-2.0
"""Legs of plain runs and runs of arms become one document of points and cells."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Evidence, Load
from tests.unit.evidence.arms_run_factory import campaign_run, h200_run, seeded_run
from tests.unit.report import run_folder_factory as factory


def evidence_of(folder, **more) -> Evidence:
    return build_evidence(legs_of(folder), folder.name, **more)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    return seeded_run(tmp_path_factory.mktemp("runs"))


def test_a_plain_run_is_one_leg_of_repeat_0(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    (leg,) = legs_of(run)
    assert (leg.id, leg.arm, leg.repeat, leg.order, leg.path) == ("pd-r0", "pd", 0, 0, ".")
    found = evidence_of(run)
    assert [point.id for point in found.points] == ["pd-r0:c1-n8", "pd-r0:c16-n48", "pd-r0:c64-n96"]
    assert {point.workload for point in found.points} == {"default"}
    assert all(point.counts for point in found.points)
    assert found.rehearsal


def test_a_run_of_arms_has_its_legs_in_the_order_in_which_they_ran(seeded) -> None:
    legs = legs_of(seeded)
    assert len(legs) == 15
    assert [leg.id for leg in legs[:6]] == ["pd-r1", "tp2-r1", "dp2-r1", "dp2-r2", "tp2-r2", "pd-r2"]
    found = evidence_of(seeded)
    assert [arm.name for arm in found.arms] == ["pd", "tp2", "dp2"]
    assert [arm.gpus for arm in found.arms] == [2, 2, 2]
    assert [arm.disaggregated for arm in found.arms] == [True, False, False]
    assert len(found.points) == 90
    for row in found.legs:
        assert (seeded.path / row.path / "run.json").is_file()


def test_a_cell_is_the_mean_of_its_repeats_with_an_interval(seeded) -> None:
    found = evidence_of(seeded)
    assert len(found.cells) == 18
    load = Load(loop="closed", concurrency=64)
    (cell,) = (c for c in found.cells if (c.arm, c.workload, c.load) == ("pd", "short", load))
    values = [p.point.output_tok_s for p in found.points if p.id in cell.points]
    figure = cell.figures["output_tok_s"]
    assert figure.n == len(values) == 5
    assert figure.mean == pytest.approx(sum(values) / 5)
    assert figure.low < min(figure.mean, max(values)) < figure.high
    assert cell.figures["output_tok_s_per_gpu"].mean == pytest.approx(figure.mean / 2)
    assert {"ttft_ms.mean", "ttft_ms.p50", "tpot_ms.mean", "e2e_ms.mean"} <= cell.figures.keys()


def test_a_point_that_failed_or_is_in_doubt_is_in_no_cell(tmp_path: Path) -> None:
    run = seeded_run(
        tmp_path, repeats=2, failed=[("pd-r1", "short-c64-n40")], doubtful=[("tp2-r2", "rag-r4-n40")], prompts=40
    )
    found = evidence_of(run)
    points = {point.id: point for point in found.points}
    assert not points["pd-r1:short-c64-n40"].counts and points["pd-r1:short-c64-n40"].point.output_tok_s is None
    assert not points["tp2-r2:rag-r4-n40"].counts and points["tp2-r2:rag-r4-n40"].point.output_tok_s is not None
    inside = {name for cell in found.cells for name in cell.points}
    assert inside == {point.id for point in found.points if point.counts}
    assert not next(leg for leg in found.legs if leg.id == "pd-r1").ok


def test_real_results_become_a_run_of_arms(tmp_path: Path) -> None:
    found = evidence_of(h200_run(tmp_path))
    assert {(arm.name, arm.gpus) for arm in found.arms} == {("pd", 2), ("tp2", 2), ("dp2", 2)}
    assert {point.workload for point in found.points} == {
        "short",
        "long-input",
        "long-output",
        "prefill-only",
        "rag",
        "chat",
    }
    rates = [p.load.rate_s for p in found.points if (p.arm, p.workload) == ("pd", "rag")]
    assert rates == [2.0, 4.0, 6.0, 8.0]


def test_legs_that_are_missing_or_damaged_leave_the_others(tmp_path: Path) -> None:
    run = seeded_run(tmp_path, repeats=2)
    legs = sorted((run.path / "legs").iterdir())
    (legs[0] / "plan.json").write_text("{ not json")
    (legs[1] / "run.json").unlink()
    for path in (legs[2] / "records").glob("point-*"):
        path.unlink()
    found = evidence_of(run)
    assert len(found.legs) == 6
    assert len([point for point in found.points if point.counts]) > 18
    shutil.rmtree(run.path / "legs")
    assert evidence_of(run).points == []


def test_the_document_goes_through_json_unchanged(seeded) -> None:
    found = evidence_of(seeded)
    assert Evidence.model_validate_json(found.model_dump_json()) == found


def test_lengths_that_are_drawn_still_make_one_sweep(tmp_path: Path) -> None:
    cells = evidence_of(campaign_run(tmp_path)).cells
    # Repeats and loads draw other lengths; the loads below and above are still this sweep's own.
    assert {cell.workload for cell in cells} == {"campaign"}
    legs = legs_of(campaign_run(tmp_path / "again"))
    assert len({one.workload for leg in legs for one in leg.measurements}) == 1
