# SPDX-License-Identifier: Apache-2.0
"""The search over rates: after a sweep, further rates are measured in the same run until each highest one is bracketed.

Which rate comes next is decided by analysis/rate_search.py; here is what it is asked about, and how it is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.workload_points import OPEN, at_rate

from pdlab.analysis.goodput import Limits
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.rate_search import next_rate
from pdlab.evidence.legs import read_leg
from pdlab.loose import as_rows
from pdlab.session import Step
from pdlab.store import RunFolder

# For each workload and set of limits. Two settle a bracket of one stride; the others are for a sweep that lies too low
# or too high.
MOST = 4

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """One workload and one set of limits, whose highest rate is wanted."""

    workload: str
    limits: Limits


def wanted(plan: Plan, search: bool | None) -> bool:
    """Whether rates are searched: as asked; unasked, where figures mean something and there is a question."""
    return bool(questions(plan)) and (not plan.get("rehearsal") if search is None else search)


def questions(plan: Plan) -> list[Question]:
    """What the plan's workloads leave open: each open loop with each of its sets of limits."""
    found = [
        Question(str(point["workload"]), Limits(*(limits.get(name) for name in ("ttft_ms", "tpot_ms", "e2e_ms"))))
        for point in as_rows(plan["benchmark"]["points"])
        if point.get("loop") == OPEN
        for limits in as_rows(point.get("limits"))
    ]
    return list(dict.fromkeys(question for question in found if question.limits != Limits()))


def next_point(
    plan: Plan, measured: Mapping[str, Sequence[Measurement]], spent: Mapping[Question, int], most: int = MOST
) -> tuple[Question, dict[str, Any]] | None:
    """The next question that is open, and the point that answers most of it; None when nothing is left to measure.

    `measured`: what there is, by workload, of this run and of earlier repeats of the same arm. `spent`: points that
    each question has cost. A rate of the plan's that has no figures has been tried in vain.
    """
    points = as_rows(plan["benchmark"]["points"])
    for question in questions(plan):
        if spent.get(question, 0) >= most:
            continue
        tried = [
            float(point["rate_s"]) for point in points if point["workload"] == question.workload and point["rate_s"]
        ]
        own = [one for one in measured.get(question.workload, ()) if one.rate_s is not None]
        known = [one.rate_s for one in own]
        rate = next_rate(own, question.limits, tried=[rate for rate in tried if rate not in known])
        if rate is not None:
            return question, at_rate(points, question.workload, rate)
    return None


def repeated_points(plan: Plan, earlier: Sequence[Plan]) -> list[dict[str, Any]]:
    """The points that a search added in earlier repeats of this arm, for the same rates: they are measured again."""
    asked: dict[tuple[str, float], None] = {}
    for other in earlier:
        searched = other["benchmark"].get("searched", [])
        for point in as_rows(other["benchmark"]["points"]):
            if point["label"] in searched:
                asked[(str(point["workload"]), float(point["rate_s"]))] = None
    points = list(as_rows(plan["benchmark"]["points"]))
    found: list[dict[str, Any]] = []
    for workload, rate in asked:
        try:
            point = at_rate([*points, *found], workload, rate)
        except ValueError:
            continue
        found.append(point)
    return found


def search(folder: RunFolder, asked: bool | None, earlier: Sequence[RunFolder] = ()) -> Iterator[Step]:
    """What more to play in a run whose sweep is through; nothing when no rate is to be searched.

    `earlier`: whole legs of the same arm. First their rates are measured again, so that repeats stand beside each
    other; then what is still open, over all of them together. At the end the report is made again.
    """
    plan = folder.plan_document()
    if not plan or not wanted(plan, asked):
        return
    before = [by_workload(leg) for leg in earlier]
    more: list[dict[str, Any]] = []
    for point in repeated_points(plan, [leg.plan_document() for leg in earlier]):
        more.append(point)
        yield measure(more)
    spent: dict[Question, int] = {}
    while True:
        now = by_workload(folder)
        pooled = {
            workload: [one for part in (now, *before) for one in part.get(workload, ())]
            for workload in {name for part in (now, *before) for name in part}
        }
        found = next_point(folder.plan_document(), pooled, spent)
        if found is None:
            break
        question, point = found
        spent[question] = spent.get(question, 0) + 1
        more.append(point)
        yield measure(more)
    if more:
        yield Step("report", {"pdlab_more_points": more})


def measure(more: Sequence[Mapping[str, Any]]) -> Step:
    """Measure the last of the further points; the plan gets all of them."""
    variables = {"pdlab_more_points": list(more), "pdlab_only_points": [more[-1]["label"]]}
    return Step("benchmark", variables)


def by_workload(folder: RunFolder) -> dict[str, list[Measurement]]:
    """A run's points that have figures, by workload."""
    workloads = {
        str(point["label"]): str(point.get("workload"))
        for point in as_rows(folder.plan_document().get("benchmark", {}).get("points"))
    }
    found: dict[str, list[Measurement]] = {}
    for one in read_leg(folder).measurements:
        found.setdefault(workloads.get(one.label, ""), []).append(one)
    return found
