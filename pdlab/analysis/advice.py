# SPDX-License-Identifier: Apache-2.0
"""Numbers for a decision: from which output length on one arm is quicker, what a server more gives, what two copies give.

Where the measurements bracket an answer without a model, the bracket is the answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pdlab.analysis.closed_loop import LoopModel, solve
from pdlab.analysis.fits import Line
from pdlab.analysis.laws import decoding
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError


@dataclass(frozen=True)
class Bracket:
    """A value known to lie between `low` and `high`. `guess`: the model off its range, for orientation only."""

    name: str
    low: float | None
    high: float | None
    guess: float | None
    words: str


def breakeven_output_len(quick: Measurement, other: Measurement) -> Bracket:
    """Output tokens a request from which `quick` (the lower TPOT) ends a request sooner than `other`.

    TTFT_q + (O - 1) * TPOT_q = TTFT_o + (O - 1) * TPOT_o, with both times as at this load. Where the other's TTFT was
    not recorded it lies between 0 and C / X - (O - 1) * TPOT (Little's law), which makes a bracket.
    Raises RefusedError when `quick` has no lower TPOT, or its TTFT is not known.
    """
    if quick.ttft_ms is None or quick.tpot_ms is None or other.tpot_ms is None or quick.tpot_ms >= other.tpot_ms:
        raise RefusedError("no break-even: it needs TTFT and a TPOT that is the lower one")
    gain = other.tpot_ms - quick.tpot_ms
    low_ttft = high_ttft = other.ttft_ms
    if high_ttft is None:
        if other.concurrency is None:
            raise RefusedError("no break-even: the other arm's TTFT is not known")
        low_ttft = 0.0
        high_ttft = max(0.0, 1000 * other.concurrency / other.request_s - (other.output_len - 1) * other.tpot_ms)
    ends = sorted(max(1.0, 1 + (quick.ttft_ms - ttft) / gain) for ttft in (low_ttft or 0.0, high_ttft))
    words = (
        f"from {ends[1]:.0f} output tokens on a request ends sooner on {quick.arm} than on {other.arm}"
        if ends[0] == ends[1]
        else f"from somewhere between {ends[0]:.0f} and {ends[1]:.0f} output tokens on, a request ends sooner on "
        f"{quick.arm} than on {other.arm} (TTFT of {other.arm} was not recorded)"
    )
    return Bracket("breakeven_output_len", ends[0], ends[1], None, words)


def prefill_to_feed_decode(point: Measurement, tpot: Line) -> Bracket:
    """Prefill servers that one set of decode servers can take, when prefill binds `point`.

    A prefill-bound point shows mu_p = X / P. Rate matching wants P * mu_p = D * mu_d (AIConfigurator, arXiv
    2601.06288). mu_d lies between what decode ran and C / TPOT, since TPOT does not fall with more requests.
    """
    running = decoding(point)
    if not running or not point.tpot_ms or point.concurrency is None:
        raise RefusedError("servers to feed decode: it needs a closed loop and TPOT")
    per_server = point.request_s / point.servers.prefill
    tokens = point.output_len - 1
    high = point.concurrency / point.tpot_ms * 1000 / tokens / per_server
    share = point.concurrency / point.servers.decode
    guess = point.concurrency / tpot.extrapolated(share) * 1000 / tokens / per_server
    low = float(point.servers.prefill)
    words = f"decode takes what {low:g} to {high:.1f} prefill servers make"
    if tpot.covers(share):
        low = high = guess
        words = f"decode takes what {guess:.1f} prefill servers make"
    elif guess > low:
        words += f"; the fit, off its range, says {guess:.1f}"
    return Bracket("prefill_servers", low, high, guess, words)


def one_server_more(point: Measurement, model: LoopModel, tpot: Line, role: Literal["prefill", "decode"]) -> Bracket:
    """Rate with one server more, as a ratio: at least 1, at most (servers + 1) / servers; the model's value between.

    Both ends hold without any model, since one server of a role more takes at most its share of the load.
    `guess` is the model's value; where decode then has more requests than were measured it is off the fit's range, and
    `words` says so. `model` describes the point's servers. Raises RefusedError for an open loop.
    """
    if point.concurrency is None:
        raise RefusedError("one server more: it needs a closed loop")
    count = model.prefill if role == "prefill" else model.decode
    more = replace(model, prefill=count + 1) if role == "prefill" else replace(model, decode=count + 1)
    before = solve(model, point.concurrency, point.output_len)
    after = solve(more, point.concurrency, point.output_len)
    ratio, most = after.request_s / before.request_s, (count + 1) / count
    rate, share = point.output_tok_s, after.decoding / more.decode
    words = f"one {role} server more: from {rate:.0f} to at most {rate * most:.0f} output tok/s ({most:.2g}x); "
    words += f"the model says {ratio:.2f}x, {rate * ratio:.0f} tok/s, and TPOT {after.tpot_ms / before.tpot_ms:.2f}x"
    if not tpot.covers(share):
        words += (
            f", with {share:.0f} requests decoding on a server where {tpot.x_min:.1f} to {tpot.x_max:.0f} were "
            "measured: measure longer outputs at this load first"
        )
    return Bracket(f"one_{role}_more", 1.0, most, ratio, words)


def copies(points: Sequence[Measurement], count: int, concurrency: float) -> Bracket:
    """Output tok/s of `count` copies of one server that share `concurrency`, from that server's own points.

    Each copy gets concurrency / count. Its rate lies between those of the next lower and next higher load that were
    measured, means over repeats, since more load does not lower the rate. Raises RefusedError without a point on either side.
    """
    each = concurrency / count
    seen: dict[float, list[float]] = {}
    for point in points:
        if point.concurrency is not None:
            seen.setdefault(point.concurrency, []).append(point.output_tok_s)
    # Means: the best of several repeats would be no lower end of a bracket.
    rates = {load: statistics.fmean(values) for load, values in seen.items()}
    below, above = [load for load in rates if load <= each], [load for load in rates if load >= each]
    if not below or not above:
        raise RefusedError(
            f"{count} copies at {each:g} requests each: no measured load on both sides; measure {each:g}"
        )
    low, high = count * max(rates[load] for load in below), count * rates[min(above)]
    words = (
        f"{count} copies of {points[0].arm} at {concurrency:g} requests in all: {low:.0f} to {high:.0f} output tok/s"
    )
    return Bracket("copies", low, max(low, high), None, words)


def tok_s_per_gpu(point: Measurement) -> float:
    """Output tok/s over all GPUs of the arm, idle ones too (InferenceX issue 299). Raises RefusedError when unknown."""
    if not point.servers.gpus:
        raise RefusedError(f"{point.arm}: how many GPUs it used is not known")
    return point.output_tok_s / point.servers.gpus
