# SPDX-License-Identifier: Apache-2.0
"""Throughput against latency: each load of each arm a point, those that no other beats joined by a line."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.evidence.cells import PER_GPU
from pdlab.evidence.model import Cell
from pdlab.evidence.row_ids import shown_cell_id
from pdlab.report.charts.plot import ArmLooks, Chart, Spec, layout, shown, title
from pdlab.report.loads import load_key, load_value, load_words

WHOLE = "output_tok_s"
LATENCIES = (
    (("ttft_ms.p50", "ttft_ms.mean"), "TTFT"),
    (("tpot_ms.p50", "tpot_ms.mean"), "TPOT"),
)

Place = tuple[float, float]


def pareto_charts(cells: Sequence[Cell], looks: ArmLooks, prefix: str) -> list[Chart]:
    """Output tokens per second and GPU over TTFT and over TPOT; of the whole deployment where no GPU is known."""
    height = PER_GPU if cells and all(PER_GPU in cell.figures for cell in cells) else WHOLE
    made = []
    for fields, name in LATENCIES:
        field = next((field for field in fields if any(field in cell.figures for cell in cells)), None)
        known = [cell for cell in cells if field and field in cell.figures and height in cell.figures]
        # One point alone is beaten by nothing and beats nothing.
        if field and len(known) > 1:
            made.append(_chart(f"{prefix}-{name.lower()}", name, field, height, known, looks))
    return made


def frontier(places: Sequence[Place]) -> list[Place]:
    """The places (latency, throughput) that no other beats: none has as little latency and as much throughput.

    In order of latency. Places that are equal stand once.
    """
    best: list[Place] = []
    for latency, throughput in sorted(set(places), key=lambda place: (place[0], -place[1])):
        if not best or throughput > best[-1][1]:
            best.append((latency, throughput))
    return best


def _chart(id: str, name: str, field: str, height: str, cells: Sequence[Cell], looks: ArmLooks) -> Chart:
    unit = "tok/s per GPU" if height == PER_GPU else "tok/s"
    places = [_place(cell, field, height) for cell in cells]
    edge = frontier(places)
    room = _with_room(places)
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "not beaten",
            "x": [place[0] for place in edge],
            "y": [place[1] for place in edge],
            # What lies left of and above a corner is reached by nothing that was measured.
            "line": {"color": "@soft", "width": 5, "shape": "hv"},
            "opacity": 0.35,
            "hoverinfo": "skip",
        }
    ]
    for arm in looks.names:
        own = sorted((cell for cell in cells if cell.arm == arm), key=lambda cell: load_key(cell.load))
        if own:
            data.append(_arm(arm, field, height, unit, own, looks, room))
    kind = "median" if field.endswith("p50") else "mean"
    x = {"title": title(f"{name}, {kind}, ms"), "rangemode": "tozero"}
    spec = {"data": data, "layout": layout(x, {"title": title(unit), "rangemode": "tozero"})}
    on_edge = [
        f"{cell.arm} at {load_words(cell.load)}"
        for cell, place in zip(cells, places, strict=True)
        if place in set(edge)
    ]
    words = f"Output {unit} against {name} ({kind}). Not beaten: {', '.join(on_edge)}."
    note = "Up and to the left is better; the numbers are the loads. Grey: what no other point beats in both."
    return Chart(id, f"Output {unit} against {name}", words, spec, note=note)


def _with_room(places: Sequence[Place]) -> set[Place]:
    """The places whose number would not lie upon that of a place before them; the others say theirs when touched."""
    widest, highest = max(place[0] for place in places) or 1.0, max(place[1] for place in places) or 1.0
    kept: list[Place] = []
    for place in places:
        if all(abs(place[0] - x) / widest > 0.11 or abs(place[1] - y) / highest > 0.1 for x, y in kept):
            kept.append(place)
    return set(kept)


def _arm(
    arm: str, field: str, height: str, unit: str, cells: Sequence[Cell], looks: ArmLooks, room: set[Place]
) -> Spec:
    places = [_place(cell, field, height) for cell in cells]
    texts = [f"{load_value(cell.load):g}" for cell in cells]
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": shown(arm),
        "x": [place[0] for place in places],
        "y": [place[1] for place in places],
        "text": [text if place in room else "" for text, place in zip(texts, places, strict=True)],
        "textposition": ["top center", "bottom center", "middle right"][looks.place(arm) % 3],
        "textfont": {"color": "@soft", "size": 11},
        "cliponaxis": False,
        "line": {**looks.line(arm), "width": 1},
        "marker": looks.marker(arm),
        "customdata": [[load_words(cell.load), shown_cell_id(cell, height)] for cell in cells],
        "hovertemplate": f"%{{customdata[0]}}: %{{y:.4g}} {unit} at %{{x:.4g}} ms<br>%{{customdata[1]}}"
        "<extra>%{fullData.name}</extra>",
    }


def _place(cell: Cell, field: str, height: str) -> Place:
    return (cell.figures[field].mean, cell.figures[height].mean)
