# SPDX-License-Identifier: Apache-2.0
"""What every chart of the report has in common: its look, its place on the page, the colours of the arms.

A chart is plain data for plotly.js: `data` and `layout`. A text that begins with @ names a colour of the page's style
sheet (@ink, @arm0, ...). The page's script puts the colour in when it draws, so that one chart serves light, dark and
paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]

# Arms differ by colour, by dash and by marker: a reader who sees no colours, or a grey print, still tells them apart.
ARM_COLOURS = 8
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")

FONT_PX = 12
HEIGHT_PX = 300
NAME_FITS = 32


@dataclass(frozen=True)
class Chart:
    """One chart. `summary` says in words what it shows; `note` says how to read it; `wide` takes the page's width."""

    id: str
    title: str
    summary: str
    spec: Spec
    height: int = HEIGHT_PX
    wide: bool = False
    note: str = ""


@dataclass(frozen=True)
class ArmLooks:
    """The look of each arm, by its place among all arms: the same on the whole page."""

    names: tuple[str, ...]
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {name: place for place, name in enumerate(self.names)})

    def place(self, arm: str) -> int:
        """The number of an arm's colour, from 0."""
        return self._places.get(arm, len(self.names)) % ARM_COLOURS

    def colour(self, arm: str) -> str:
        """An arm's colour as the page's script knows it."""
        return f"@arm{self.place(arm)}"

    def line(self, arm: str) -> Spec:
        """A line of an arm."""
        return {"color": self.colour(arm), "dash": _DASHES[self.place(arm)], "width": 2}

    def marker(self, arm: str, size: int = 8) -> Spec:
        """A marker of an arm."""
        return {"color": self.colour(arm), "symbol": _MARKERS[self.place(arm)], "size": size}


def shown(text: str) -> str:
    """A name as plotly shows it literally: its texts know some HTML. Cut where it would leave its chart."""
    return html.escape(text if len(text) <= NAME_FITS else text[: NAME_FITS - 1] + "…", quote=False)


def layout(x: Spec, y: Spec, **more: Any) -> Spec:
    """A layout with axes in the page's colours, as the charts share it."""
    axis: Spec = {"gridcolor": "@grid", "linecolor": "@soft", "zerolinecolor": "@grid", "tickcolor": "@soft"}
    axis |= {"automargin": True, "fixedrange": True, "showline": True}
    merged: Spec = {
        "font": {"color": "@ink", "size": FONT_PX, "family": "system-ui, -apple-system, Segoe UI, sans-serif"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8, "pad": 2},
        "xaxis": {**axis, **x},
        "yaxis": {**axis, **y},
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@soft", "font": {"color": "@ink", "size": FONT_PX}},
        "hovermode": "closest",
        # The page shows one legend for all charts of arms; a chart with lines of its own asks for one.
        "showlegend": False,
        **more,
    }
    return merged


def legend_below() -> Spec:
    """A legend under the plot, for charts whose lines are not arms."""
    return {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "font": {"size": FONT_PX}}


def title(text: str) -> Spec:
    """An axis' title."""
    return {"text": text, "standoff": 8}


def load_ticks(values: Sequence[float], logarithmic: bool) -> Spec:
    """An axis with a tick at each load that was measured, as far as they do not touch."""
    kept = _apart(sorted(set(values)), logarithmic)
    ticks = {"tickvals": kept, "ticktext": [f"{value:g}" for value in kept]}
    return {"type": "log" if logarithmic else "linear", "showgrid": True, "minor": {"ticks": ""}, **ticks}


def _apart(values: list[float], logarithmic: bool) -> list[float]:
    """The values that stay at least a twelfth of the axis away from the one before."""
    places = [math.log(value) if logarithmic and value > 0 else value for value in values]
    if len(values) < 2 or places[0] == places[-1]:
        return values
    least = (places[-1] - places[0]) / 12
    kept, last = [], None
    for value, place in zip(values, places, strict=True):
        if last is None or place - last >= least:
            kept.append(value)
            last = place
    return kept
