# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a point that has figures deserves trust: warm-up, caches, the engine's own counts, the loop, the client. Pure.

Beside bench_point, which judges the client's output alone. Most of these are doubts: the figures are what was measured,
but something beside the deployment may have made them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_loop
from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_point import DOUBT, FAULT, check

# Input tokens that may come from a cache when it is called cold. Prompts of random ids share a first page by chance.
COLD = 0.005
# The engine may count a little more than was asked for: a health check of a router generates a token, too.
MORE = 0.01
# Little's law: how far requests in flight may be from what a full loop has.
LITTLE = 0.05
# A loop that is busy four fifths of its time lets what arrives wait four times as long as it takes to handle it (a
# queue with one server and random arrivals). Beyond that the client measures itself.
CPU_SHARE = 0.8
# By how much of a TTFT the client's stamps may be late on average, beside the timer's own millisecond.
LATE, TIMER_MS = 0.05, 1.0


def judge(
    point: Mapping[str, Any],
    output: Mapping[str, Any] | None,
    conducted: Mapping[str, Any],
    watched: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The checks of one point beside those of bench_point.

    `conducted` is what bench_conductor left, `watched` the record's parts (bench_watched). Empty for a point that was
    ended early: there is nothing to add to why it failed then.
    """
    if output is None or conducted.get("end") is None:
        return []
    engine, client = watched.get("engine") or {}, watched.get("client") or {}
    checks = [_warmup(conducted), _flushed(conducted), _cache(point, output, engine), _read(conducted)]
    if not conducted.get("unread"):
        checks += _tokens(point, output, engine)
    checks.append(_loop(point, output, client))
    checks.append(_client(output, client))
    return checks


def _warmup(conducted: Mapping[str, Any]) -> dict[str, Any]:
    pairs, warmup = conducted.get("pairs") or {}, conducted.get("warmup") or {}
    touched, wanted = pairs.get("touched", 0), pairs.get("pairs", 0)
    answered, requests = warmup.get("answered", 0), warmup.get("requests", 0)
    seen = f"{touched} of {wanted} pairs, {answered} of {requests} requests at concurrency {warmup.get('concurrency')}"
    why = [*(pairs.get("faults") or []), *(warmup.get("faults") or [])]
    return check(
        "warmup_incomplete",
        bool(wanted) and touched == wanted and answered == requests,
        seen + (f": {why[0][:300]}" if why else ""),
        "every pair of prefill and decode answers once, and every request of a warm-up at the point's concurrency",
        DOUBT,
    )


def _flushed(conducted: Mapping[str, Any]) -> dict[str, Any]:
    faults = conducted.get("flush") or []
    seen = "; ".join(faults)[:500] or "every worker"
    return check(
        "cache_not_flushed", not faults, seen, "every worker emptied its prefix cache after the warm-up", DOUBT
    )


def _cache(point: Mapping[str, Any], output: Mapping[str, Any], engine: Mapping[str, Any]) -> dict[str, Any]:
    """Cold caches, as the engine counts and as each answer said; for shared prefixes caches that were used."""
    asked = sum(output["input_lens"])
    said = sum(output.get("cached_tokens") or [])
    counted = engine.get("cached_tokens")
    cached = max(said, counted or 0)
    seen = f"{cached:.0f} of {asked} input tokens"
    if point.get("dataset") == "shared-prefix":
        wanted = "input tokens came from a prefix cache: the prompts share prefixes"
        return check("cache_unused", cached > 0, seen, wanted, DOUBT)
    wanted = f"at most {COLD:.1%} of the input tokens came from a prefix cache"
    return check("cache_warm", cached <= COLD * asked, seen, wanted, DOUBT)


def _read(conducted: Mapping[str, Any]) -> dict[str, Any]:
    unread = conducted.get("unread") or []
    seen = ", ".join(unread) + " had no metrics" if unread else "every server"
    return check("engine_not_read", not unread, seen, "every server shows its metrics (--enable-metrics)", DOUBT)


def _tokens(point: Mapping[str, Any], output: Mapping[str, Any], engine: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """What the engine counted while the client measured, against what was asked for.

    Fewer tokens are a fault: the engine did not do what the figures say. More are a doubt: somebody else used the
    servers, or requests were tried again.
    """
    asked = {"input": sum(output["input_lens"]), "output": sum(output["output_lens"])}
    if point["range_ratio"] >= 1.0:
        asked = {"input": point["prompts"] * point["input_len"], "output": point["prompts"] * point["output_len"]}
    counted = {"input": engine.get("prompt_tokens") or 0, "output": engine.get("generation_tokens") or 0}
    seen = ", ".join(f"{counted[kind]:.0f} of {asked[kind]} {kind} tokens" for kind in asked)
    fewer = any(counted[kind] < asked[kind] for kind in asked)
    more = any(counted[kind] > asked[kind] * (1.0 + MORE) for kind in asked)
    failed = engine.get("kv_transfer_failures") or 0
    return [
        check("tokens_missing", not fewer, seen, "the engine counts what was asked for", FAULT),
        check("foreign_load", not more, seen, f"the engine counts at most {MORE:.0%} more than was asked for", DOUBT),
        check("kv_transfer_failed", not failed, f"{failed:.0f}", "no KV transfer fails", DOUBT),
    ]


def _loop(point: Mapping[str, Any], output: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    # The client's own duration goes on until its router has been asked for a description of itself.
    seconds = client.get("window_s") or output.get("duration") or 0.0
    times = bench_loop.times_in_flight(output)
    if point.get("loop") == "open":
        return _arrivals(point["rate_s"], times, seconds)
    wanted = f"within {LITTLE:.0%} of what a loop of {point['concurrency']} has that is kept full (Little's law)"
    found = bench_loop.in_flight(times, point["concurrency"], seconds)
    if found is None:
        return check("loop_not_full", False, "no request's time is known", wanted, DOUBT)
    seen = f"{found.measured:.2f} in flight on average, {found.full:.2f} with a full loop ({found.off:+.1%})"
    return check("loop_not_full", abs(found.off) <= LITTLE, seen, wanted, DOUBT)


def _arrivals(rate_s: float, times: Sequence[float], seconds: float) -> dict[str, Any]:
    low, high = bench_loop.arrivals_wanted(rate_s, len(times) or 1)
    wanted = f"{rate_s:g} a second, so {max(low, 0):.2f} to {high:.2f} in a Poisson run of this length"
    rates = bench_loop.arrival_rates(len(times), max(times, default=0.0), seconds)
    if rates is None:
        return check("arrivals_off", False, "too few requests to tell", wanted, DOUBT)
    least, most = rates
    seen = f"{least:.2f} to {most:.2f} a second" if math.isfinite(most) else f"{least:.2f} a second or more"
    return check("arrivals_off", most >= low and least <= high, seen, wanted, DOUBT)


def _client(output: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    share, lag = client.get("cpu_share"), client.get("loop_lag_ms")
    ttft_ms = float(output.get("mean_ttft_ms") or 0.0)
    limit = TIMER_MS + LATE * ttft_ms
    wanted = f"at most {CPU_SHARE:.0%} of a core, its event loop at most {limit:.1f} ms late on average"
    if share is None or lag is None:
        return check("client_slow", False, "not seen", wanted, DOUBT)
    seen = (
        f"{share:.0%} of a core, its event loop {lag['mean']:.1f} ms late on average, "
        f"{lag['p99']:.1f} ms at the 99th percentile, {lag['max']:.1f} ms at most"
    )
    return check("client_slow", share <= CPU_SHARE and lag["mean"] <= limit, seen, wanted, DOUBT)
