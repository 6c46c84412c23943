# SPDX-License-Identifier: Apache-2.0
"""What pdlab did on one H200 (docs/evidence/h200x1), read again: what its README says of it follows from the files.

Both roles share the GPU there: the figures are real, and say nothing about disaggregation.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Evidence
from pdlab.explain import explain, lines
from pdlab.ledger.figures import Ledger
from pdlab.report.headline import headline
from pdlab.results.build import build_report
from pdlab.store import RunFolder

from .raw_lines import good_s

HERE = Path(__file__).parents[3] / "docs" / "evidence" / "h200x1"
RUN = HERE / "arms"


@pytest.fixture(scope="module")
def found() -> Evidence:
    return build_evidence(legs_of(RunFolder.open(RUN)), RUN.name)


def document(name: str) -> Any:
    return json.loads((HERE / name).read_text())


def each_repeat(arm: str, rate: str, tpot_ms: float) -> list[float]:
    """Good requests a second of each repeat."""
    counted = [good_s(path, tpot_ms) for path in sorted(RUN.glob(f"legs/*-{arm}-r?/bench/{rate}.jsonl"))]
    assert len(counted) == 3
    return counted


def test_three_paired_repeats_of_each_arm_are_whole_and_all_points_count(found: Evidence) -> None:
    assert [leg.id for leg in sorted(found.legs, key=lambda leg: leg.order)] == [
        "pd-r1", "colocated-r1", "colocated-r2", "pd-r2", "colocated-r3", "pd-r3",
    ]  # fmt: skip
    assert not found.rehearsal and all(leg.ok for leg in found.legs)
    assert [row.counts for row in found.points] == [True] * 12
    assert all(row.point.completed == row.point.requested for row in found.points)
    report = build_report(RunFolder.open(RUN).read())
    assert headline(report, found) == "Passed: 6 of 6 legs, 816 of 816 requests completed"


# Ratio and interval: the t-interval of the logarithms of three paired ratios, worked out beside pdlab.
@pytest.mark.parametrize(
    ("tpot_ms", "pd", "colocated", "effect", "low", "high"),
    [
        (8, 1.25, 1.49, 0.839, 0.687, 1.024),
        (12, 3.08, 2.90, 1.068, 0.969, 1.177),
        (25, 3.17, 3.60, 0.881, 0.656, 1.183),
    ],
)
def test_no_limit_tells_two_servers_on_one_gpu_from_one(
    found: Evidence, tpot_ms: float, pd: float, colocated: float, effect: float, low: float, high: float
) -> None:
    (row,) = (verdict for verdict in found.verdicts if verdict.limits.tpot_ms == tpot_ms)
    assert (row.answer, row.repeats) == ("cannot tell", 3)
    assert [row.effect, row.low, row.high] == pytest.approx([effect, low, high], abs=0.001)
    for arm, value in (("pd", pd), ("colocated", colocated)):
        assert statistics.mean(each_repeat(arm, "r4-n64", tpot_ms)) == pytest.approx(value, abs=0.005)


def test_a_verdict_on_servers_that_share_a_gpu_says_so_wherever_it_is_quoted(found: Evidence) -> None:
    note = "(pd: prefill and decode compute on the same GPU, which says nothing about GPUs of their own)."
    assert len(found.verdicts) == 3
    assert all(verdict.sentence.endswith(note) for verdict in found.verdicts)
    assert not found.rehearsal, "the figures are a GPU's"


def test_above_what_either_keeps_the_one_server_wins(found: Evidence) -> None:
    (row,) = (row for row in found.winners if row.load.rate_s == 8 and row.limits.tpot_ms == 25)
    assert row.winner == "colocated"
    means = [statistics.mean(each_repeat(arm, "r8-n72", 25)) for arm in ("pd", "colocated")]
    assert means == pytest.approx([0.70, 2.72], abs=0.005)


def test_no_bound_is_named_where_none_can_be_known(found: Evidence) -> None:
    assert {row.bound for row in found.points} == {"cannot say"}
    words = {row.arm: row.bound_words for row in found.points}
    assert "one request in flight" in words["pd"] and "share these servers" in words["colocated"]
    shown = "\n".join(lines(explain(legs_of(RunFolder.open(RUN)), RUN.name, None)))
    assert "pd, 1 prefill + 1 decode on 1 GPU, rag (4096 in, 128 out)" in shown


def test_every_figure_of_the_run_follows_from_its_raw_lines() -> None:
    ledger = Ledger(RunFolder(RUN))
    assert [id for id in ledger.every_id() if not ledger.explain(id).agrees] == []


@pytest.mark.parametrize(("page", "moved"), [(1, 9_308_160), (64, 10_158_080)])
def test_tokens_are_those_of_a_colocated_run_and_the_same_bytes_moved_as_between_two_gpus(
    page: int, moved: int
) -> None:
    oracle, kv = document(f"proofs/oracle-page-{page}.json"), document(f"proofs/kv_transfer-page-{page}.json")
    assert [row["identical"] for row in oracle["results"]] == [True] * 22
    assert max(row["max_logprob_diff"] for row in oracle["results"]) < 3e-17
    assert all(row["ok"] for row in document(f"proofs/answers-page-{page}.json")["answers"])
    two = json.loads((HERE.parent / "h200x2" / "proofs" / f"kv_transfer-page-{page}.json").read_text())
    assert kv["bytes"] == two["bytes"] == moved
    assert (kv["links"], kv["nvlink"], kv["ucx"]) == ({}, None, {"prefill-0": ["zero-copy cuda_ipc/cuda"]})


def test_the_silent_fault_passed_every_proof_but_that_of_its_log() -> None:
    assert document("silent-fault/kv_probe.json")["kept"] and document("silent-fault/kv_probe.json")["ok"]
    assert document("silent-fault/oracle.json")["identical"] == 22
    kv = document("silent-fault/kv_transfer.json")
    assert (kv["ok"], kv["bytes"], kv["ucx"]) == (False, 9_308_160, {"prefill-0": ["software emulation tcp/lo"]})
    assert "Failed at verify" in (HERE / "silent-fault" / "up.txt").read_text()


def test_pdlab_took_less_than_a_tenth_longer_than_its_launch_lines_by_hand() -> None:
    by_hand, own = document("overhead/hand.json"), document("overhead/pdlab.json")
    assert own["started_to_ready_s"] / by_hand["first_answer_s"] == pytest.approx(1.043, abs=0.001)
    stages = [json.loads(line) for line in (HERE / "overhead" / "stages.jsonl").read_text().splitlines()]
    times = {(row["stage"], row["event"]): row["time"] for row in stages}
    assert times["ready", "end"] - times["deploy", "start"] == pytest.approx(52.7, abs=0.05)
    leg = [json.loads(line) for line in (RUN / "legs" / "000-pd-r1" / "stages.jsonl").read_text().splitlines()]
    times = {(row["stage"], row["event"]): row["time"] for row in leg}
    assert times["ready", "end"] - times["deploy", "start"] == pytest.approx(35.5, abs=0.05)


def test_one_throughput_lies_between_the_two_runs_by_hand_and_the_other_above_them() -> None:
    by_hand: dict[int, list[float]] = {}
    for point in document("overhead/hand.json")["points"]:
        by_hand.setdefault(point["in"], []).append(point["output_throughput"])
    own = {point["input_len"]: point["output_tok_s"] for point in document("eight-billion/results.json")["points"]}
    assert min(by_hand[256]) < own[256] < max(by_hand[256])
    assert own[4096] / max(by_hand[4096]) == pytest.approx(1.016, abs=0.001)
