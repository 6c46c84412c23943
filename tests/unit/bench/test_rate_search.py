# SPDX-License-Identifier: Apache-2.0
"""A search over rates in a run: which questions there are, which points answer them, and what is played."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.benchmark_points import resolve_benchmark
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.workload_points import at_rate, with_more, with_seeds

from pdlab.analysis.goodput import Limits
from pdlab.analysis.measurement import Measurement, Requests
from pdlab.bench import search as searching
from pdlab.bench.arms_document import sweep_fingerprint
from pdlab.bench.search import Question, next_point, questions, repeated_points, search, wanted
from pdlab.session import Step
from pdlab.store import RunFolder
from tests.unit.analysis.points import point as measured_point

LIMITS = {"ttft_ms": 100}
PRESETS: dict[str, Any] = {
    "rag": {"input_len": 4096, "output_len": 128, "limits": [LIMITS], "points": [{"rate_s": 1}, {"rate_s": 4}]},
    "chat": {"limits": [LIMITS, {"ttft_ms": 1000, "tpot_ms": 5}], "points": [{"rate_s": 2}]},
    "short": {"limits": [LIMITS], "points": [{"concurrency": 4}]},
    "lenient": {"points": [{"rate_s": 2}]},
    "prefix": {"dataset": "shared-prefix", "prefix_groups": 8, "limits": [LIMITS], "points": [{"rate_s": 2}]},
}


def plan_of(*workloads: str, rehearsal: bool = False) -> dict[str, Any]:
    faults = Faults()
    benchmark = resolve_benchmark({"workloads": list(workloads)}, PRESETS, faults)
    assert benchmark is not None, list(map(str, faults))
    return {"rehearsal": rehearsal, "benchmark": benchmark}


def at(rate: float, good: bool) -> Measurement:
    requests = Requests((10.0 if good else 9999.0,) * 100, (1.0,) * 100)
    return measured_point(requests=requests, requested=100, rate_s=rate, concurrency=None)


def test_questions_are_open_loops_with_limits_one_for_each_set() -> None:
    assert questions(plan_of("rag", "chat", "short", "lenient")) == [
        Question("rag", Limits(100)),
        Question("chat", Limits(100)),
        Question("chat", Limits(1000, 5)),
    ]


@pytest.mark.parametrize(
    ("workload", "rehearsal", "asked", "searched"),
    [
        ("rag", False, None, True),
        ("rag", True, None, False),
        ("rag", True, True, True),
        ("rag", False, False, False),
        ("short", False, True, False),
    ],
)
def test_rates_are_searched_unasked_where_figures_mean_something(
    workload: str, rehearsal: bool, asked: bool | None, searched: bool
) -> None:
    assert wanted(plan_of(workload, rehearsal=rehearsal), asked) is searched


def test_a_point_at_another_rate_is_like_its_neighbour_and_lasts_as_long() -> None:
    points = plan_of("rag")["benchmark"]["points"]
    assert [point["prompts"] for point in points] == [64, 240]
    made = at_rate(points, "rag", 2.8)
    assert (made["label"], made["rate_s"], made["prompts"]) == ("r2.8-n168", 2.8, 168)
    assert {**made, "label": None, "rate_s": 4, "prompts": 240} == {**points[1], "label": None}
    assert at_rate(points, "rag", 0.2)["prompts"] == 64
    assert at_rate(points, "rag", 4)["label"] == "r4-n240-2", "a label that no other point has"
    assert at_rate(plan_of("rag", "chat")["benchmark"]["points"], "rag", 2)["label"] == "rag-r2-n120"
    assert at_rate(plan_of("prefix")["benchmark"]["points"], "prefix", 1.3)["prompts"] % 8 == 0
    with pytest.raises(ValueError, match="no point in an open loop"):
        at_rate(plan_of("short")["benchmark"]["points"], "short", 2)


def test_the_next_point_answers_the_first_question_that_is_open() -> None:
    plan = plan_of("rag", "chat")
    found = next_point(plan, {"rag": [at(1, True), at(4, False)], "chat": [at(2, True)]}, {})
    assert found is not None
    question, point = found
    assert (question, point["label"]) == (Question("rag", Limits(100)), "rag-r2-n120")
    later = next_point(plan, {"rag": [at(1, True), at(4, False)], "chat": [at(2, True)]}, {question: 4})
    assert later is not None and later[1]["label"] == "chat-r4-n240", "no question costs more than its share"


def test_a_rate_without_figures_is_not_measured_again() -> None:
    plan = plan_of("rag")
    plan["benchmark"] = with_more(plan["benchmark"], [at_rate(plan["benchmark"]["points"], "rag", 2)])
    assert next_point(plan, {"rag": [at(1, True), at(4, False)]}, {}) is None


def test_further_points_do_not_make_it_another_sweep_and_neither_does_a_repeats_seed() -> None:
    plan = plan_of("rag")
    more = with_more(with_seeds(plan["benchmark"], 3), [at_rate(plan["benchmark"]["points"], "rag", 2)])
    assert more["searched"] == ["r2-n120"]
    assert [point["label"] for point in more["points"]] == ["r1-n64", "r4-n240", "r2-n120"]
    assert sweep_fingerprint({"benchmark": more}) == sweep_fingerprint(plan)


def test_a_repeat_measures_the_rates_that_earlier_repeats_of_the_arm_chose_with_its_own_seed() -> None:
    first = plan_of("rag")
    first["benchmark"] = with_more(first["benchmark"], [at_rate(first["benchmark"]["points"], "rag", 2)])
    second = {**plan_of("rag"), "benchmark": with_seeds(plan_of("rag")["benchmark"], 1)}
    (again,) = repeated_points(second, [first])
    assert (again["label"], again["seed"]) == ("r2-n120", 43)


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Step]]:
    """Plays a search against servers that keep the limits up to a rate; the steps that were played."""

    def played(plan: dict[str, Any], truth: float, asked: bool | None, earlier: list[RunFolder]) -> list[Step]:
        folder = RunFolder(tmp_path)
        monkeypatch.setattr(RunFolder, "plan_document", lambda self: plan)

        def measured(_folder: RunFolder) -> dict[str, list[Measurement]]:
            found: dict[str, list[Measurement]] = {}
            for point in plan["benchmark"]["points"]:
                if point["rate_s"]:
                    found.setdefault(point["workload"], []).append(at(point["rate_s"], point["rate_s"] <= truth))
            return found

        monkeypatch.setattr(searching, "by_workload", measured)
        own = dict(plan["benchmark"])
        steps = []
        for step in search(folder, asked, earlier):
            steps.append(step)
            plan["benchmark"] = with_more(own, step.variables["pdlab_more_points"])
        return steps

    return played


def test_a_search_measures_one_point_at_a_time_and_makes_the_report_again(box: Callable[..., list[Step]]) -> None:
    steps = box(plan_of("rag"), 3.0, None, [])
    assert [step.playbook for step in steps] == ["benchmark"] * (len(steps) - 1) + ["report"]
    assert [step.variables.get("pdlab_only_points") for step in steps[:-1]] == [
        ["r2-n120"],
        ["r2.8-n168"],
        ["r3.3-n198"],
    ]
    assert len(steps[-1].variables["pdlab_more_points"]) == 3


def test_a_search_that_is_not_wanted_or_has_nothing_left_plays_nothing(box: Callable[..., list[Step]]) -> None:
    assert box(plan_of("rag", rehearsal=True), 3.0, None, []) == []
    assert box(plan_of("short"), 3.0, True, []) == []


def test_a_search_ends_when_its_points_are_spent(box: Callable[..., list[Step]]) -> None:
    steps = box(plan_of("rag"), 1e9, None, [])
    assert len(steps) == searching.MOST + 1
