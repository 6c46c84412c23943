# SPDX-License-Identifier: Apache-2.0
"""How often intervals, winners and verdicts are wrong, by simulation: as often as they say, and no more."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from pdlab.analysis.comparison import compare
from pdlab.analysis.decision import settled_claim
from pdlab.evidence.build import build_evidence
from pdlab.evidence.goods import Good
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Arm, LimitSet, Load
from pdlab.evidence.verdict_under_limits import verdict_under_limits
from pdlab.evidence.winners import winners_of
from pdlab.report.charts.distributions import share_chart, spread_chart
from pdlab.report.charts.plot import ArmLooks
from pdlab.report.markdown_evidence import evidence_blocks
from tests.unit.evidence.arms_run_factory import seeded_run

LIMITS = LimitSet(ttft_ms=1000, tpot_ms=8)
LOADS = [Load(loop="closed", concurrency=load) for load in (16, 32, 64)]
RUNS = 1500


def noisy(draw: random.Random, mean: float, drift: Sequence[float], spread: float) -> list[float]:
    """Repeats of one arm: what drifts on the box is in every arm of a repeat, and noise is a factor."""
    return [mean * common * math.exp(draw.gauss(0, spread)) for common in drift]


@pytest.mark.parametrize("pairs", [2, 3, 5])
@pytest.mark.parametrize(
    ("effect", "spreads"), [(1.0, (0.03, 0.03)), (3.0, (0.02, 0.2))], ids=["none", "unlike spread"]
)
def test_the_interval_of_a_ratio_holds_the_true_one_in_95_of_100_runs(
    pairs: int, effect: float, spreads: tuple[float, float]
) -> None:
    draw = random.Random(f"{pairs} {effect}")
    held = claimed_wrongly = 0
    for _ in range(RUNS):
        drift = [math.exp(draw.gauss(0, 0.05)) for _pair in range(pairs)]
        found = compare("x", noisy(draw, effect, drift, spreads[0]), noisy(draw, 1.0, drift, spreads[1]))
        assert found.ratio_low is not None and found.ratio_high is not None
        held += found.ratio_low <= effect <= found.ratio_high
        claimed_wrongly += settled_claim(found) in (("higher", "lower") if effect == 1 else ("lower",))
    # Three standard errors of a share of 0.95 over RUNS.
    assert held / RUNS == pytest.approx(0.95, abs=0.017)
    assert claimed_wrongly / RUNS <= 0.067


def arms(others: int) -> list[Arm]:
    made = [Arm(name="pd", disaggregated=True, prefill=1, decode=1, colocated=0, gpus=2)]
    named = [f"tp{number}" for number in range(others)]
    return made + [Arm(name=name, disaggregated=False, prefill=0, decode=0, colocated=1, gpus=2) for name in named]


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_where_arms_do_not_differ_a_square_in_twenty_has_a_winner_and_a_verdict_is_seldom_wrong(
    repeats: int, others: int
) -> None:
    """Each arm is taken at the best of three loads, chosen from the same runs."""
    draw = random.Random(f"{repeats} {others}")
    runs = 500
    squares = won = use = do_not = 0
    for _ in range(runs):
        drift = [[math.exp(draw.gauss(0, 0.03)) for _repeat in range(repeats)] for _load in LOADS]
        goods = {
            arm.name: {
                load: Good(dict(enumerate(noisy(draw, 5.0, common, 0.05))), 0.5)
                for load, common in zip(LOADS, drift, strict=True)
            }
            for arm in arms(others)
        }
        cells = winners_of("chat", LIMITS, goods, {})
        squares, won = squares + len(cells), won + sum(cell.winner is not None for cell in cells)
        row = verdict_under_limits("chat", LIMITS, arms(others), goods, {})
        assert row
        use, do_not = use + (row.answer == "use"), do_not + (row.answer == "do not use")
    assert won / squares <= 0.07
    assert use / runs <= 0.05
    # Lower than one of several other arms is enough, and level within 5 % is rightly no reason to use it.
    assert do_not / runs <= 0.05 + 0.05 * others


def test_reports_say_that_a_grid_is_many_comparisons(tmp_path: Path) -> None:
    folder = seeded_run(tmp_path, repeats=2, arms=("pd", "tp2"))
    found = build_evidence(legs_of(folder), folder.name)
    assert any("about one square in twenty has a winner all the same" in block for block in evidence_blocks(found))


def test_with_unlike_numbers_of_gpus_the_best_load_and_the_largest_factor_are_both_per_gpu() -> None:
    two, four = (Good(dict.fromkeys(range(3), rate), 0.5) for rate in (2.0, 6.0))
    own = [Arm(name="pd", disaggregated=True, prefill=1, decode=3, colocated=0, gpus=4), *arms(1)[1:]]
    row = verdict_under_limits("chat", LIMITS, own, {"pd": {LOADS[0]: four}, "tp0": {LOADS[0]: two, LOADS[1]: two}}, {})
    assert row and row.quantity == "goodput_s_per_gpu" and row.effect == pytest.approx(1.5)
    # 6 against 2 a second is 1.5 times per GPU, which is no larger factor than the effect.
    assert "3 times" not in row.sentence


@pytest.mark.parametrize(
    ("count", "said", "within"),
    [(8, "all of 8 requests between", "all 8 within"), (64, "80 % of 64 requests between", "90 % within"),
     (130, "90 % of 130 requests between", "90 % within")],
)  # fmt: skip
def test_a_chart_says_no_percentile_that_its_requests_do_not_support(count: int, said: str, within: str) -> None:
    values = {("pd", LOADS[0]): [float(value) for value in range(count)]}
    looks = ArmLooks(("pd",))
    spread = spread_chart("a", "ttft_ms", "closed", LOADS[:1], values, looks)
    share = share_chart("b", "ttft_ms", LOADS[0], values, [], looks)
    assert spread and said in spread.summary and share and within in share.summary
    (box,) = spread.spec["data"]
    if count == 8:
        assert (box["lowerfence"], box["upperfence"]) == ([0.0], [7.0])
