# SPDX-License-Identifier: Apache-2.0
"""How TTFT and TPOT spread over requests: box plots over the loads, and the share of requests within a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdlab.evidence.model import LimitSet, Load
from pdlab.report.charts.plot import ArmLooks, Chart, Spec, layout, shown, title
from pdlab.report.loads import axis_words, load_value, load_words
from pdlab.results.latency import SAMPLES_NEEDED, percentile, supported

# Requests of all repeats that count, in ms, by arm and load.
Values = Mapping[tuple[str, Load], Sequence[float]]

NAMES = {"ttft_ms": "Time to first token (TTFT)", "tpot_ms": "Time per output token (TPOT)"}
# So many steps show the shape of a distribution; more would only make the page heavy.
STEPS = 100


def spread_chart(
    id: str, field: str, loop: str, loads: Sequence[Load], values: Values, looks: ArmLooks
) -> Chart | None:
    """Boxes from the first to the third quartile with the median, whiskers as far as the number of requests supports."""
    data: list[Spec] = []
    words = []
    for arm in looks.names:
        own = [(load, sorted(values[arm, load])) for load in loads if values.get((arm, load))]
        if not own:
            continue
        ends = [_ends(len(seen)) for _load, seen in own]
        quantiles = [
            [percentile(seen, share) for share in (1 - end, 0.25, 0.5, 0.75, end)]
            for (_load, seen), end in zip(own, ends, strict=True)
        ]
        data.append(
            {
                "type": "box",
                "name": shown(arm),
                "x": [f"{load_value(load):g}" for load, _seen in own],
                "lowerfence": [row[0] for row in quantiles],
                "q1": [row[1] for row in quantiles],
                "median": [row[2] for row in quantiles],
                "q3": [row[3] for row in quantiles],
                "upperfence": [row[4] for row in quantiles],
                "line": {"color": looks.colour(arm), "width": 1.5},
                "fillcolor": looks.colour(arm) + "-soft",
                "hovertemplate": "%{y:.4g} ms<extra>%{fullData.name}</extra>",
            }
        )
        words += [
            f"{arm} at {load_words(load)}: median {row[2]:.4g} ms, {_share_between(end)} of {len(seen)} requests between "
            f"{row[0]:.4g} and {row[4]:.4g}"
            for (load, seen), row, end in zip(own, quantiles, ends, strict=True)
        ]
    if not data:
        return None
    every = [f"{load_value(load):g}" for load in loads]
    x = {"title": title(axis_words(loop)), "type": "category", "categoryorder": "array", "categoryarray": every}
    spec = {
        "data": data,
        "layout": layout(x, {"title": title("ms"), "rangemode": "tozero"}, boxmode="group", boxgap=0.35),
    }
    note = (
        "Box: the middle half of requests, line: the median, whiskers: 5th to 95th percentile from "
        f"{SAMPLES_NEEDED['p95']} requests on, 10th to 90th from {SAMPLES_NEEDED['p90']} on, else all. All repeats together."
    )
    return Chart(id, NAMES[field], f"{NAMES[field]} over requests. " + "; ".join(words) + ".", spec, note=note)


def _ends(count: int) -> float:
    """The upper percentile that so many requests support; 1: all of them."""
    return 0.95 if supported("p95", count) else 0.9 if supported("p90", count) else 1.0


def _share_between(end: float) -> str:
    return "all" if end == 1.0 else f"{100 * (2 * end - 1):.0f} %"


def share_chart(
    id: str, field: str, load: Load, values: Values, limits: Sequence[LimitSet], looks: ArmLooks
) -> Chart | None:
    """The share of requests that took no longer than a time, at one load; limits that were stated as upright lines."""
    data: list[Spec] = []
    words = []
    for arm in looks.names:
        seen = sorted(values.get((arm, load), ()))
        if not seen:
            continue
        count = min(STEPS, len(seen))
        shares = [(step + 1) / count for step in range(count)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": shown(arm),
                "x": [_rounded(percentile(seen, share)) for share in shares],
                "y": [100 * share for share in shares],
                "line": {**looks.line(arm), "shape": "hv"},
                "hovertemplate": "%{y:.0f} % within %{x:.4g} ms<extra>%{fullData.name}</extra>",
            }
        )
        most = (
            f"90 % within {percentile(seen, 0.9):.4g} ms"
            if supported("p90", len(seen))
            else f"all {len(seen)} within {seen[-1]:.4g} ms"
        )
        words.append(f"{arm}: half within {percentile(seen, 0.5):.4g} ms, {most}")
    if not data:
        return None
    asked = sorted({value for one in limits if (value := getattr(one, field)) is not None})
    longest = max(max(values[arm, load]) for arm in looks.names if values.get((arm, load)))
    # A limit far beyond every request would press all lines against the axis.
    stated = [value for value in asked if value <= 1.5 * longest]
    beyond = [value for value in asked if value > 1.5 * longest]
    lines = [
        {"type": "line", "x0": value, "x1": value, "yref": "paper", "y0": 0, "y1": 1,
         "line": {"color": "@soft", "width": 1.5, "dash": "dot"}}
        for value in stated
    ]  # fmt: skip
    notes = [
        {"x": value, "yref": "paper", "y": 1, "text": f"{value:g} ms", "showarrow": False, "yanchor": "bottom",
         "font": {"size": 11, "color": "@soft"}}
        for value in stated
    ]  # fmt: skip
    spec = {
        "data": data,
        "layout": layout(
            {"title": title("ms"), "rangemode": "tozero"},
            {"title": title("% of requests"), "range": [0, 102], "tickvals": [0, 25, 50, 75, 90, 100]},
            shapes=lines,
            annotations=notes,
            margin={"l": 8, "r": 16, "t": 24 if stated else 12, "b": 8, "pad": 2},
        ),
    }
    name = f"{NAMES[field]}, {load_words(load)}"
    said = f" Dotted: the limits that were stated ({', '.join(f'{value:g} ms' for value in stated)})." if stated else ""
    said += f" Every request met {' and '.join(f'{value:g} ms' for value in beyond)}." if beyond else ""
    return Chart(
        id, name, f"{name}: share of requests within a time. " + "; ".join(words) + ".", spec,
        note=f"Share of requests that took no longer.{said}",
    )  # fmt: skip


def _rounded(value: float) -> float:
    """Five digits: more than a screen can show, and half the bytes."""
    return float(f"{value:.5g}")
