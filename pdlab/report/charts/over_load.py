# SPDX-License-Identifier: Apache-2.0
"""Arms side by side over the load: throughput, TTFT, TPOT, each mean over repeats with its 95 % interval."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pdlab.evidence.model import Cell, Interval, Load
from pdlab.evidence.row_ids import shown_cell_id
from pdlab.report.charts.plot import ArmLooks, Chart, Spec, layout, legend_below, load_ticks, shown, title
from pdlab.report.loads import axis_words, load_key, load_value, load_words

# Field of a cell, its title, its unit.
QUANTITIES = (
    (("output_tok_s",), "Output tokens per second", "tok/s"),
    (("ttft_ms.p50", "ttft_ms.mean"), "Time to first token (TTFT)", "ms"),
    (("tpot_ms.p50", "tpot_ms.mean"), "Time per output token (TPOT)", "ms"),
)


LEGEND_MARGIN = {"l": 8, "r": 12, "t": 12, "b": 76, "pad": 2}
# Of a lone arm the tail is drawn, too: there are no other lines to mistake it for.
TAIL = (("p90", "dash"), ("p99", "dot"))


def over_load_charts(
    loop: str,
    cells: Sequence[Cell],
    doubtful: Collection[Load],
    failed: Sequence[Load],
    looks: ArmLooks,
    prefix: str,
) -> list[Chart]:
    """One chart for each quantity that any cell has. `cells` are of one workload and one loop.

    `doubtful`: loads whose markers are open. `failed`: loads at which an arm has no figure, marked on the axis.
    """
    made = []
    for fields, name, unit in QUANTITIES:
        field = next((field for field in fields if any(field in cell.figures for cell in cells)), None)
        if field is None:
            continue
        kind = {"p50": ", median", "mean": ", mean"}.get(field.partition(".")[2], "")
        chart = _chart(f"{prefix}-{fields[0].split('.')[0]}", f"{name}{kind}", field, unit, loop, cells, failed, looks)
        if doubtful:
            _open_markers(chart.spec["data"], {load_value(load) for load in doubtful})
            chart = replace(chart, note="Open markers: a check raised a doubt. No verdict rests on these.")
        made.append(chart)
    return made


def _open_markers(data: Sequence[Spec], values: Collection[float]) -> None:
    """Open markers at these loads; the lines stay as they are."""
    for trace in data:
        marker = trace["marker"]
        if "customdata" in trace:
            marker["symbol"] = [f"{marker['symbol']}-open" if x in values else marker["symbol"] for x in trace["x"]]


def _chart(
    id: str, name: str, field: str, unit: str, loop: str, cells: Sequence[Cell], failed: Sequence[Load], looks: ArmLooks
) -> Chart:
    data, words = [], []
    for arm in looks.names:
        own = sorted((c for c in cells if c.arm == arm and field in c.figures), key=lambda cell: load_key(cell.load))
        if not own:
            continue
        data.append(_line(arm, field, unit, own, looks))
        listed = ", ".join(f"{cell.figures[field].mean:.4g} {unit} at {load_words(cell.load)}" for cell in own)
        words.append(f"{arm}: {listed}")
    if len(looks.names) == 1 and data and (tail := _tail(field, unit, cells, looks)):
        data = [{**data[0], "name": "p50"}, *tail]
    if failed:
        data.append(_failed(failed))
        words.append(f"no figure at {', '.join(load_words(load) for load in failed)}: the point failed")
    loads = [*(cell.load for cell in cells), *failed]
    ticks = load_ticks([load_value(load) for load in loads], logarithmic=loop == "closed")
    # The page's legend names the arms; a chart that holds more than these needs its own.
    more = (
        {"showlegend": True, "legend": legend_below(), "margin": LEGEND_MARGIN} if len(data) > len(looks.names) else {}
    )
    x, y = {"title": title(axis_words(loop)), **ticks}, {"title": title(unit), "range": [0, _top(data)]}
    spec = {"data": data, "layout": layout(x, y, **more)}
    return Chart(id, name, f"{name} over {axis_words(loop)}. " + "; ".join(words) + ".", spec)


def _line(arm: str, field: str, unit: str, cells: Sequence[Cell], looks: ArmLooks) -> Spec:
    found = [cell.figures[field] for cell in cells]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": shown(arm),
        "x": [load_value(cell.load) for cell in cells],
        "y": [figure.mean for figure in found],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [_above(figure) for figure in found],
            "arrayminus": [_below(figure) for figure in found],
            "color": looks.colour(arm),
            "thickness": 1.5,
            "width": 5,
        },
        "line": looks.line(arm),
        "marker": looks.marker(arm),
        "customdata": [
            [shown_cell_id(cell, field), _repeats(figure)] for cell, figure in zip(cells, found, strict=True)
        ],
        "hovertemplate": f"%{{y:.4g}} {unit}, %{{customdata[1]}}<br>%{{customdata[0]}}<extra>%{{fullData.name}}</extra>",
    }


def _tail(field: str, unit: str, cells: Sequence[Cell], looks: ArmLooks) -> list[Spec]:
    """The percentiles above the median that the sample supports, of the only arm."""
    name, _dot, part = field.partition(".")
    lines = []
    for percentile, dash in TAIL if part == "p50" else ():
        own = [
            cell
            for cell in sorted(cells, key=lambda cell: load_key(cell.load))
            if f"{name}.{percentile}" in cell.figures
        ]
        if own:
            line = _line(percentile, f"{name}.{percentile}", unit, own, looks)
            line["line"] = {"color": looks.colour(own[0].arm), "dash": dash, "width": 1.5}
            line["marker"] = looks.marker(own[0].arm, 6)
            lines.append(line)
    return lines


def _failed(loads: Sequence[Load]) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "failed: no figure",
        "x": [load_value(load) for load in loads],
        "y": [0] * len(loads),
        "marker": {"symbol": "x", "size": 10, "color": "@bad"},
        "cliponaxis": False,
        "hovertemplate": "failed, no figure<extra></extra>",
    }


def _top(data: Sequence[Spec]) -> float:
    """Where the axis ends: above every mean, and above the intervals unless they would dwarf all that was measured."""
    means = [y for trace in data for y in trace["y"]]
    ends = [
        y + more
        for trace in data
        if "error_y" in trace
        for y, more in zip(trace["y"], trace["error_y"]["array"], strict=True)
    ]
    highest = max(means, default=0.0) or 1.0
    return 1.06 * max(highest, min(max(ends, default=0.0), 2 * highest))


def _above(figure: Interval) -> float:
    return 0.0 if figure.high is None else max(0.0, figure.high - figure.mean)


def _below(figure: Interval) -> float:
    """Down to 0 at most: none of these quantities can be less."""
    return 0.0 if figure.low is None else max(0.0, min(figure.mean, figure.mean - figure.low))


def _repeats(figure: Interval) -> str:
    if figure.low is None or figure.high is None:
        return "one run"
    return f"95 % interval {figure.low:.4g} to {figure.high:.4g}, {figure.n} repeats"
