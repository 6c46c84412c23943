# SPDX-License-Identifier: Apache-2.0
"""Plots of a sweep over concurrency, as HTML fragments that need plotly.js once on the page.

Colours of text and grid follow the page's theme: a few lines of script on the page set them (see report.html.j2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from pdlab.report.workloads import workloads
from pdlab.results import REHEARSAL_NOTE, Latency, Point

# Readable on white and on near-black (contrast above 3:1 on both), and told apart without colour by dash and marker.
COLOURS = ("#2f7fd1", "#d1702f", "#3f9d5b", "#a45fc2")
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up")
FAILED_COLOUR = "#d64545"
HEIGHT_PX = 340
LEGEND_ROW_PX = 20

Curve = tuple[str, Callable[[Point], float | None]]


@dataclass(frozen=True)
class Chart:
    """One figure: the id of its element, its title, what it shows in words, its HTML."""

    id: str
    title: str
    summary: str
    html: str


def charts(points: Sequence[Point], rehearsal: bool) -> list[Chart]:
    """Output tok/s, TTFT and TPOT over concurrency; none when no point passed."""
    if not any(point.ok and point.concurrency for point in points):
        return []
    plots: list[tuple[str, str, str, list[Curve]]] = [
        ("output", "Output tokens per second", "tok/s", [("output", lambda point: point.output_tok_s)]),
        ("ttft", "Time to first token (TTFT)", "ms", _latency_curves(lambda point: point.ttft_ms)),
        ("tpot", "Time per output token (TPOT)", "ms", _latency_curves(lambda point: point.tpot_ms)),
    ]
    return [
        Chart(
            f"chart-{name}",
            title,
            _summary(title, unit, points, curves),
            _html(name, title, unit, points, curves, rehearsal),
        )
        for name, title, unit, curves in plots
    ]


def plotly_script() -> str:
    """plotly.js itself, to be put inline on the page once."""
    script: str = get_plotlyjs()
    return script


def _latency_curves(latency: Callable[[Point], Latency]) -> list[Curve]:
    return [
        ("p50", lambda point: latency(point).p50),
        ("p90", lambda point: latency(point).p90),
        ("p99", lambda point: latency(point).p99),
    ]


def _html(name: str, title: str, unit: str, points: Sequence[Point], curves: Sequence[Curve], rehearsal: bool) -> str:
    figure = go.Figure()
    groups = workloads(points)
    several = len(groups) > 1
    # Several workloads at three percentiles are a thicket: the median of each tells them apart.
    curves = curves[:1] if several else curves
    for group_index, (group_name, group) in enumerate(groups.items()):
        good = [point for point in group if point.ok]
        for curve_index, (curve_name, value) in enumerate(curves):
            values = [(point.concurrency, value(point)) for point in good]
            known = [(x, y) for x, y in values if y is not None]
            if not known:
                continue
            look = group_index if several else curve_index
            label = group_name if several or curve_name == "output" else curve_name
            figure.add_trace(
                go.Scatter(
                    x=[x for x, _ in known],
                    y=[y for _, y in known],
                    name=label,
                    mode="lines+markers",
                    line={"color": COLOURS[look % 4], "dash": DASHES[look % 4], "width": 2},
                    marker={"symbol": MARKERS[look % 4], "size": 8},
                    hovertemplate=f"C=%{{x}}: %{{y:.2f}} {unit}<extra>{label}</extra>",
                )
            )
    failed = sorted({point.concurrency for point in points if not point.ok and point.concurrency})
    if failed:
        figure.add_trace(
            go.Scatter(
                x=failed,
                y=[0] * len(failed),
                name="failed: no figure",
                mode="markers",
                marker={"symbol": "x", "size": 10, "color": FAILED_COLOUR},
                cliponaxis=False,
                hovertemplate="C=%{x}: failed, no figure<extra></extra>",
            )
        )
    ticks = sorted({point.concurrency for point in points if point.concurrency})
    more_px = LEGEND_ROW_PX * max(0, len(figure.data) - 1) if several else 0
    heading = f"{title}, p50" if several and unit == "ms" else title
    figure.update_layout(
        title={
            "text": f"REHEARSAL: {heading}" if rehearsal else heading,
            "subtitle": {"text": REHEARSAL_NOTE.replace(": ", ":<br>") if rehearsal else "", "font": {"size": 11}},
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "pad": {"l": 8},
            "font": {"size": 14},
            "yref": "container",
            "y": 0.95,
            "yanchor": "top",
        },
        xaxis={
            "title": {"text": "concurrency", "standoff": 12},
            "type": "log",
            "tickvals": ticks,
            "ticktext": [str(tick) for tick in ticks],
        },
        yaxis={"title": unit, "rangemode": "tozero", "automargin": True},
        autosize=True,
        height=HEIGHT_PX + more_px,
        margin={"l": 64, "r": 16, "t": 88 if rehearsal else 52, "b": 84 + more_px},
        legend={"orientation": "h", "yref": "container", "y": 0.02, "yanchor": "bottom", "x": 0},
        showlegend=len(figure.data) > 1 or several,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        template="none",
    )
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"chart-{name}",
        config={"displaylogo": False, "responsive": True, "displayModeBar": False},
    )
    return html


def _summary(title: str, unit: str, points: Sequence[Point], curves: Sequence[Curve]) -> str:
    """The figure in words, for those who do not see it."""
    parts = []
    for group_name, group in workloads(points).items():
        for curve_name, value in curves:
            known = [(point.concurrency, found) for point in group if point.ok and (found := value(point)) is not None]
            if known:
                listed = ", ".join(f"{y:.1f} {unit} at {x}" for x, y in known)
                parts.append(f"{curve_name} ({group_name}): {listed}")
    return f"{title} over concurrency. " + "; ".join(parts)
