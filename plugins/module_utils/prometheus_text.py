# SPDX-License-Identifier: GPL-3.0-or-later
"""The Prometheus text format, read into samples. Pure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(
    r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"\s*(?:\{(?P<labels>(?:[^\"}]|\"(?:\\.|[^\"\\])*\")*)\})?"
    r"\s+(?P<value>\S+)(?:\s+(?P<timestamp>-?\d+))?\s*$"
)
_LABEL = re.compile(r"\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*\"(?P<value>(?:\\.|[^\"\\])*)\"\s*(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """One line of the format: `name{labels} value`."""

    name: str
    labels: dict[str, str]
    value: float


def parse(text: str) -> list[Sample]:
    """All samples of a page, in its order. Comments, blank lines and lines that are no sample are left out."""
    samples = []
    for line in text.splitlines():
        sample = _sample(line)
        if sample is not None:
            samples.append(sample)
    return samples


def total(samples: list[Sample], name: str) -> float | None:
    """The sum of a metric over all its label sets; None when the page has no such metric."""
    values = [sample.value for sample in samples if sample.name == name]
    return sum(values) if values else None


def _sample(line: str) -> Sample | None:
    if line.lstrip().startswith("#"):
        return None
    match = _LINE.match(line.strip())
    if match is None:
        return None
    try:
        value = float(match["value"])  # "+Inf", "-Inf" and "NaN" are as Python reads them
    except ValueError:
        return None
    labels = {label["name"]: _unescape(label["value"]) for label in _LABEL.finditer(match["labels"] or "")}
    return Sample(match["name"], labels, value)


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
