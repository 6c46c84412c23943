# SPDX-License-Identifier: Apache-2.0
"""Arms side by side over the load: throughput, TTFT, TPOT, each mean over repeats with its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pdlab.evidence.figure_ids import cell_figure
from pdlab.evidence.model import Cell, Interval
from pdlab.report.charts.plot import ArmLooks, Chart, layout, load_ticks, shown, title
from pdlab.report.loads import axis_words, load_key, load_value, load_words

# Field of a cell, its title, its unit.
QUANTITIES = (
    (("output_tok_s",), "Output tokens per second", "tok/s"),
    (("ttft_ms.p50", "ttft_ms.mean"), "Time to first token (TTFT)", "ms"),
    (("tpot_ms.p50", "tpot_ms.mean"), "Time per output token (TPOT)", "ms"),
)


def over_load_charts(workload: str, loop: str, cells: Sequence[Cell], looks: ArmLooks, prefix: str) -> list[Chart]:
    """One chart for each quantity that any cell has. `cells` are of one workload and one loop."""
    made = []
    for fields, name, unit in QUANTITIES:
        field = next((field for field in fields if any(field in cell.figures for cell in cells)), None)
        if field is None:
            continue
        kind = {"p50": ", median", "mean": ", mean"}.get(field.partition(".")[2], "")
        made.append(_chart(f"{prefix}-{fields[0].split('.')[0]}", f"{name}{kind}", field, unit, loop, cells, looks))
    return made


def _chart(id: str, name: str, field: str, unit: str, loop: str, cells: Sequence[Cell], looks: ArmLooks) -> Chart:
    data, words = [], []
    for arm in looks.names:
        own = sorted((c for c in cells if c.arm == arm and field in c.figures), key=lambda cell: load_key(cell.load))
        if not own:
            continue
        data.append(_line(arm, field, unit, own, looks))
        listed = ", ".join(f"{cell.figures[field].mean:.4g} {unit} at {load_words(cell.load)}" for cell in own)
        words.append(f"{arm}: {listed}")
    ticks = load_ticks([load_value(cell.load) for cell in cells], logarithmic=loop == "closed")
    spec = {
        "data": data,
        "layout": layout({"title": title(axis_words(loop)), **ticks}, {"title": title(unit), "rangemode": "tozero"}),
    }
    return Chart(id, name, f"{name} over {axis_words(loop)}. " + "; ".join(words) + ".", spec)


def _line(arm: str, field: str, unit: str, cells: Sequence[Cell], looks: ArmLooks) -> dict[str, Any]:
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
            [cell_figure(cell.arm, cell.workload, cell.load, field), _repeats(figure)]
            for cell, figure in zip(cells, found, strict=True)
        ],
        "hovertemplate": f"%{{y:.4g}} {unit}, %{{customdata[1]}}<br>%{{customdata[0]}}<extra>%{{fullData.name}}</extra>",
    }


def _above(figure: Interval) -> float:
    return 0.0 if figure.high is None else max(0.0, figure.high - figure.mean)


def _below(figure: Interval) -> float:
    return 0.0 if figure.low is None else max(0.0, figure.mean - figure.low)


def _repeats(figure: Interval) -> str:
    if figure.low is None or figure.high is None:
        return "one run"
    return f"95 % interval {figure.low:.4g} to {figure.high:.4g}, {figure.n} repeats"
