# SPDX-License-Identifier: Apache-2.0
"""Mean, maximum and percentiles of latencies, as far as a sample supports them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pdlab.loose import as_integer, as_list, as_number
from pdlab.results.model import Latency

# The smallest sample in which, with 99 % confidence, at least two values lie above the percentile:
# 1 - p**n - n * (1 - p) * p**(n - 1) >= 0.99 (the rule of MLPerf's endpoints harness).
SAMPLES_NEEDED = {"p90": 64, "p95": 130, "p99": 662}
PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

_CLIENT_NAME = {"ttft_ms": "ttft_ms", "tpot_ms": "tpot_ms", "itl_ms": "itl_ms", "e2e_ms": "e2e_latency_ms"}
_CLIENT_PERCENTILE = {"p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}


def supported(name: str, samples: int) -> bool:
    """Whether a sample is large enough for a percentile ("p50", "p90", "p95", "p99")."""
    return samples >= SAMPLES_NEEDED.get(name, 1)


def percentile(values: Sequence[float], fraction: float) -> float:
    """The percentile by linear interpolation, as numpy's default, which the client uses. `values` is not empty."""
    ordered = sorted(values)
    rank = fraction * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def latency_of(values_ms: Sequence[float]) -> Latency:
    """Mean, maximum and the percentiles that the sample supports."""
    if not values_ms:
        return Latency()
    figures = {
        name: percentile(values_ms, fraction) if supported(name, len(values_ms)) else None
        for name, fraction in PERCENTILES.items()
    }
    return Latency(n=len(values_ms), mean=math.fsum(values_ms) / len(values_ms), max=max(values_ms), **figures)


def latencies(raw: Mapping[str, Any]) -> dict[str, Latency]:
    """TTFT, TPOT, ITL and E2E of one line of the client's JSONL (sglang/benchmark/serving.py, 0.5.23).

    TTFT and ITL come from its per-request arrays (`ttfts` and `itls`, in s, kept with --output-details) when they are
    there. The client keeps no array for TPOT and E2E, so these are its own aggregates, in ms. The sample of TPOT, E2E
    and TTFT is the completed requests; the sample of ITL is the gaps between tokens.
    """
    succeeded = [not error for error in as_list(raw.get("errors"))]
    ttfts = _of_successes(as_list(raw.get("ttfts")), succeeded)
    itls = _of_successes(as_list(raw.get("itls")), succeeded)
    completed = as_integer(raw.get("completed")) or 0
    gaps = max(0, (as_integer(raw.get("total_output_tokens")) or 0) - completed)
    return {
        "ttft_ms": latency_of(_in_ms(ttfts)) if ttfts else _client_latency(raw, "ttft_ms", completed),
        "tpot_ms": _client_latency(raw, "tpot_ms", completed),
        "itl_ms": latency_of(_in_ms(gap for gaps_of_one in itls for gap in as_list(gaps_of_one)))
        if itls
        else _client_latency(raw, "itl_ms", gaps),
        "e2e_ms": _client_latency(raw, "e2e_ms", completed),
    }


def _client_latency(raw: Mapping[str, Any], name: str, samples: int) -> Latency:
    """A latency from the client's own aggregates, which are in ms. It writes 0 for an empty sample: no figure."""
    suffix = _CLIENT_NAME[name]
    mean = as_number(raw.get(f"mean_{suffix}"))
    if not mean or samples == 0:
        return Latency()
    figures = {
        key: as_number(raw.get(f"{prefix}_{suffix}")) if supported(key, samples) else None
        for key, prefix in _CLIENT_PERCENTILE.items()
    }
    return Latency(n=samples, mean=mean, max=as_number(raw.get(f"max_{suffix}")), **figures)


def _of_successes(values: list[Any], succeeded: list[bool]) -> list[Any]:
    """The values of the requests that succeeded; all of them when the client kept no errors beside them."""
    if len(succeeded) != len(values):
        return values
    return [value for value, good in zip(values, succeeded, strict=True) if good]


def _in_ms(seconds: Iterable[Any]) -> list[float]:
    return [float(value) * 1000.0 for value in seconds if as_number(value) is not None]
