# SPDX-License-Identifier: Apache-2.0
"""The charts' data: valid for plotly, the same each time, honest about what is behind them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.report import html, subject_of
from pdlab.report.arm_tables import workload_tables
from pdlab.report.charts import ArmLooks, Chart, chart_sections, watched_points
from pdlab.report.charts.pareto import frontier
from pdlab.report.charts.plot import load_ticks, shown
from pdlab.report.charts.queues import queue_chart
from pdlab.store import RunFolder
from tests.unit.evidence.arms_run_factory import h200_run, seeded_run
from tests.unit.report import run_folder_factory as factory

STYLE = (Path(html.__file__).parent / "templates" / "style.css").read_text()
PLACES = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e6)), min_size=1, max_size=30)


def charts_of(run: RunFolder) -> list[Chart]:
    subject = subject_of(run)
    looks = ArmLooks(tuple(arm.name for arm in subject.evidence.arms))
    return [
        chart
        for number, table in enumerate(workload_tables(subject.evidence))
        for chart in chart_sections(number, table, subject.evidence, subject.legs, {}, looks).all
    ]


def painted(value: object) -> object:
    """The chart with colours in place of their names, as the page's script puts them in."""
    if isinstance(value, str):
        return "#123456" if re.fullmatch(r"@[a-z]+[0-9]?(-soft)?", value) else value
    if isinstance(value, list):
        return [painted(item) for item in value]
    return {key: painted(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("make", [seeded_run, h200_run, factory.good_run, factory.failed_point_run])
def test_plotly_takes_every_chart(tmp_path: Path, make: object) -> None:
    made = charts_of(make(tmp_path))  # type: ignore[operator]
    assert made
    for chart in made:
        go.Figure(painted(chart.spec))
        json.dumps(chart.spec, allow_nan=False)
    assert len({chart.id for chart in made}) == len(made)


def test_every_colour_that_a_chart_names_is_in_the_style_sheet_light_and_dark(tmp_path: Path) -> None:
    text = json.dumps([chart.spec for chart in charts_of(seeded_run(tmp_path, repeats=2))])
    names = {name.removesuffix("-soft") for name in re.findall(r'"@([a-z]+[0-9]?(?:-soft)?)"', text)}
    assert {"arm0", "arm1", "arm2", "ink", "grid"} <= names
    for name in names:
        assert len(re.findall(rf"--{name}: #", STYLE)) == 3, name


def test_the_dark_colours_are_the_same_with_and_without_the_script() -> None:
    chosen = re.search(r':root\[data-theme="dark"\] (\{.*?\})', STYLE, re.S)
    machine = re.search(r":root:not\(\[data-theme\]\) (\{.*?\})", STYLE, re.S)
    assert chosen and machine
    assert chosen[1] == machine[1]


# --- colours ----------------------------------------------------------------------------------------------------

# Colour blindness at full severity, on linear RGB (Machado, Oliveira, Fernandes, IEEE TVCG 15, 2009, table 1).
BLIND = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def linear(colour: str) -> tuple[float, ...]:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    """CIE L*a*b* under D65."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in rgb)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def palettes() -> list[list[str]]:
    found = re.findall(r"--arm[0-7]: (#[0-9a-f]{6})", STYLE)
    return [found[:8], found[8:16]]


@pytest.mark.parametrize("kind", [None, *BLIND])
def test_four_arms_are_told_apart_by_those_who_are_colour_blind(kind: str | None) -> None:
    for palette in palettes():
        seen = [linear(colour) for colour in palette[:4]]
        if kind:
            seen = [tuple(sum(a * b for a, b in zip(row, rgb, strict=True)) for row in BLIND[kind]) for rgb in seen]
        for place, one in enumerate(seen):
            for other in seen[place + 1 :]:
                # A difference of 2.3 is just seen between large areas; lines and small marks want several times that.
                assert math.dist(lab(one), lab(other)) > 14


def test_arms_stand_out_from_the_page() -> None:
    def light(colour: str) -> float:
        red, green, blue = linear(colour)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for palette, back in zip(palettes(), ("#ffffff", "#1b1f23"), strict=True):
        for colour in palette:
            low, high = sorted((light(colour), light(back)))
            # WCAG 2.2, 1.4.11: graphical objects.
            assert (high + 0.05) / (low + 0.05) >= 3, colour


# --- parts ------------------------------------------------------------------------------------------------------


@given(PLACES)
def test_the_frontier_holds_exactly_what_no_other_point_beats(places: list[tuple[float, float]]) -> None:
    edge = frontier(places)
    for place in set(places):
        beaten = any(other != place and other[0] <= place[0] and other[1] >= place[1] for other in places)
        assert (place in edge) != beaten
    assert edge == sorted(edge)


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=20), st.booleans())
def test_ticks_are_loads_that_were_measured_the_first_among_them(loads: list[float], logarithmic: bool) -> None:
    ticks = load_ticks(loads, logarithmic)
    assert ticks["tickvals"][0] == min(loads)
    assert set(ticks["tickvals"]) <= set(loads)
    assert len(ticks["tickvals"]) <= 13


def test_a_name_in_a_chart_is_text_and_short() -> None:
    assert shown("<b>x</b>") == "&lt;b&gt;x&lt;/b&gt;"
    assert len(shown("x" * 200)) == 32


def test_intervals_are_drawn_and_one_run_has_none(tmp_path: Path) -> None:
    several = next(
        chart for chart in charts_of(seeded_run(tmp_path / "a", repeats=3)) if chart.id == "load-0-output_tok_s"
    )
    assert all(value > 0 for trace in several.spec["data"] for value in trace["error_y"]["array"])
    once = next(
        chart for chart in charts_of(seeded_run(tmp_path / "b", repeats=1)) if chart.id == "load-0-output_tok_s"
    )
    assert all(value == 0 for trace in once.spec["data"] for value in trace["error_y"]["array"])


def test_queues_are_summed_over_the_servers_of_a_role_and_shaded_while_measuring() -> None:
    samples = [
        {
            "time": 100.0 + second,
            "phase": "warmup" if second < 2 else "measuring",
            "servers": {"p0": {"num_queue_reqs": 3}, "p1": {"num_queue_reqs": 4}, "d0": {"num_running_reqs": second}},
        }
        for second in range(6)
    ]
    chart = queue_chart("q", "pd", samples, {"p0": "prefill", "p1": "prefill", "d0": "decode"})
    assert chart is not None
    lines = {trace["name"]: trace for trace in chart.spec["data"]}
    assert set(lines) == {"waiting for prefill", "running"}
    assert lines["waiting for prefill"]["y"] == [7] * 6
    assert lines["running"]["x"] == [-2, -1, 0, 1, 2, 3]
    assert chart.spec["layout"]["shapes"][0]["x1"] == 3
    assert "running: 3.5 on average, 5 at most" in chart.summary
    assert queue_chart("q", "pd", [{"time": 1, "phase": "before"}, {}], {}) is None


def test_long_records_of_queues_are_thinned(tmp_path: Path) -> None:
    samples = [
        {"time": float(at), "phase": "measuring", "servers": {"d": {"num_running_reqs": 1}}} for at in range(5000)
    ]
    chart = queue_chart("q", "pd", samples, {"d": "decode"})
    assert chart is not None
    assert len(chart.spec["data"][0]["x"]) <= 240


def test_the_queues_of_the_heaviest_load_of_each_arm_are_watched(tmp_path: Path) -> None:
    evidence = subject_of(seeded_run(tmp_path, repeats=2, failed=[("pd-r1", "rag-r8-n40")])).evidence
    assert set(watched_points(evidence)) == {
        "pd-r1:short-c64-n40", "tp2-r1:short-c64-n40", "dp2-r1:short-c64-n40",
        "pd-r2:rag-r8-n40", "tp2-r1:rag-r8-n40", "dp2-r1:rag-r8-n40",
    }  # fmt: skip
