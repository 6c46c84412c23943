# SPDX-License-Identifier: Apache-2.0
"""Requests in each of the engine's queues over time, from the samples that were kept with a point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdlab.loose import as_mapping, as_number, as_text
from pdlab.report.charts.plot import Chart, Spec, layout, legend_below, shown, title

MOST_SAMPLES = 240


@dataclass(frozen=True)
class Queue:
    """One kind of waiting or working: the servers' roles and metrics that are summed, the line's look."""

    name: str
    roles: tuple[str, ...]
    metric: str
    colour: str
    dash: str


# Names without their prefix, of sglang 0.5.23 (observability/metrics_collector.py).
QUEUES = (
    Queue("meeting decode", ("prefill",), "num_prefill_bootstrap_queue_reqs", "@ink", "dashdot"),
    Queue("waiting for prefill", ("prefill",), "num_queue_reqs", "@ink", "solid"),
    Queue("KV on its way", ("prefill",), "num_prefill_inflight_queue_reqs", "@ink", "dash"),
    Queue("waiting for room in decode", ("decode",), "num_decode_prealloc_queue_reqs", "@ink", "dot"),
    Queue("waiting", ("colocated",), "num_queue_reqs", "@ink", "solid"),
    Queue("running", ("decode", "colocated"), "num_running_reqs", "@stage3", "solid"),
)


def queue_chart(id: str, name: str, samples: Sequence[Mapping[str, Any]], roles: Mapping[str, str]) -> Chart | None:
    """The queues of one point over the seconds since its measuring phase began; None when nothing was sampled.

    `samples`: lines of bench/LABEL.samples.jsonl. `roles`: each server's role, by name.
    """
    rows = [(at, row) for row in samples if (at := as_number(row.get("time"))) is not None]
    rows.sort(key=lambda pair: pair[0])
    measuring = [at for at, row in rows if row.get("phase") == "measuring"]
    if not measuring:
        return None
    start, end = measuring[0], measuring[-1]
    every = -(-len(rows) // MOST_SAMPLES)
    rows = rows[::every]
    data: list[Spec] = []
    words = []
    for queue in QUEUES:
        values = [(at - start, _sum(row, queue, roles)) for at, row in rows]
        known = [(at, value) for at, value in values if value is not None]
        if not known:
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": queue.name,
                "x": [round(at, 2) for at, _value in known],
                "y": [value for _at, value in known],
                "line": {"color": queue.colour, "dash": queue.dash, "width": 2, "shape": "hv"},
                "hovertemplate": "%{y:g} requests at %{x:.1f} s<extra>%{fullData.name}</extra>",
            }
        )
        inside = [value for at, value in known if 0 <= at <= end - start] or [value for _at, value in known]
        words.append(f"{queue.name}: {math.fsum(inside) / len(inside):.3g} on average, {max(inside):g} at most")
    if not data:
        return None
    shade = {"type": "rect", "xref": "x", "yref": "paper", "x0": 0, "x1": max(end - start, 0.001), "y0": 0, "y1": 1}
    shade |= {"fillcolor": "@grid", "opacity": 0.45, "line": {"width": 0}, "layer": "below"}
    spec = {
        "data": data,
        "layout": layout(
            {"title": title("seconds since measuring began")},
            {"title": title("requests"), "rangemode": "tozero"},
            shapes=[shade],
            showlegend=True,
            legend=legend_below(),
            margin={"l": 8, "r": 12, "t": 12, "b": 72, "pad": 2},
        ),
    }
    note = "Shaded: the measuring phase; before it the warm-up."
    return Chart(id, name, f"{shown(name)}. " + "; ".join(words) + ".", spec, height=340, note=note)


def _sum(row: Mapping[str, Any], queue: Queue, roles: Mapping[str, str]) -> float | None:
    """Requests over the servers of the queue's roles; None when none of them said."""
    values = []
    for server, said in as_mapping(row.get("servers")).items():
        if roles.get(str(server)) not in queue.roles:
            continue
        metrics = as_mapping(said)
        found = as_number(metrics.get(queue.metric))
        found = as_number(metrics.get(f"sglang:{queue.metric}")) if found is None else found
        if found is not None:
            values.append(found)
    return math.fsum(values) if values else None


def roles_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """The role of each server of a plan, by name."""
    servers = plan.get("servers")
    rows = servers if isinstance(servers, list) else []
    return {str(row.get("name")): as_text(row.get("role")) or "" for row in rows if isinstance(row, Mapping)}
