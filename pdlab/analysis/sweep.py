# SPDX-License-Identifier: Apache-2.0
"""A whole set of points analysed at once: each point, then each arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.analysis.bounds import Context, Verdict, name_bound
from pdlab.analysis.capacity import DecodeCapacity, decode_capacity
from pdlab.analysis.closed_loop import Difference, beside, model_of, solve
from pdlab.analysis.evidence import Bound
from pdlab.analysis.goodput import Goodput, Limits, goodput
from pdlab.analysis.laws import Little, Occupancy, in_flight, little, occupancy
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.rate_search import HighestRate, highest_rate
from pdlab.analysis.refusal import RefusedError
from pdlab.analysis.support import Flag, flags
from pdlab.analysis.what_if import FittedArm, fit_arm


@dataclass(frozen=True)
class PointAnalysis:
    """One point. What was refused is None, and `refused` says why, by the field's name."""

    point: Measurement
    occupancy: Occupancy | None
    little: Little | None
    verdict: Verdict
    capacity: DecodeCapacity | None
    prediction: tuple[Difference, ...]
    goodput: Goodput | None
    flags: tuple[Flag, ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ArmAnalysis:
    """One arm: its points in order of load for each workload, the fitted curves, the highest rate for each workload."""

    arm: str
    points: tuple[PointAnalysis, ...]
    fitted: FittedArm | None
    rates: tuple[tuple[tuple[float, float], HighestRate], ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SweepBound:
    """What binds a sweep of closed-loop points with the same lengths: the bound at its highest load.

    `by_load`: concurrency and name, in order; repeats that disagree at a load make it "cannot say".
    """

    workload: tuple[float, float]
    name: Bound
    by_load: tuple[tuple[float, Bound], ...]
    words: str


def sweep_bounds(arm: ArmAnalysis) -> tuple[SweepBound, ...]:
    """The bound of each of an arm's closed-loop sweeps."""
    found: dict[tuple[float, float], dict[float, set[Bound]]] = {}
    for one in arm.points:
        if one.point.concurrency is not None:
            names = found.setdefault(one.point.workload, {}).setdefault(one.point.concurrency, set())
            names.add(one.verdict.name)
    made = []
    for workload, loads in found.items():
        by_load = tuple((load, next(iter(n)) if len(n := loads[load]) == 1 else "cannot say") for load in sorted(loads))
        said = ", ".join(f"{name} at {load:g}" for load, name in by_load)
        words = f"{arm.arm}, {workload[0]:g} in, {workload[1]:g} out: {said}"
        made.append(SweepBound(workload, by_load[-1][1], by_load, words))
    return tuple(made)


def analyse(points: Sequence[Measurement], limits: Limits | None = None) -> tuple[ArmAnalysis, ...]:
    """Everything that the points support, by arm in the order in which arms first appear."""
    arms: dict[str, list[Measurement]] = {}
    for point in points:
        arms.setdefault(point.arm, []).append(point)
    return tuple(_arm(name, group, limits) for name, group in arms.items())


def _arm(name: str, points: Sequence[Measurement], limits: Limits | None) -> ArmAnalysis:
    contexts = _contexts(points)
    ordered = sorted(points, key=lambda p: (p.workload, p.concurrency or 0, p.rate_s or 0, p.repeat))
    named = [(point, name_bound(point, contexts[_load(point)])) for point in ordered]
    refused: list[tuple[str, str]] = []
    fitted: FittedArm | None = None
    saturated = frozenset(point.label for point, verdict in named if verdict.name == "prefill-bound")
    try:
        fitted = fit_arm(ordered, saturated)
    except RefusedError as error:
        refused.append(("fitted", str(error)))
    counts: dict[tuple[object, ...], int] = {}
    for point in ordered:
        counts[_load(point)] = counts.get(_load(point), 0) + 1
    analysed = tuple(
        _point(point, verdict, fitted, dict(refused).get("fitted"), limits, counts[_load(point)])
        for point, verdict in named
    )
    rates: list[tuple[tuple[float, float], HighestRate]] = []
    if limits:
        for workload in sorted({point.workload for point in ordered if point.rate_s is not None}):
            try:
                rates.append((workload, highest_rate([p for p in ordered if p.workload == workload], limits)))
            except RefusedError as error:
                refused.append(("rates", str(error)))
    return ArmAnalysis(name, analysed, fitted, tuple(rates), tuple(refused))


def _point(
    point: Measurement,
    verdict: Verdict,
    fitted: FittedArm | None,
    why_unfitted: str | None,
    limits: Limits | None,
    repeats: int,
) -> PointAnalysis:
    refused: list[tuple[str, str]] = []
    capacity: DecodeCapacity | None = None
    prediction: tuple[Difference, ...] = ()
    good: Goodput | None = None
    if fitted is None:
        refused += [(name, why_unfitted or "") for name in ("capacity", "prediction")]
    else:
        try:
            capacity = decode_capacity(point, fitted.tpot)
        except RefusedError as error:
            refused.append(("capacity", str(error)))
        try:
            prediction = _predicted(point, fitted)
        except RefusedError as error:
            refused.append(("prediction", str(error)))
    if limits:
        try:
            good = goodput(point, limits)
        except RefusedError as error:
            refused.append(("goodput", str(error)))
    return PointAnalysis(
        point,
        occupancy(point),
        little(point),
        verdict,
        capacity,
        prediction,
        good,
        flags(point, repeats),
        tuple(refused),
    )


def _predicted(point: Measurement, fitted: FittedArm) -> tuple[Difference, ...]:
    if point.concurrency is None:
        raise RefusedError("the model is of a closed loop, and this point is of an open one")
    fit = fitted.prefill_fit
    model = model_of(fit.latency, fit.service, fitted.tpot, point.input_len, fitted.prefill, fitted.decode)
    return beside(solve(model, in_flight(point), point.output_len), point)


def _load(point: Measurement) -> tuple[object, ...]:
    return (point.workload, point.concurrency, point.rate_s)


def _contexts(points: Sequence[Measurement]) -> dict[tuple[object, ...], Context]:
    """The context of every load at once: each point looking for its neighbours would take quadratic time."""
    loads: dict[tuple[float, float], dict[float, list[Measurement]]] = {}
    for point in points:
        if point.concurrency is not None:
            loads.setdefault(point.workload, {}).setdefault(point.concurrency, []).append(point)
    alone: dict[float, list[Measurement]] = {}
    for point in points:
        if point.concurrency == 1:
            alone.setdefault(point.input_len, []).append(point)
    found: dict[tuple[object, ...], Context] = {}
    for point in points:
        own = loads.get(point.workload, {})
        order = sorted(own)
        if point.concurrency is None:
            found[_load(point)] = Context(alone=alone.get(point.input_len, ()))
            continue
        place = order.index(point.concurrency)
        found[_load(point)] = Context(
            alone=alone.get(point.input_len, ()),
            below=own[order[place - 1]] if place else (),
            above=own[order[place + 1]] if place + 1 < len(order) else (),
        )
    return found
