# SPDX-License-Identifier: GPL-3.0-or-later
"""What was seen beside a point's figures, for its record: the engine's metrics, the box, the client. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import box_telemetry, engine_metrics

MEASURING = "measuring"
CLIENT_FIELDS = ("started", "ended", "window_s", "cpu_share", "loop_lag_ms")


def read_samples(text: str) -> list[dict[str, Any]]:
    """The samples of a point, in order; a line that was cut off is left out."""
    samples = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            samples.append(value)
    return samples


def within(samples: Sequence[Mapping[str, Any]], client: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The samples from while requests were measured.

    The phase is called measuring from the moment when the client was let go, which loads its tokenizer first; its own
    word for when its requests began and ended is nearer. A point that is over within a second may have no sample.
    """
    measuring = [sample for sample in samples if sample.get("phase") == MEASURING]
    started, ended = client.get("started"), client.get("ended")
    if started is None or ended is None:
        return measuring
    return [sample for sample in measuring if started <= sample["time"] <= ended]


def watched(
    conducted: Mapping[str, Any],
    client: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    workers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The record's "engine", "box" and what it adds to "client".

    `conducted` is what bench_conductor left and `client` what bench_client did; both empty where a point was ended
    early, which leaves nulls.
    """
    inside = within(samples, client)
    start, end = conducted.get("start") or {}, conducted.get("end") or {}
    return {
        "engine": engine_metrics.figures(inside, start, end, workers, conducted.get("places")),
        "box": box_telemetry.figures([sample.get("box") or {} for sample in inside]),
        "client": {name: client.get(name) for name in CLIENT_FIELDS},
        "warmup": {name: conducted.get(name) for name in ("pairs", "warmup", "scrape_s")},
    }
