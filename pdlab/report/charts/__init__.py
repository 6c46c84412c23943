# SPDX-License-Identifier: Apache-2.0
"""The report's charts, as plain data for plotly.js. `chart_sections` makes all of them from evidence and legs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdlab.evidence.legs import Leg
from pdlab.evidence.model import Evidence, Load
from pdlab.report.arm_tables import WorkloadTable, shown_rows
from pdlab.report.charts.distributions import share_chart, spread_chart
from pdlab.report.charts.over_load import over_load_charts
from pdlab.report.charts.pareto import pareto_charts
from pdlab.report.charts.plot import ArmLooks, Chart
from pdlab.report.charts.queues import queue_chart, roles_of
from pdlab.report.loads import load_value, load_words, ordered_loads

Samples = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class ChartSections:
    """The charts of one workload, by the section of the page that they belong to."""

    over_load: tuple[Chart, ...]
    spread: tuple[Chart, ...]
    pareto: tuple[Chart, ...]
    queues: tuple[Chart, ...]

    @property
    def all(self) -> tuple[Chart, ...]:
        """Every chart."""
        return (*self.over_load, *self.spread, *self.pareto, *self.queues)


def chart_sections(
    number: int, table: WorkloadTable, evidence: Evidence, legs: Sequence[Leg], samples: Samples, looks: ArmLooks
) -> ChartSections:
    """The charts of the page's `number`-th workload. Ids are unique among workloads, and the same each time."""
    loads = [group.load for group in table.groups]
    return ChartSections(
        over_load=tuple(
            over_load_charts(table.loop, table.cells, table.doubtful, _failed(table, evidence), looks, f"load-{number}")
        ),
        spread=tuple(_spread(number, table, loads, evidence, legs, looks)),
        pareto=tuple(pareto_charts(table.cells, looks, f"pareto-{number}")),
        queues=tuple(_queues(number, table, evidence, legs, samples)),
    )


def _failed(table: WorkloadTable, evidence: Evidence) -> list[Load]:
    """The loads of a workload at which an arm was measured and has no figure."""
    have = {(cell.arm, cell.load) for cell in table.cells}
    return ordered_loads(
        row.load
        for row in evidence.points
        if (row.workload, row.load.loop) == (table.name, table.loop)
        and row.point.measured
        and not row.point.ok
        and (row.arm, row.load) not in have
        and load_value(row.load) > 0
    )


def watched_points(evidence: Evidence) -> list[str]:
    """The points whose queues are drawn: of each arm and workload the heaviest load, its first repeat that counts."""
    best: dict[tuple[str, str, str], tuple[float, int, str]] = {}
    for row in shown_rows(evidence):
        key = (row.workload, row.load.loop, row.arm)
        found = (-load_value(row.load), row.repeat, row.id)
        if key not in best or found < best[key]:
            best[key] = found
    return [id for _load, _repeat, id in best.values()]


def _spread(
    number: int,
    table: WorkloadTable,
    loads: Sequence[Load],
    evidence: Evidence,
    legs: Sequence[Leg],
    looks: ArmLooks,
) -> list[Chart]:
    requests = {
        (leg.id, one.label): one.requests for leg in legs for one in leg.measurements if one.requests is not None
    }
    rows = [
        row
        for row in shown_rows(evidence)
        if (row.workload, row.load.loop) == (table.name, table.loop)
        and (row.leg, row.point.label) in requests
    ]  # fmt: skip
    if not rows:
        return []
    common = [load for load in loads if len({row.arm for row in rows if row.load == load}) > 1]
    heaviest = (common or [load for load in loads if any(row.load == load for row in rows)])[-1]
    made = []
    for field in ("ttft_ms", "tpot_ms"):
        values: dict[tuple[str, Load], list[float]] = {}
        for row in rows:
            values.setdefault((row.arm, row.load), []).extend(getattr(requests[row.leg, row.point.label], field))
        made.append(spread_chart(f"spread-{number}-{field}", field, table.loop, loads, values, looks))
        made.append(share_chart(f"share-{number}-{field}", field, heaviest, values, table.limits, looks))
    return [chart for chart in made if chart is not None]


def _queues(
    number: int, table: WorkloadTable, evidence: Evidence, legs: Sequence[Leg], samples: Samples
) -> list[Chart]:
    by_id = {leg.id: leg for leg in legs}
    made: list[Chart | None] = []
    for row in evidence.points:
        if row.id not in samples or (row.workload, row.load.loop) != (table.name, table.loop):
            continue
        roles = roles_of(by_id[row.leg].contents.plan or {}) if row.leg in by_id else {}
        name = f"{row.arm}, {load_words(row.load)}"
        made.append(queue_chart(f"queues-{number}-{len(made)}", name, samples[row.id], roles))
    return [chart for chart in made if chart is not None]


__all__ = ["ArmLooks", "Chart", "ChartSections", "Samples", "chart_sections", "watched_points"]
