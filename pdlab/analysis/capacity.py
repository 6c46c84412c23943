# SPDX-License-Identifier: Apache-2.0
"""How fast decode could go: from the fit, and the usual C / TPOT beside it with the reason why it misleads.

A decode server with B requests makes B / TPOT(B) tokens a second. C / TPOT puts the concurrency into the numerator and
a TPOT into the denominator that was measured with N_d < C requests decoding; as TPOT does not fall when more requests
decode, C / TPOT is at least the rate at C. It equals it only when all C requests decode (s = 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from pdlab.analysis.fits import Line
from pdlab.analysis.laws import decoding
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError


@dataclass(frozen=True)
class DecodeCapacity:
    """Decode's rate in tok/s over all decode servers.

    ran: N_d / TPOT = X * (O - 1), what decode did in this point.
    fitted: with all of the point's concurrency decoding, from the fit; None when refused, and `refused` says why.
    extrapolated: the same off the line's end: a guess, for orientation; None when `fitted` is there.
    naive: C / TPOT: not a capacity but its upper bound. overstated: naive / fitted.
    """

    batch: float
    decoding: float
    ran_tok_s: float
    naive_tok_s: float
    fitted_tok_s: float | None
    extrapolated_tok_s: float | None
    overstated: float | None
    refused: str | None
    why_naive_misleads: str


def decode_tok_s(tpot: Line, batch: float, servers: int) -> float:
    """Output tokens per second of `servers` decode servers that share `batch` requests evenly.

    Raises RefusedError outside the fit's range.
    """
    return batch / tpot.at(batch / servers) * 1000


def decode_capacity(point: Measurement, tpot: Line) -> DecodeCapacity:
    """Decode's capacity at the point's concurrency. Raises RefusedError for an open loop or a point without TPOT."""
    running = decoding(point)
    if point.concurrency is None or not point.tpot_ms or not running:
        raise RefusedError(
            "decode capacity at a concurrency needs a closed loop, TPOT, and outputs of two tokens or more"
        )
    servers, batch = point.servers.decode, point.concurrency
    naive = batch / point.tpot_ms * 1000
    fitted, refused, guess = None, None, None
    try:
        fitted = decode_tok_s(tpot, batch, servers)
    except RefusedError as error:
        refused = str(error)
        guess = batch / tpot.extrapolated(batch / servers) * 1000
    share = running / batch
    why = (
        f"{batch:g} / {point.tpot_ms:.4g} ms counts {batch:g} requests as decoding; {running:.3g} did on average "
        f"({share:.0%}), and TPOT is theirs. More requests in a step make it longer, so this is an upper bound."
    )
    return DecodeCapacity(
        batch=batch,
        decoding=running,
        ran_tok_s=point.request_s * (point.output_len - 1),
        naive_tok_s=naive,
        fitted_tok_s=fitted,
        extrapolated_tok_s=guess,
        overstated=naive / fitted if fitted else None,
        refused=refused,
        why_naive_misleads=why,
    )
