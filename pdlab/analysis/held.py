# SPDX-License-Identifier: Apache-2.0
"""Curves fitted on one run held against what another run measured, so that predictions can be believed or not.

The load of the other run's point is given, the requests that were in flight or decoding there; rate, TTFT and TPOT are
predicted. Of an open loop TPOT alone is: its rate was asked for, and how long its first tokens queue is chance. What
the curves do not reach is refused, as a what-if is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pdlab.analysis.closed_loop import beside
from pdlab.analysis.fits import Line, fit_tpot
from pdlab.analysis.laws import decoding, in_flight
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError
from pdlab.analysis.what_if import context_within, fit_arm, refuse_a_bad_model, state_at

T = TypeVar("T")
QUANTITIES = ("request_s", "ttft_ms", "tpot_ms")


@dataclass(frozen=True)
class Held:
    """One quantity of one point. `error`: predicted / measured - 1. Refused: `predicted` is None and `refused` says why."""

    arm: str
    label: str
    repeat: int
    quantity: str
    predicted: float | None
    measured: float | None
    error: float | None
    refused: str | None = None


def hold(
    fitted: Sequence[Measurement], point: Measurement, saturated_labels: frozenset[str] = frozenset()
) -> tuple[Held, ...]:
    """What the curves of one arm's points `fitted` say of `point`, a point of the same servers in another run.

    `saturated_labels`: points of `fitted` that are known to be prefill-bound.
    """
    if point.concurrency is None:
        return (_held(point, "tpot_ms", *_or_refused(lambda: _open_tpot(fitted, point)), point.tpot_ms),)
    found, refused = _or_refused(lambda: _closed(fitted, point, saturated_labels))
    measured = {name: getattr(point, name) for name in QUANTITIES}
    return tuple(_held(point, name, found[name] if found else None, refused, measured[name]) for name in QUANTITIES)


def _closed(fitted: Sequence[Measurement], point: Measurement, saturated: frozenset[str]) -> dict[str, float]:
    arm = fit_arm(fitted, saturated)
    refuse_a_bad_model(arm)
    state = state_at(arm, point.input_len, point.output_len, max(1.0, in_flight(point)), arm.prefill, arm.decode)
    return {row.name: row.predicted for row in beside(state, point) if row.name in QUANTITIES}


def _open_tpot(fitted: Sequence[Measurement], point: Measurement) -> float:
    """TPOT on the line through all points, closed and open, at the number of requests that were decoding."""
    line: Line = fit_tpot(fitted)
    contexts = [one.input_len + one.output_len / 2 for one in fitted]
    context_within((min(contexts), max(contexts)), point.input_len + point.output_len / 2)
    running = decoding(point)
    if not running:
        raise RefusedError("how many requests were decoding is not known")
    return line.at(running / point.servers.decode)


def _or_refused(predict: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        return predict(), None
    except RefusedError as error:
        return None, str(error)


def _held(
    point: Measurement, quantity: str, predicted: float | None, refused: str | None, measured: float | None
) -> Held:
    error = predicted / measured - 1 if predicted is not None and measured else None
    return Held(point.arm, point.label, point.repeat, quantity, predicted, measured, error, refused)
