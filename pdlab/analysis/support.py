# SPDX-License-Identifier: Apache-2.0
"""What a point's numbers cannot carry, each with what was seen and what would be wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.analysis.laws import little
from pdlab.analysis.measurement import Measurement
from pdlab.results.latency import SAMPLES_NEEDED, supported

PROMPTS_PER_CONCURRENCY = 5


@dataclass(frozen=True)
class Flag:
    """One thing that the numbers cannot support. `id` is named after the fault."""

    id: str
    seen: str
    wanted: str
    words: str


def flags(point: Measurement, repeats: int = 1) -> tuple[Flag, ...]:
    """What this point cannot support. `repeats`: runs of the same point, this one among them.

    Prompts a point: five times the concurrency (SGLang's benchmark_and_profiling.md); percentiles: results.py.
    """
    found = []
    if repeats < 2:
        found.append(
            Flag(
                "one_run",
                "1 run",
                "5 runs, interleaved",
                "One run has no spread: no difference can be claimed from it.",
            )
        )
    count = point.completed or point.requested
    if count is not None and point.concurrency is not None:
        wanted = PROMPTS_PER_CONCURRENCY * point.concurrency
        if count < max(wanted, 20):
            words = "Mostly ramp: the loop fills and drains." if count < wanted else "A mean of few requests."
            found.append(Flag("few_prompts", f"{count} prompts", f"{max(wanted, 20):g}", words))
    if count is not None:
        missing = [name for name in SAMPLES_NEEDED if not supported(name, count)]
        if missing:
            needed = f"{SAMPLES_NEEDED[missing[0]]} for {missing[0]}"
            words = f"{', '.join(missing)} cannot be told from {count} requests."
            found.append(Flag("no_percentiles", f"{count} requests", needed, words))
    if point.range_ratio is not None and point.range_ratio < 1.0:
        found.append(
            Flag(
                "uniform_lengths",
                f"range ratio {point.range_ratio:g}",
                "1.0",
                f"Lengths were drawn below their limits: about {point.input_len:.4g} in and {point.output_len:.4g} out on "
                "average, and another draw gives other figures.",
            )
        )
    law = little(point)
    if law and not law.ok:
        found.append(
            Flag(
                "not_steady",
                f"{law.in_flight:.3g} in flight on average",
                f"{law.concurrency:g} within 5 %",
                "Little's law: the run was not at its concurrency for long; its figures are ramps' as well.",
            )
        )
    if point.ttft_ms is None:
        found.append(Flag("no_ttft", "TTFT not recorded", "TTFT", "Time before the first token is unknown."))
    if point.servers.disaggregated and (point.engine is None or point.engine.prefill_waiting is None):
        found.append(
            Flag(
                "engine_not_seen",
                "no metric of the engine",
                "its queues during the point",
                "Where requests waited before their first token is inferred, not seen.",
            )
        )
    return (*found, *(Flag("noted", note, "", note) for note in point.notes))


def unlike(a: Measurement, b: Measurement) -> tuple[Flag, ...]:
    """Why two arms' points may not be laid side by side as they are."""
    found = []
    if a.servers.gpus and b.servers.gpus and a.servers.gpus != b.servers.gpus:
        words = "Unlike numbers of GPUs: compare per GPU, or with as many servers as the GPUs hold."
        found.append(Flag("unlike_gpus", f"{a.servers.gpus} against {b.servers.gpus} GPUs", "the same", words))
    if a.workload != b.workload or a.range_ratio != b.range_ratio:
        found.append(
            Flag("unlike_lengths", f"{a.workload} against {b.workload}", "the same", "Unlike request lengths.")
        )
    if a.concurrency != b.concurrency or a.rate_s != b.rate_s:
        found.append(Flag("unlike_load", f"{a.concurrency} against {b.concurrency}", "the same", "Unlike load."))
    return tuple(found)


def repeats_of(point: Measurement, points: Sequence[Measurement]) -> int:
    """How many of `points` are runs of the same arm, load and lengths."""
    key = (point.arm, point.workload, point.concurrency, point.rate_s)
    return sum((other.arm, other.workload, other.concurrency, other.rate_s) == key for other in points)
