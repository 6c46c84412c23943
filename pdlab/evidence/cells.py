# SPDX-License-Identifier: Apache-2.0
"""Points of all legs as rows, and their means over the repeats of an arm at one load. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pdlab.analysis.comparison import mean_interval
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.sweep import analyse
from pdlab.evidence.asked import asked_of
from pdlab.evidence.legs import Leg
from pdlab.evidence.measured import servers_of
from pdlab.evidence.model import Cell, Interval, LimitSet, Load, PointRow
from pdlab.results.model import Latency, Point

RATES = ("output_tok_s", "peak_output_tok_s", "total_tok_s", "request_s", "mean_concurrency")
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
OF_A_LATENCY = ("mean", "p50", "p90", "p95", "p99", "max")
PER_GPU = "output_tok_s_per_gpu"
CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class Sample:
    """One point with all that was made of it. `measurement` is None when it has no figures."""

    row: PointRow
    limits: tuple[LimitSet, ...]
    measurement: Measurement | None
    gpus: int | None

    @property
    def place(self) -> tuple[str, Load]:
        """Its workload and load."""
        return self.row.workload, self.row.load


def samples_of(legs: Iterable[Leg]) -> list[Sample]:
    """Every point of every leg. What binds a point is told from the points that count."""
    made = []
    for leg in legs:
        plan = leg.contents.plan or {}
        gpus = servers_of(plan).gpus
        measured = {one.label: one for one in leg.measurements}
        for point in leg.report.points:
            asked = asked_of(point, plan)
            row = PointRow(
                id=f"{leg.id}:{point.label}",
                leg=leg.id,
                arm=leg.arm,
                repeat=leg.repeat,
                workload=asked.workload,
                load=asked.load,
                counts=point.counts and point.label in measured and is_known(asked.load),
                point=point,
            )
            made.append(Sample(row, asked.limits, measured.get(point.label), gpus))
    return _with_bounds(_with_paths(made))


def is_known(load: Load) -> bool:
    """Whether a load says how requests arrive. A point whose does not can be compared with none."""
    return load.concurrency is not None or load.rate_s is not None


def counting(samples: Iterable[Sample]) -> list[Measurement]:
    """The points that verdicts rest on, as an analysis wants them."""
    return [one.measurement for one in samples if one.row.counts and one.measurement is not None]


def _with_bounds(samples: Sequence[Sample]) -> list[Sample]:
    verdicts = {
        (one.point.arm, one.point.repeat, one.point.label): one.verdict
        for arm in analyse(counting(samples))
        for one in arm.points
    }
    made = []
    for one in samples:
        found = verdicts.get((one.row.arm, one.row.repeat, one.row.point.label))
        row = one.row.model_copy(update={"bound": found.name, "bound_words": found.words}) if found else one.row
        made.append(replace(one, row=row))
    return made


def _with_paths(samples: Sequence[Sample]) -> list[Sample]:
    """What one leg measured of an arm's KV path holds for its other legs, which may not have measured it."""
    paths: dict[str, float] = {}
    for one in samples:
        path = one.measurement.kv.path_gb_s_at_least if one.measurement else None
        if path is not None:
            paths[one.row.arm] = max(path, paths.get(one.row.arm, 0.0))

    def told(one: Measurement) -> Measurement:
        return replace(one, kv=replace(one.kv, path_gb_s_at_least=paths[one.arm])) if one.arm in paths else one

    return [replace(one, measurement=told(one.measurement)) if one.measurement else one for one in samples]


def figures_of(point: Point, gpus: int | None) -> dict[str, float]:
    """The figures of a point by field, as in "output_tok_s" or "ttft_ms.p50"; those that exist."""
    found = {name: getattr(point, name) for name in RATES}
    if gpus and point.output_tok_s is not None:
        found[PER_GPU] = point.output_tok_s / gpus
    for name in LATENCIES:
        latency: Latency = getattr(point, name)
        found.update({f"{name}.{part}": getattr(latency, part) for part in OF_A_LATENCY})
    return {name: value for name, value in found.items() if value is not None}


def cells_of(samples: Iterable[Sample]) -> list[Cell]:
    """One cell an arm, workload and load, from the points that count; in the order in which they first appear.

    A figure stands there when every repeat has it: means over other repeats would not be of the same runs.
    """
    groups: dict[tuple[str, str, Load], list[Sample]] = {}
    for one in samples:
        if one.row.counts:
            groups.setdefault((one.row.arm, *one.place), []).append(one)
    return [_cell(arm, workload, load, group) for (arm, workload, load), group in groups.items()]


def _cell(arm: str, workload: str, load: Load, group: Sequence[Sample]) -> Cell:
    figures = [figures_of(one.row.point, one.gpus) for one in group]
    names = [name for name in figures[0] if all(name in other for other in figures)]
    bounds = {one.row.bound for one in group}
    return Cell(
        arm=arm,
        workload=workload,
        load=load,
        points=[one.row.id for one in group],
        figures={name: interval_of([figure[name] for figure in figures]) for name in names},
        bound=next(iter(bounds)) if len(bounds) == 1 else CANNOT_SAY,
    )


def interval_of(values: Sequence[float]) -> Interval:
    """The mean over repeats with its 95 % interval."""
    mean, low, high = mean_interval(values)
    return Interval(mean=mean, low=low, high=high, n=len(values))


def by_arm(samples: Iterable[Sample]) -> Mapping[tuple[str, Load], dict[str, dict[int, Sample]]]:
    """The points that count by workload and load, then arm, then repeat."""
    found: dict[tuple[str, Load], dict[str, dict[int, Sample]]] = {}
    for one in samples:
        if one.row.counts:
            found.setdefault(one.place, {}).setdefault(one.row.arm, {})[one.row.repeat] = one
    return found


def highest_loads(samples: Sequence[Sample]) -> list[tuple[str, Load, dict[str, Sample]]]:
    """Each workload's highest closed-loop load, and its first counting repeat of each arm."""
    found: dict[str, tuple[Load, dict[str, Sample]]] = {}
    for (workload, load), group in by_arm(samples).items():
        if load.loop == "closed" and (load.concurrency or 0) > 1:
            known = found.get(workload)
            if known is None or (load.concurrency or 0) > (known[0].concurrency or 0):
                found[workload] = (load, {arm: repeats[min(repeats)] for arm, repeats in group.items()})
    return [(workload, load, here) for workload, (load, here) in found.items()]
