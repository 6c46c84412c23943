# SPDX-License-Identifier: Apache-2.0
"""What verdicts, rates and advice say where repeats are unlike in number, rates contradict each other, or loads differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdlab.analysis.advice import copies
from pdlab.analysis.measurement import Measurement, Servers
from pdlab.evidence.build import build_evidence
from pdlab.evidence.goods import Good
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Arm, LimitSet, Load
from pdlab.evidence.verdict_under_limits import verdict_under_limits
from pdlab.explain import explain, lines
from pdlab.report.winners import rates
from tests.unit.evidence.arms_run_factory import SHORT, ArmsRun, client_line, planned
from tests.unit.evidence.test_odd_runs import fast_pd, rag_run

LIMITS = LimitSet(ttft_ms=1000, tpot_ms=8)
LOAD = Load(loop="closed", concurrency=16)
ARMS = [
    Arm(name="pd", disaggregated=True, prefill=1, decode=1, colocated=0, gpus=2),
    Arm(name="tp2", disaggregated=False, prefill=0, decode=0, colocated=1, gpus=2),
    Arm(name="dp2", disaggregated=False, prefill=0, decode=0, colocated=2, gpus=2),
]


def good(*values: float) -> dict[Load, Good]:
    return {LOAD: Good(dict(enumerate(values)), 0.5)}


def test_one_pair_is_said_of_the_arm_that_has_it() -> None:
    """An interval of three repeats beside "one run of each" would contradict itself."""
    several = verdict_under_limits(
        "chat", LIMITS, ARMS, {"pd": good(9, 9.1, 9.2), "tp2": good(5, 5.1, 5.2), "dp2": good(4)}, {}
    )
    assert several and "one repeat in common with dp2 has no spread" in several.sentence
    assert "3 repeats" in several.sentence and "one run of each" not in several.sentence
    alone = verdict_under_limits("chat", LIMITS, ARMS, {"pd": good(9), "tp2": good(5), "dp2": good(4)}, {})
    assert alone and "one run of each has no spread" in alone.sentence


def test_rates_that_contradict_each_other_give_no_highest_rate_anywhere(tmp_path: Path) -> None:
    folder = rag_run(tmp_path, lambda arm, _repeat, rate: 9.0 if (arm, rate) == ("tp2", 4.0) else 6.0)
    found = build_evidence(legs_of(folder), folder.name)
    (row,) = (rate for rate in found.rates if rate.arm == "tp2")
    assert row.estimate_s is None and not row.settled and "contradict" in row.words
    assert [rate.figure.text for rate in rates(found) if rate.arm == "tp2"] == ["n/a"]
    said = " ".join(" ".join(lines(explain(legs_of(folder), folder.name))).split())
    assert "tp2 not known: rates contradict each other" in said
    assert "between what keeps and what does not" not in (found.verdicts[0].next_measurement or "")


def test_a_highest_rate_from_few_requests_is_called_not_settled(tmp_path: Path) -> None:
    """20 requests, all good, leave the share of good ones between 84 % and 100 %."""
    folder = rag_run(tmp_path, lambda arm, _repeat, rate: 9.0 if rate == 8.0 and arm == "tp2" else 6.0, repeats=(1,))
    said = " ".join(" ".join(lines(explain(legs_of(folder), folder.name))).split())
    assert "/s (not settled)" in said
    folder = rag_run(tmp_path / "more", fast_pd)
    assert "not settled" not in " ".join(lines(explain(legs_of(folder), folder.name)))


@pytest.mark.parametrize(
    ("low_load", "said"), [(3.0, "the same holds at the other load"), (9.0, "does not show the same")]
)
def test_two_loads_that_disagree_are_said_to(tmp_path: Path, low_load: float, said: str) -> None:
    """TPOT of pd at 1 request is `low_load` ms against 4 ms; at 16 it answers faster and serves as many."""
    run = ArmsRun(tmp_path, ("pd", "tp2"), 2)
    for repeat in (1, 2):
        for arm in ("pd", "tp2"):
            made = []
            for load in (1, 16):
                asked = planned(SHORT, 16, repeat, load, prefix=False)
                tpot = (low_load if load == 1 else 3.0) if arm == "pd" else 4.0
                e2e_s = 0.05 + tpot / 1000 * (SHORT["output_len"] - 1) + repeat * 1e-5
                made.append(
                    (asked, client_line(asked, [0.05] * 16, [tpot / 1000 + repeat * 1e-7] * 16, 16 * e2e_s / load))
                )
            run.leg(arm, repeat, made)
    folder = run.end()
    (row,) = build_evidence(legs_of(folder), folder.name).verdicts
    assert said in row.sentence


def test_the_bracket_of_copies_is_of_means_not_of_the_best_repeat() -> None:
    def point(load: int, rate: float, repeat: int) -> Measurement:
        return Measurement(
            label=f"c{load}", request_s=rate, input_len=256, output_len=100, tpot_ms=5.0, ttft_ms=50.0, arm="tp1",
            concurrency=load, repeat=repeat, servers=Servers(0, 0, 1, 1),
        )  # fmt: skip

    found = copies([point(8, 1.0, 0), point(8, 3.0, 1), point(32, 4.0, 0), point(32, 6.0, 1)], 2, 32)
    assert (found.low, found.high) == (400.0, 1000.0)
