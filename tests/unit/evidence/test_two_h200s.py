# SPDX-License-Identifier: Apache-2.0
"""What pdlab measured on two H200s (docs/evidence/h200x2), read again: the verdicts that its documentation quotes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Evidence
from pdlab.report.headline import headline
from pdlab.report.markdown import section
from pdlab.results.build import build_report
from pdlab.store import RunFolder

RUN = Path(__file__).parents[3] / "docs" / "evidence" / "h200x2" / "rag-repeats"


@pytest.fixture(scope="module")
def found() -> Evidence:
    return build_evidence(legs_of(RunFolder.open(RUN)), RUN.name)


def test_three_paired_repeats_of_each_arm_are_whole_and_all_points_count(found: Evidence) -> None:
    assert [leg.id for leg in sorted(found.legs, key=lambda leg: leg.order)] == [
        "pd-r1", "tp2-r1", "tp2-r2", "pd-r2", "tp2-r3", "pd-r3",
    ]  # fmt: skip
    assert not found.rehearsal and all(leg.ok for leg in found.legs)
    assert [(row.counts, row.point.requested, row.point.completed) for row in found.points] == [(True, 72, 72)] * 6


@pytest.mark.parametrize(
    ("tpot_ms", "answer", "effect", "low", "high"),
    [
        (6, "use", 3.01, 2.64, 3.44),
        (8, "use", 1.72, 1.54, 1.92),
        (12, "cannot tell", 0.98, 0.84, 1.16),
    ],
)
def test_the_tighter_the_limit_the_more_prefill_decode_gains(
    found: Evidence, tpot_ms: float, answer: str, effect: float, low: float, high: float
) -> None:
    (row,) = (verdict for verdict in found.verdicts if verdict.limits.tpot_ms == tpot_ms)
    assert (row.answer, row.repeats) == (answer, 3)
    assert [row.effect, row.low, row.high] == pytest.approx([effect, low, high], abs=0.01)


def test_page_and_findings_tell_how_it_went_by_its_legs(found: Evidence) -> None:
    report = build_report(RunFolder.open(RUN).read())
    assert headline(report, found) == "Passed: 6 of 6 legs, 432 of 432 requests completed"


def test_findings_say_which_arms_ran_and_nothing_that_only_a_leg_has(found: Evidence) -> None:
    body = section(RunFolder.open(RUN).read(), evidence=found)
    assert "- Arms: pd (1 prefill, 1 decode), tp2 (1 colocated)\n" in body
    for word in ("- Model:", "- Servers:", "- Engine:"):
        assert word not in body


def test_servers_on_gpus_of_their_own_are_not_said_to_share(found: Evidence) -> None:
    assert found.verdicts and not any("same GPU" in verdict.sentence for verdict in found.verdicts)


def test_the_canary_went_the_whole_way_on_two_gpus() -> None:
    read = {path.stem: json.loads(path.read_text()) for path in (RUN.parent / "canary").glob("*.json")}
    report, oracle, moved = read["results"], read["oracle"], read["kv_transfer"]
    assert (report["ok"], report["exit_code"], report["rehearsal"]) == (True, 0, True)
    assert [stage["name"] for stage in report["stages"] if stage["ok"]] == [
        "preflight", "deploy", "ready", "verify", "benchmark", "report",
    ]  # fmt: skip
    assert [(point["completed"], point["requested"]) for point in report["points"]] == [(4, 4), (12, 12)]
    assert [answer["ok"] for answer in read["answers"]["answers"]] == [True] * 3
    cases = [case for case in oracle["results"] if case["length"] in oracle["lengths"]]
    assert len(cases) == oracle["identical"] == 22 and oracle["control_differs"]
    assert moved["ucx"] == {"prefill-0": ["zero-copy cuda_ipc/cuda"]} and moved["failed"] == 0
    assert moved["nvlink"]["bytes"] / moved["bytes"] == pytest.approx(0.9997, abs=0.0001)
