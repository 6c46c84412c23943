# SPDX-License-Identifier: Apache-2.0
"""What another load or another split would give, as far as the fitted curves reach.

The closed-loop model of the measured servers with one thing changed. It is refused where a curve was not measured
(input length, requests decoding on a server, context in decode), and where the model misses the user's own points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.analysis.closed_loop import LoopModel, LoopState, model_of, solve
from pdlab.analysis.fits import EDGE, Line, PrefillFit, fit_prefill, fit_tpot
from pdlab.analysis.laws import e2e_ms, in_flight
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError

# A model that misses its own measurements by more than this predicts nothing.
MODEL_ERROR = 0.25


@dataclass(frozen=True)
class Change:
    """What is to be different; None stays as measured. Lengths in tokens a request, exact."""

    input_len: float | None = None
    output_len: float | None = None
    concurrency: float | None = None
    prefill: int | None = None
    decode: int | None = None


@dataclass(frozen=True)
class FittedArm:
    """One PD arm's curves, its servers, and how well the model meets the arm's own points.

    errors: |predicted / measured - 1| of the rate for each closed-loop point. contexts: range of I + O / 2, tokens.
    """

    prefill_fit: PrefillFit
    tpot: Line
    prefill: int
    decode: int
    contexts: tuple[float, float]
    errors: tuple[tuple[str, float], ...]
    transfer_ms: float = 0.0

    @property
    def worst_error(self) -> float:
        """The largest of `errors`; 0 when the model could be held against nothing."""
        return max((error for _label, error in self.errors), default=0.0)


@dataclass(frozen=True)
class Prediction:
    """A what-if's answer: the model before and after, and what the change gives. `within`: the model's own error."""

    before: LoopState
    after: LoopState
    rate_ratio: float
    tpot_ratio: float
    ttft_ratio: float
    within: float


def fit_arm(points: Sequence[Measurement], saturated_labels: frozenset[str] = frozenset()) -> FittedArm:
    """The curves of one PD arm from its closed-loop points. Raises RefusedError when a curve cannot be fitted.

    `saturated_labels`: points known to be prefill-bound.
    """
    if len({(point.arm, point.servers) for point in points}) > 1:
        raise RefusedError("points of different arms make no common curve; fit each arm alone")
    closed = [point for point in points if point.concurrency is not None]
    prefill_fit, tpot = fit_prefill(closed, saturated_labels), fit_tpot(closed)
    servers = closed[0].servers
    errors = []
    for point in closed:
        # Without E2E nobody knows how many were in flight, and the model cannot be held against the point.
        if prefill_fit.latency.covers(point.input_len) and e2e_ms(point) is not None:
            model = model_of(
                prefill_fit.latency, prefill_fit.service, tpot, point.input_len, servers.prefill, servers.decode
            )
            # With what was in flight, so that a run's ramps are not taken for a fault of the model.
            state = solve(model, in_flight(point), point.output_len)
            errors.append((point.label, abs(state.request_s / point.request_s - 1)))
    contexts = [point.input_len + point.output_len / 2 for point in closed]
    return FittedArm(prefill_fit, tpot, servers.prefill, servers.decode, (min(contexts), max(contexts)), tuple(errors))


def what_if(arm: FittedArm, base: Measurement, change: Change) -> Prediction:
    """What `change` would give at the point `base`. Raises RefusedError outside what was measured."""
    if base.concurrency is None:
        raise RefusedError("a what-if starts from a point of a closed loop")
    refuse_a_bad_model(arm)
    fit = arm.prefill_fit
    measured = model_of(fit.latency, fit.service, arm.tpot, base.input_len, arm.prefill, arm.decode, arm.transfer_ms)
    # With what was in flight: at the nominal concurrency a short run's ramps would be counted as more load.
    held = in_flight(base)
    before = solve(measured, held, base.output_len)
    after = state_at(
        arm,
        change.input_len or base.input_len,
        change.output_len or base.output_len,
        change.concurrency or held,
        change.prefill or arm.prefill,
        change.decode or arm.decode,
    )
    return Prediction(
        before=before,
        after=after,
        rate_ratio=after.request_s / before.request_s,
        tpot_ratio=after.tpot_ms / before.tpot_ms,
        ttft_ratio=after.ttft_ms / before.ttft_ms,
        within=arm.worst_error,
    )


def refuse_a_bad_model(arm: FittedArm) -> None:
    """Raises RefusedError where the curves do not even meet the points that they were fitted on."""
    if not arm.errors:
        raise RefusedError("the model can be held against no point of these servers: measure E2E or TTFT with each")
    if arm.worst_error > MODEL_ERROR:
        label, error = max(arm.errors, key=lambda item: item[1])
        raise RefusedError(
            f"the model misses the measured rate of {label} by {error:.0%}, more than {MODEL_ERROR:.0%}: "
            "it describes these servers too badly to predict others; measure with more prompts a point"
        )


def context_within(measured: tuple[float, float], context: float) -> None:
    """Raises RefusedError for tokens of context a request that decode was not measured with."""
    low, high = measured
    if not low * (1 - EDGE) <= context <= high * (1 + EDGE):
        raise RefusedError(
            f"decode was measured with {low:.0f} to {high:.0f} tokens of context a request, and {context:.0f} lies "
            "outside: a step reads more KV cache then; measure there"
        )


def state_at(
    arm: FittedArm, input_len: float, output_len: float, concurrency: float, prefill: int, decode: int
) -> LoopState:
    """The model's steady state of `concurrency` requests. Raises RefusedError outside what was measured."""
    if min(input_len, output_len, concurrency, prefill, decode) < 1:
        raise RefusedError("lengths, concurrency and servers are 1 or more")
    context_within(arm.contexts, input_len + output_len / 2)
    fit = arm.prefill_fit
    model: LoopModel = model_of(fit.latency, fit.service, arm.tpot, input_len, prefill, decode, arm.transfer_ms)
    state = solve(model, concurrency, output_len)
    if output_len > 1:
        arm.tpot.at(state.decoding / decode)
    return state
