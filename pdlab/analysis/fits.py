# SPDX-License-Identifier: Apache-2.0
"""Straight lines through measured points, with what they miss and where they end.

TPOT(n) = a + b * n, n = requests decoding on one server: one decode step reads the weights once (a) and each
request's KV cache (b); linear as long as a step is bound by memory. Prefill: seconds a request = c + ISL / rate.
Both are models; the residuals say how well they hold. (anchors: Narwhal and Dynamo fit the same two curves.)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdlab.analysis.laws import decoding
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError

# A value this much outside the measured range, as a share of the range's end, still counts as its end.
EDGE = 0.05


@dataclass(frozen=True)
class Line:
    """y = intercept + slope * x between x_min and x_max. `residuals`: measured minus fitted, in the order of x.

    With two values of x the line meets both: residuals are then 0 and say nothing (`checked` is false).
    """

    name: str
    intercept: float
    slope: float
    x_min: float
    x_max: float
    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def residuals(self) -> tuple[float, ...]:
        """What the line misses at each point."""
        return tuple(y - self.extrapolated(x) for x, y in zip(self.x, self.y, strict=True))

    @property
    def worst(self) -> float:
        """Largest residual as a share of what was measured there."""
        return max(abs(r) / y if y else 0.0 for r, y in zip(self.residuals, self.y, strict=True))

    @property
    def checked(self) -> bool:
        """Whether there are more points than the line has parameters."""
        return len(set(self.x)) > 2

    def covers(self, x: float) -> bool:
        """Whether x lies in the measured range."""
        return self.x_min * (1 - EDGE) <= x <= self.x_max * (1 + EDGE)

    def at(self, x: float) -> float:
        """y at x. Raises RefusedError outside the measured range."""
        if not self.covers(x):
            raise RefusedError(
                f"{self.name} was measured from {self.x_min:.4g} to {self.x_max:.4g}, and {x:.4g} lies outside: "
                "measure there"
            )
        return self.extrapolated(x)

    def extrapolated(self, x: float) -> float:
        """y on the line at any x. Outside the measured range this is a guess, and a caller has to call it one."""
        return self.intercept + self.slope * x


def fit_line(name: str, xs: Sequence[float], ys: Sequence[float]) -> Line:
    """The least-squares line that does not fall: where it would, it is flat at the mean.

    `xs` and `ys` have equal length. One value of x gives a flat line that holds at that x alone.
    Raises RefusedError for no values.
    """
    if not xs:
        raise RefusedError(f"{name}: no measurement to fit")
    order = sorted(range(len(xs)), key=lambda i: xs[i])
    x, y = tuple(float(xs[i]) for i in order), tuple(float(ys[i]) for i in order)
    slope, intercept = 0.0, statistics.fmean(y)
    if x[-1] > x[0]:
        slope, intercept = statistics.linear_regression(x, y)
        if slope < 0:
            slope, intercept = 0.0, statistics.fmean(y)
    return Line(name, intercept, slope, x[0], x[-1], x, y)


def fit_tpot(points: Iterable[Measurement]) -> Line:
    """TPOT in ms over requests decoding on one server (N_d / D), from the points of one PD arm.

    Raises RefusedError for colocated servers, whose TPOT contains other requests' prefills, and when nothing decoded.
    """
    xs, ys = [], []
    for point in points:
        if not point.servers.disaggregated:
            raise RefusedError("TPOT of colocated servers contains other requests' prefills: it fits no decode curve")
        running = decoding(point)
        if running and point.tpot_ms is not None and point.output_len > 1:
            xs.append(running / point.servers.decode)
            ys.append(point.tpot_ms)
    return fit_line("TPOT over requests decoding on a server", xs, ys)


@dataclass(frozen=True)
class PrefillFit:
    """What a prompt costs before its first token, in ms over its input tokens.

    latency: TTFT with nothing else in flight (prefill, KV transfer, router).
    service: time between two prompts that one saturated server finishes. Never more than `latency`; less where the
        engine puts several prompts into one batch. `saturated` is false where no point shows it at its limit: then it
        is an upper bound on the time, and the capacity from it a lower bound.
    """

    latency: Line
    service: Line
    saturated: bool

    def rate_tok_s(self, input_len: float) -> float:
        """Prompt tokens per second of one saturated prefill server. Raises RefusedError outside the range."""
        return input_len / self.service.at(input_len) * 1000


def fit_prefill(points: Iterable[Measurement], saturated_labels: frozenset[str] = frozenset()) -> PrefillFit:
    """The prefill curves of one PD arm.

    Latency comes from points with one request in flight. Service is P / X of the busiest point of each input length,
    where that is less: a server that finished X / P prompts a second takes at most P / X for one.
    `saturated_labels`: points that are known to be prefill-bound, whose P / X is then the time itself.
    Raises RefusedError when no point ran with one request in flight, or the servers are colocated.
    """
    latency: dict[float, list[float]] = {}
    fastest: dict[float, tuple[float, str]] = {}
    for point in points:
        if not point.servers.disaggregated:
            raise RefusedError("colocated servers do prefill between decode steps: TTFT fits no prefill curve")
        if point.concurrency == 1 and point.ttft_ms is not None:
            latency.setdefault(point.input_len, []).append(point.ttft_ms)
        gap_ms = 1000 * point.servers.prefill / point.request_s
        if gap_ms < fastest.get(point.input_len, (float("inf"), ""))[0]:
            fastest[point.input_len] = (gap_ms, point.label)
    if not latency:
        raise RefusedError("no point with one request in flight: TTFT without a queue is not known; add concurrency 1")
    lengths = sorted(latency)
    alone = [statistics.fmean(latency[length]) for length in lengths]
    service = [min(time, fastest[length][0]) for length, time in zip(lengths, alone, strict=True)]
    return PrefillFit(
        latency=fit_line("TTFT of a lone request over input tokens", lengths, alone),
        service=fit_line("prefill time of a request over input tokens", lengths, service),
        saturated=all(fastest[length][1] in saturated_labels for length in lengths),
    )
