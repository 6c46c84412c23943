# SPDX-License-Identifier: Apache-2.0
"""Reference results of other machines that a report lays beside its own (pdlab/bench/baselines/*.yml)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from pdlab.loose import as_mapping, as_number, as_rows, as_text

COLUMNS = ("Concurrency", "Requests", "Output tok/s", "Peak output tok/s", "Total tok/s", "TTFT ms", "TPOT ms")
UNKNOWN = "not noted"


@dataclass(frozen=True)
class BaselineRow:
    """One arm of one point: what was compared, its figures by COLUMNS as text, a remark."""

    arm: str
    figures: tuple[str, ...]
    remark: str


@dataclass(frozen=True)
class Baseline:
    """A table of another machine's results with what is known about how they came about."""

    title: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[BaselineRow, ...]
    notes: tuple[str, ...]


@functools.cache
def load_baselines() -> tuple[Baseline, ...]:
    """The baselines that pdlab ships, by file name."""
    folder = resources.files("pdlab.bench") / "baselines"
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".yml")), key=lambda item: item.name)
    return tuple(baseline_of(yaml.safe_load(item.read_text(encoding="utf-8"))) for item in files)


def baseline_of(document: Mapping[str, Any]) -> Baseline:
    """A baseline file's content as a table. Null figures say that they were not noted, never 0."""
    lengths = as_mapping(document.get("lengths"))
    arms = as_mapping(document.get("arms"))
    facts = {
        "Machine": document.get("machine"),
        "Model": document.get("model"),
        "Engine": document.get("engine"),
        "Client": document.get("client"),
        "Lengths": f"{lengths.get('input_len')} in, {lengths.get('output_len')} out, range ratio "
        f"{lengths.get('range_ratio')}. {as_text(lengths.get('note')) or ''}".strip(),
        **{str(as_mapping(arm).get("title")): _arm_fact(as_mapping(arm)) for arm in arms.values()},
        "Source": document.get("source"),
    }
    rows = [
        _row(point, name, as_mapping(arms[name]))
        for point in as_rows(document.get("points"))
        for name in arms
        if name in point
    ]
    return Baseline(
        title=str(document.get("title")),
        facts=tuple((name, str(value)) for name, value in facts.items() if value),
        rows=tuple(rows),
        notes=tuple(str(note) for note in document.get("notes") or []),
    )


def _arm_fact(arm: Mapping[str, Any]) -> str:
    gpus = arm.get("gpus")
    return f"{arm.get('description')}" + (f" ({gpus} GPUs)" if gpus else "")


def _row(point: Mapping[str, Any], name: str, arm: Mapping[str, Any]) -> BaselineRow:
    figures = as_mapping(point.get(name))
    first = next(iter(key for key in point if isinstance(point[key], Mapping)))
    gain = as_number(point.get("tpot_gain"))
    remarks = [f"TPOT gain {gain:.2f}×." if gain is not None else None, as_text(point.get("note"))]
    return BaselineRow(
        arm=str(arm.get("title") or name),
        figures=(
            str(point.get("concurrency")),
            str(point.get("prompts")),
            *(_figure(figures.get(key)) for key in ("output_tok_s", "peak_output_tok_s", "total_tok_s")),
            _latency(as_mapping(figures.get("ttft_ms"))),
            _latency(as_mapping(figures.get("tpot_ms"))),
        ),
        # A remark is about the point; it stands once, at its first arm.
        remark=" ".join(remark for remark in remarks if remark) if name == first else "",
    )


def _figure(value: object) -> str:
    """As it was noted: rounding again would claim or lose digits."""
    number = as_number(value)
    return UNKNOWN if number is None else f"{number:,.10g}"


def _latency(values: Mapping[str, Any]) -> str:
    words = {"mean": "mean", "median": "p50", "unstated": "?"}
    known = [
        f"{_figure(values[key])} ({word})" for key, word in words.items() if as_number(values.get(key)) is not None
    ]
    return ", ".join(known) or UNKNOWN
