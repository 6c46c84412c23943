# SPDX-License-Identifier: Apache-2.0
"""What a closed loop of C requests should do on P prefill and D decode servers, from the fitted curves.

Each of C requests is before its first token or decodes: C = X * L + N_d, with L = TTFT of a lone request.
Little's law for decode: N_d = X * (O - 1) * TPOT(N_d / D), TPOT(n) = a + b * n, which solves to
N_d = X * (O - 1) * a / (1 - X * (O - 1) * b / D). The right-hand side grows with X, so there is one X. Prefill gives
at most P / S and the transfer link at most 1 / T; where one of these is less, X is that, and the rest of C waits
before it: TTFT = (C - N_d) / X. Idealised: no queue below saturation, batches formed at once, links not shared.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdlab.analysis.fits import Line
from pdlab.analysis.laws import decoding
from pdlab.analysis.measurement import Measurement

_STEPS = 100


@dataclass(frozen=True)
class LoopModel:
    """The servers as the model knows them. Times in ms.

    alone_ms: L, TTFT of a request with nothing else in flight. prefill_ms: S, one server's time between two prompts.
    transfer_ms: T, for which a request holds the link alone; 0: never the limit. a_ms, b_ms: TPOT(n) = a + b * n.
    """

    alone_ms: float
    prefill_ms: float
    a_ms: float
    b_ms: float
    prefill: int = 1
    decode: int = 1
    transfer_ms: float = 0.0


@dataclass(frozen=True)
class LoopState:
    """The model's steady state. `limit`: what holds X down, "prefill", "transfer" or "loop" (nothing is full)."""

    request_s: float
    output_tok_s: float
    ttft_ms: float
    tpot_ms: float
    before_first_token: float
    decoding: float
    limit: str


@dataclass(frozen=True)
class Difference:
    """A prediction beside what was measured. `error`: predicted / measured - 1; None when it was not measured."""

    name: str
    predicted: float
    measured: float | None
    error: float | None


def solve(model: LoopModel, concurrency: float, output_len: float) -> LoopState:
    """The steady state of `concurrency` requests with `output_len` tokens each. Both are at least 1."""
    tokens = output_len - 1

    def in_decode(rate: float) -> float:
        # Requests per ms, so that times stay in ms.
        return rate * tokens * model.a_ms / (1 - rate * tokens * model.b_ms / model.decode)

    low, high = 0.0, concurrency / (model.alone_ms + tokens * model.a_ms)
    if tokens * model.b_ms > 0:
        high = min(high, model.decode / (tokens * model.b_ms) * (1 - 1e-12))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle * model.alone_ms + in_decode(middle) <= concurrency:
            low = middle
        else:
            high = middle
    rate, limit = low, "loop"
    limits = {"prefill": model.prefill / model.prefill_ms}
    if model.transfer_ms > 0:
        limits["transfer"] = 1 / model.transfer_ms
    name = min(limits, key=lambda key: limits[key])
    if limits[name] < rate:
        rate, limit = limits[name], name
    running = in_decode(rate)
    return LoopState(
        request_s=rate * 1000,
        output_tok_s=rate * 1000 * output_len,
        ttft_ms=(concurrency - running) / rate,
        tpot_ms=model.a_ms + model.b_ms * running / model.decode,
        before_first_token=concurrency - running,
        decoding=running,
        limit=limit,
    )


def model_of(
    alone: Line, service: Line, tpot: Line, input_len: float, prefill: int, decode: int, transfer_ms: float = 0.0
) -> LoopModel:
    """The model for one input length. Raises RefusedError where a curve was not measured at that length."""
    return LoopModel(
        alone_ms=alone.at(input_len),
        prefill_ms=service.at(input_len),
        a_ms=tpot.intercept,
        b_ms=tpot.slope,
        prefill=prefill,
        decode=decode,
        transfer_ms=transfer_ms,
    )


def beside(state: LoopState, point: Measurement) -> tuple[Difference, ...]:
    """The prediction beside the measurement: rate, TTFT, TPOT, requests decoding."""
    rows = (
        ("request_s", state.request_s, point.request_s),
        ("ttft_ms", state.ttft_ms, point.ttft_ms),
        ("tpot_ms", state.tpot_ms, point.tpot_ms),
        ("decoding", state.decoding, decoding(point)),
    )
    return tuple(
        Difference(name, predicted, measured, predicted / measured - 1 if measured else None)
        for name, predicted, measured in rows
    )
