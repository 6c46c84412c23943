# SPDX-License-Identifier: Apache-2.0
"""Where the requests of a point were: the operational laws.

Little's law for each stage: requests in a stage = rate x mean time in it. A request is before its first token for
TTFT, and decodes for (O - 1) * TPOT, because TPOT is (E2E - TTFT) / (O - 1) for each request
(sglang/benchmark/serving.py, 0.5.23, calculate_metrics). So X * (TTFT + (O - 1) * TPOT) is the number in flight, and
in a closed loop it is C for as long as the loop keeps C requests in flight.
With unlike output lengths mean((O - 1) * TPOT) is not mean(O - 1) * mean(TPOT); with E2E known, the split uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError

LITTLE_TOLERANCE = 0.05


@dataclass(frozen=True)
class Occupancy:
    """Mean requests in each stage. Sums run over all servers of the stage.

    before_first_token: N_p = X * TTFT: router, prefill queue, prefill, KV transfer, decode's queue.
    decoding: N_d = X * (O - 1) * TPOT.
    decode_share: N_d / (N_p + N_d).
    """

    before_first_token: float
    decoding: float

    @property
    def in_flight(self) -> float:
        """Mean requests in flight, N_p + N_d."""
        return self.before_first_token + self.decoding

    @property
    def decode_share(self) -> float:
        """s, from 0 (all wait for their first token) to 1."""
        return self.decoding / self.in_flight if self.in_flight else 0.0


@dataclass(frozen=True)
class Little:
    """Little's law as a check of a closed loop: in flight on average against the concurrency that was asked for.

    A short run never comes up to C: it ramps up and drains. Then figures describe ramps, not a steady state.
    """

    concurrency: float
    in_flight: float
    gap: float
    ok: bool


def occupancy(point: Measurement) -> Occupancy | None:
    """Requests in each stage; None when TTFT or TPOT was not measured. One output token means no decoding."""
    decoding_ms = _decoding_ms(point)
    if point.ttft_ms is None or decoding_ms is None:
        return None
    return Occupancy(point.request_s * point.ttft_ms / 1000, point.request_s * decoding_ms / 1000)


def decoding(point: Measurement) -> float | None:
    """N_d = X * (O - 1) * TPOT: requests decoding on average; it needs no TTFT. None without TPOT."""
    decoding_ms = _decoding_ms(point)
    return None if decoding_ms is None else point.request_s * decoding_ms / 1000


def e2e_ms(point: Measurement) -> float | None:
    """Mean time of a request: as measured, else TTFT + (O - 1) * TPOT."""
    if point.e2e_ms is not None:
        return point.e2e_ms
    decoding_ms = _decoding_ms(point)
    return None if decoding_ms is None or point.ttft_ms is None else point.ttft_ms + decoding_ms


def little(point: Measurement) -> Little | None:
    """Whether a closed loop was steady: |C - X * E2E| / C <= 5 %. None for an open loop or without E2E.

    Source: J. D. C. Little, A proof for the queuing formula L = lambda W, Operations Research 9 (1961).
    """
    total = e2e_ms(point)
    if point.concurrency is None or total is None:
        return None
    in_flight = point.request_s * total / 1000
    gap = (point.concurrency - in_flight) / point.concurrency
    return Little(point.concurrency, in_flight, gap, abs(gap) <= LITTLE_TOLERANCE)


def in_flight(point: Measurement) -> float:
    """Requests in flight on average: X * E2E, which a short run keeps below its concurrency; C where E2E is unknown.

    Raises RefusedError for an open loop without E2E.
    """
    total = e2e_ms(point)
    if total is not None:
        return point.request_s * total / 1000
    if point.concurrency is None:
        raise RefusedError(f"{point.label}: neither E2E nor a concurrency is known")
    return point.concurrency


def _decoding_ms(point: Measurement) -> float | None:
    if point.output_len <= 1:
        return 0.0
    if point.e2e_ms is not None and point.ttft_ms is not None:
        return max(0.0, point.e2e_ms - point.ttft_ms)
    return None if point.tpot_ms is None else (point.output_len - 1) * point.tpot_ms
