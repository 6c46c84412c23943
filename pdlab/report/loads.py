# SPDX-License-Identifier: Apache-2.0
"""Loads and limits in words, and in the order in which a reader expects them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pdlab.evidence.model import LimitSet, Load


def load_value(load: Load) -> float:
    """Requests in flight (closed loop) or requests per second (open loop); 0 when neither is known."""
    value = load.concurrency if load.loop == "closed" else load.rate_s
    return float(value or 0)


def load_key(load: Load) -> tuple[str, float]:
    """What sorts loads: closed loops first, each by its value."""
    return (load.loop, load_value(load))


def load_words(load: Load) -> str:
    """ "16 in flight" or "4 req/s"."""
    return f"{load_value(load):g} in flight" if load.loop == "closed" else f"{load_value(load):g} req/s"


def axis_words(loop: str) -> str:
    """The title of an axis of loads."""
    return "requests in flight (concurrency)" if loop == "closed" else "requests sent per second"


def ordered_loads(loads: Iterable[Load]) -> list[Load]:
    """Each load once, in order."""
    return sorted({load_key(load): load for load in loads}.values(), key=load_key)


def limit_words(limits: LimitSet) -> str:
    """ "TTFT ≤ 2000 ms, TPOT ≤ 6 ms", or "no limits"."""
    named = (("TTFT", limits.ttft_ms), ("TPOT", limits.tpot_ms), ("E2E", limits.e2e_ms))
    return ", ".join(f"{name} ≤ {value:g} ms" for name, value in named if value is not None) or "no limits"


def limit_key(limits: LimitSet) -> tuple[float, float, float]:
    """What sorts limits: the loosest last."""
    values = (limits.ttft_ms, limits.tpot_ms, limits.e2e_ms)
    first, second, third = (float("inf") if value is None else value for value in values)
    return (first, second, third)
