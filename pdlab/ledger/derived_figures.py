# SPDX-License-Identifier: Apache-2.0
"""Figures over several points: means over repeats, comparisons, goodput, highest rates, winners, verdicts.

Each is worked out again from the figures that it comes from, in a plain way of its own, and held against the evidence.
Intervals are shown as the evidence has them: docs/analysis.md says how they are made.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from pdlab.evidence import figure_ids as ids
from pdlab.evidence import row_ids
from pdlab.evidence.model import Arm, Cell, Evidence, Interval, LimitSet, Load, PointRow, RateRow, VerdictRow
from pdlab.ledger.explained import Explained, Value

Of = Callable[[str], Explained]

NO_LIMITS = LimitSet()


class NoFigureError(ValueError):
    """The evidence has no such figure. The message says what it has."""


def cell_figure(evidence: Evidence, figure: ids.CellFigure, explain: Of) -> Explained:
    """The mean over the repeats of one arm that count."""
    cell = find_cell(evidence, figure.arm, figure.workload, figure.load)
    if cell is None or figure.field not in cell.figures:
        raise NoFigureError(
            f"there is no {figure}; {_some(row_ids.cell_ids(evidence.cells if cell is None else [cell]))}"
        )
    rows = [row for row in evidence.points if row.id in cell.points]
    inputs = [explain(ids.point_figure(row.leg, row.point.label, figure.field)) for row in rows]
    shown = cell.figures[figure.field]
    return Explained(
        id=str(figure),
        what=f"{figure.field} of {figure.arm} on {figure.workload} at {ids.load_word(figure.load)}, mean over repeats",
        value=_mean([one.value for one in inputs]),
        shown=shown.mean,
        more=_interval(shown),
        formula=f"mean of {len(inputs)} repeat{'s' * (len(inputs) != 1)}; the interval is Student's, 95 %",
        inputs=inputs,
    )


def compare_figure(evidence: Evidence, figure: ids.CompareFigure, explain: Of) -> Explained:
    """The mean difference of two arms over the repeats that both have."""
    found = (
        row
        for row in evidence.comparisons
        if (row.workload, row.load, row.quantity, row.a, row.b)
        == (figure.workload, figure.load, figure.quantity, figure.a, figure.b)
    )
    row = next(found, None)
    if row is None:
        raise NoFigureError(f"there is no {figure}; {_some(row_ids.comparison_ids(evidence))}")
    pairs = _pairs(evidence, figure)
    inputs = [explain(ids.point_figure(one.leg, one.point.label, figure.quantity)) for pair in pairs for one in pair]
    a, b = ([one.value for one in inputs[side::2]] for side in (0, 1))
    known = [(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, float) and isinstance(y, float)]
    return Explained(
        id=str(figure),
        what=f"{figure.quantity} of {figure.a} against {figure.b} on {figure.workload} at "
        f"{ids.load_word(figure.load)}: {row.claim}",
        value=statistics.fmean(x - y for x, y in known) if known else None,
        shown=row.difference,
        more={
            "low": row.low,
            "high": row.high,
            "ratio": _ratio(known),
            "ratio_low": row.ratio_low,
            "ratio_high": row.ratio_high,
        },
        formula=f"mean of {figure.a} - {figure.b} over {len(known)} repeat{'s' * (len(known) != 1)} of the same seed; "
        "ratio: geometric mean; intervals: Student's, 95 %",
        inputs=inputs,
    )


def rate_figure(evidence: Evidence, figure: ids.RateFigure, explain: Of) -> Explained:
    """Where attainment crosses the share, on a line between the last rate that keeps and the first that does not."""
    row = find_rate(evidence, figure.arm, figure.workload, figure.limits)
    if row is None:
        raise NoFigureError(f"there is no {figure}; {_some(row_ids.rate_ids(evidence))}")
    points = [
        point
        for point in evidence.points
        if point.counts and (point.arm, point.workload, point.load.loop) == (row.arm, row.workload, "open")
    ]
    points.sort(key=lambda point: (point.load.rate_s or 0.0, point.repeat))
    inputs = [explain(ids.goodput_figure(point.leg, point.point.label, figure.limits)) for point in points]
    shares = _attainment(points, inputs)
    kept, failed, estimate = _crossing(shares, row.share)
    seen = "; ".join(f"{share:.1%} at {rate:g} req/s" for rate, share in shares.items())
    # Rates that contradict each other have no estimate, though a line could be drawn.
    return Explained(
        id=str(figure),
        what=f"highest rate at which {figure.arm} keeps the limits of {figure.workload} for {row.share:.0%} of requests, "
        f"requests per second: {row.words}",
        value=estimate,
        shown=row.estimate_s,
        more={"kept_s": kept, "failed_s": failed, "settled": row.settled},
        formula=f"where the share of good requests falls below {row.share:.0%}, on a straight line between two rates: {seen}",
        inputs=inputs,
    )


def winner_figure(evidence: Evidence, figure: ids.WinnerFigure, explain: Of) -> Explained:
    """Who wins at one load, or the goodput of one arm there."""
    cell = next(
        (
            one
            for one in evidence.winners
            if (one.workload, one.load, one.limits) == (figure.workload, figure.load, figure.limits)
        ),
        None,
    )
    if cell is None or (figure.arm is not None and figure.arm not in cell.goodput):
        raise NoFigureError(f"there is no {figure}; {_some(row_ids.winner_ids(evidence))}")
    where = f"{figure.workload} at {ids.load_word(figure.load)}, limits {ids.limits_word(figure.limits)}"
    if figure.arm is None:
        inputs = [explain(row_ids.winner_id(cell, arm)) for arm in sorted(cell.goodput)]
        # A winner is judged from the intervals between arms, not from means alone.
        return Explained(
            id=str(figure),
            what=f"who wins on {where}: {cell.words}",
            value=cell.winner,
            shown=cell.winner,
            formula="the arm whose goodput is shown to be higher than every other arm's; none when no difference is shown",
            inputs=inputs,
        )
    rows = [
        row
        for row in evidence.points
        if row.counts and (row.arm, row.workload, row.load) == (figure.arm, figure.workload, figure.load)
    ]
    asked = [explain(ids.goodput_figure(row.leg, row.point.label, figure.limits)) for row in rows]
    inputs = [one for one in asked if one.value is not None]
    shown = cell.goodput[figure.arm]
    return Explained(
        id=str(figure),
        what=f"good requests per second of {figure.arm} on {where}",
        value=_mean([one.value for one in inputs]),
        shown=shown.mean,
        more=_interval(shown),
        formula=f"mean of {len(inputs)} repeat{'s' * (len(inputs) != 1)}; the interval is Student's, 95 %",
        inputs=inputs,
    )


def verdict_figure(evidence: Evidence, figure: ids.VerdictFigure, explain: Of) -> Explained:
    """The ratio that a verdict rests on."""
    found = (one for one in evidence.verdicts if (one.workload, one.limits) == (figure.workload, figure.limits))
    row = next(found, None)
    if row is None:
        raise NoFigureError(f"there is no {figure}; {_some(row_ids.verdict_ids(evidence))}")
    more: dict[str, Value] = {"answer": row.answer, "low": row.low, "high": row.high, "repeats": row.repeats}
    inputs: list[Explained] = []
    if row.effect is None:
        value, formula = None, "none: there is no effect to give"
    elif row.limits == NO_LIMITS:
        value, formula, inputs = _without_limits(evidence, row, explain)
    else:
        value, formula, inputs = _under_limits(evidence, row, explain)
    return Explained(
        id=str(figure),
        what=f"the effect on {figure.workload}, limits {ids.limits_word(figure.limits)}: {row.sentence}",
        value=value,
        shown=row.effect,
        more=more,
        formula=formula,
        inputs=inputs,
    )


def find_cell(evidence: Evidence, arm: str, workload: str, load: Load) -> Cell | None:
    """The cell of an arm at one load."""
    found = (cell for cell in evidence.cells if (cell.arm, cell.workload, cell.load) == (arm, workload, load))
    return next(found, None)


def find_rate(evidence: Evidence, arm: str, workload: str, limits: LimitSet) -> RateRow | None:
    """The highest rate of an arm."""
    found = (row for row in evidence.rates if (row.arm, row.workload, row.limits) == (arm, workload, limits))
    return next(found, None)


def _without_limits(evidence: Evidence, row: VerdictRow, explain: Of) -> tuple[float | None, str, list[Explained]]:
    """The comparison with the best other arm, at the highest load that both kinds of arm have."""
    rows = [one for one in evidence.comparisons if (one.workload, one.quantity) == (row.workload, row.quantity)]
    apart = {arm.name for arm in evidence.arms if arm.disaggregated}
    rows = [one for one in rows if one.a in apart and one.b not in apart]
    if not rows:
        return None, f"{row.quantity}: no comparison of the arms", []
    top = max((one.load for one in rows), key=lambda load: (load.concurrency or 0, load.rate_s or 0.0))
    here = [one for one in rows if one.load == top]
    own = max((one.a for one in here), key=lambda arm: _cell_mean(evidence, arm, row, top))
    here = [one for one in here if one.a == own]
    best = max((one.b for one in here), key=lambda arm: _cell_mean(evidence, arm, row, top))
    inputs = [explain(ids.compare_figure(row.workload, top, row.quantity, own, one.b)) for one in here]
    value = next((one.more["ratio"] for one, compared in zip(inputs, here, strict=True) if compared.b == best), None)
    formula = f"ratio of {row.quantity}, {own} over {best} (the best other arm), at {ids.load_word(top)}"
    return (value if isinstance(value, float) else None), formula, inputs


def _under_limits(evidence: Evidence, row: VerdictRow, explain: Of) -> tuple[float | None, str, list[Explained]]:
    """Each arm at the load at which its mean goodput is highest; prefill/decode over the best other arm."""
    gpus = {arm.name: arm.gpus or 1 for arm in evidence.arms} if row.quantity.endswith("_per_gpu") else {}
    inputs: list[Explained] = []
    good: dict[str, dict[Load, dict[int, float]]] = {}
    for point in evidence.points:
        if point.counts and point.workload == row.workload:
            one = explain(ids.goodput_figure(point.leg, point.point.label, row.limits))
            if isinstance(one.value, float):
                inputs.append(one)
                by_load = good.setdefault(point.arm, {}).setdefault(point.load, {})
                by_load[point.repeat] = one.value / gpus.get(point.arm, 1)
    peaks = {arm: _peak(by_load) for arm, by_load in good.items()}
    own, best = _best(evidence.arms, peaks, apart=True), _best(evidence.arms, peaks, apart=False)
    if own is None or best is None:
        return None, "no goodput of both kinds of arm", inputs
    (own_load, a), (best_load, b) = peaks[own], peaks[best]
    common = sorted(a.keys() & b.keys())
    formula = (
        f"goodput of {own} at {ids.load_word(own_load)} over {best} at {ids.load_word(best_load)}, each at its best load: "
        f"geometric mean over {len(common)} repeat{'s' * (len(common) != 1)}"
    )
    return _ratio([(a[repeat], b[repeat]) for repeat in common]), formula, inputs


def _peak(by_load: Mapping[Load, Mapping[int, float]]) -> tuple[Load, Mapping[int, float]]:
    """The load with the highest mean, of those that more than half of the repeats measured."""
    most = max(len(values) for values in by_load.values())
    load = max(
        (one for one, values in by_load.items() if 2 * len(values) > most),
        key=lambda one: (statistics.fmean(by_load[one].values()), one.concurrency or 0, one.rate_s or 0.0),
    )
    return load, by_load[load]


def _best(arms: Sequence[Arm], peaks: Mapping[str, tuple[Load, Mapping[int, float]]], *, apart: bool) -> str | None:
    names = [arm.name for arm in arms if arm.disaggregated is apart and arm.name in peaks]
    return max(names, key=lambda name: statistics.fmean(peaks[name][1].values()), default=None)


def _attainment(points: Sequence[PointRow], inputs: Sequence[Explained]) -> dict[float, float]:
    """The share of good requests at each rate, over all repeats."""
    good: dict[float, list[tuple[float, float]]] = {}
    for point, one in zip(points, inputs, strict=True):
        met, sent = one.more.get("good"), one.more.get("requested")
        # A point whose requests' times were not kept tells nothing of its rate.
        if one.value is not None and isinstance(met, int) and isinstance(sent, int) and point.load.rate_s is not None:
            good.setdefault(point.load.rate_s, []).append((met, sent))
    return {rate: sum(met for met, _ in rows) / sum(sent for _, sent in rows) for rate, rows in sorted(good.items())}


def _crossing(shares: Mapping[float, float], wanted: float) -> tuple[float | None, float | None, float | None]:
    rates = list(shares)
    bad = next((index for index, rate in enumerate(rates) if shares[rate] < wanted), len(rates))
    kept = rates[bad - 1] if bad else None
    failed = rates[bad] if bad < len(rates) else None
    again = any(shares[rate] >= wanted for rate in rates[bad + 1 :])
    if kept is None or failed is None or again:
        return kept, failed, None
    fall = (shares[kept] - wanted) / (shares[kept] - shares[failed])
    return kept, failed, kept + fall * (failed - kept)


def _pairs(evidence: Evidence, figure: ids.CompareFigure) -> list[tuple[PointRow, PointRow]]:
    """The points of both arms at that load, by the repeats that both have, and that have the figure."""
    sides: list[dict[int, PointRow]] = [
        {
            row.repeat: row
            for row in evidence.points
            if row.counts and (row.arm, row.workload, row.load) == (arm, figure.workload, figure.load)
        }
        for arm in (figure.a, figure.b)
    ]
    return [(sides[0][repeat], sides[1][repeat]) for repeat in sorted(sides[0].keys() & sides[1].keys())]


def _ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    """The geometric mean of a / b; None when a value is not positive."""
    if not pairs or any(a <= 0 or b <= 0 for a, b in pairs):
        return None
    return math.exp(statistics.fmean(math.log(a / b) for a, b in pairs))


def _mean(values: Sequence[Value]) -> float | None:
    known = [float(value) for value in values if isinstance(value, int | float)]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _interval(shown: Interval) -> dict[str, Value]:
    return {"low": shown.low, "high": shown.high, "n": shown.n}


def _cell_mean(evidence: Evidence, arm: str, row: VerdictRow, load: Load) -> float:
    cell = find_cell(evidence, arm, row.workload, load)
    figure = cell.figures.get(row.quantity) if cell else None
    return figure.mean if figure else -math.inf


def _some(names: Iterable[str]) -> str:
    """What there is instead, some of it."""
    listed = list(names)
    return f"there is {', '.join(listed[:6])}{' ...' if len(listed) > 6 else ''}" if listed else "there is none"
