# SPDX-License-Identifier: Apache-2.0
"""Reference results of other machines that a report can be laid beside (pdlab/bench/baselines/*.yml)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Baseline:
    """A table of somebody else's results. `rows` are text, one per column."""

    title: str
    machine: str
    source: str
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def load_baselines() -> list[Baseline]:
    return []
