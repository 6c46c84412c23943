# SPDX-License-Identifier: Apache-2.0
"""What binds a point: a name only when one bound alone has its evidence, else "cannot say".

The rules (benchmark science: in a closed network of queues, requests gather before the stage that is full, and the
rate is min(P * mu_p, D * mu_d, link, KV pool, C / time of a lone request); Lazowska et al., Quantitative System
Performance, 1984, chapter 5, asymptotic bounds):
- latency-bound: nothing is full; a request takes hardly longer than alone, and more load gives more rate.
- prefill-bound: requests queue before the first token, prefill is used to its limit (rate x time of a lone prompt, or
  the rate is flat when load grows), and neither the transfer nor decode's KV pool can be what they wait for.
- transfer-bound: they queue, and the KV path is used to its limit or has the queue.
- KV-bound: they queue for room in decode's KV pool, and the pool is full.
- decode-bound: nearly all in flight decode, a token takes at least twice as long as alone, and more load gives little
  rate; or requests queue for a place in decode with room left in its KV pool.
The time before the first token alone does not tell prefill, transfer and KV pool apart: client figures need the bytes
of a prompt's KV cache and the path's rate, or the engine's queues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.analysis.evidence import Bound, Evidence, at_least, at_most
from pdlab.analysis.laws import Occupancy, e2e_ms, occupancy
from pdlab.analysis.measurement import Measurement, mean

QUEUED = 0.5
FULL = 0.9
FLAT = 0.05
LITTLE_GAIN = 0.5
MUCH_GAIN = 0.60
DECODING = 0.8
SLOWER_TOKENS = 2.0
SLOWDOWN = 1.3
BUSY_FOR_LATENCY = 0.75
TRANSFER_IDLE = 0.5
TRANSFER_FULL = 0.8
TRANSFER_PART = 0.3
WAITING = 0.5
WAITING_PART = 0.1
HARDLY_SLOWER = 1.12
WAITING_PART_HARDLY_SLOWER = 0.25
MOST_OF_QUEUES = 0.6
QUEUE_OF_ONE = 0.8
POOL_FULL = 0.85


@dataclass(frozen=True)
class Context:
    """Other points of the same arm. `alone`: one request in flight and the same input length, any output length.

    `below`, `above`: the next loads with the same lengths.
    """

    alone: Sequence[Measurement] = ()
    below: Sequence[Measurement] = ()
    above: Sequence[Measurement] = ()


@dataclass(frozen=True)
class Verdict:
    """What binds a point. `settle`: the measurement that would tell, where the name is "cannot say"."""

    name: Bound
    words: str
    evidence: tuple[Evidence, ...]
    settle: str | None = None

    def of(self, bound: Bound) -> tuple[Evidence, ...]:
        """The evidence on one bound."""
        return tuple(item for item in self.evidence if item.bound == bound)


def context_of(point: Measurement, points: Sequence[Measurement]) -> Context:
    """The context of a point among the points of a run. An open loop's point has no neighbours in concurrency."""
    alike = [other for other in points if (other.arm, other.workload) == (point.arm, point.workload)]
    loads = sorted({other.concurrency for other in alike if other.concurrency is not None})

    def at(load: float | None) -> list[Measurement]:
        return [other for other in alike if load is not None and other.concurrency == load]

    own = point.concurrency
    return Context(
        alone=[
            other
            for other in points
            if other.arm == point.arm and other.input_len == point.input_len and other.concurrency == 1
        ],
        below=at(max((load for load in loads if own is not None and load < own), default=None)),
        above=at(min((load for load in loads if own is not None and load > own), default=None)),
    )


def doubling_gain(low: Measurement | None, high: Measurement | None) -> float | None:
    """By which share the rate grows when the load doubles, between two points: (X2/X1)^(ln 2 / ln(C2/C1)) - 1.

    0: flat; 1: the rate doubles, too. None unless both are points of a closed loop at different loads.
    """
    if low is None or high is None or not low.concurrency or not high.concurrency:
        return None
    if high.concurrency <= low.concurrency or low.request_s <= 0:
        return None
    doublings = math.log2(high.concurrency / low.concurrency)
    return float((high.request_s / low.request_s) ** (1 / doublings) - 1)


def name_bound(point: Measurement, context: Context | None = None) -> Verdict:
    """What binds this point, with the evidence for and against each bound."""
    signals = _signals(point, context or Context())
    latency = _latency(signals)
    if not point.servers.disaggregated:
        return _colocated(signals, latency)
    prefill, transfer, kv, decode = _prefill(signals), _transfer(signals), _kv(signals), _decode(signals)
    found = [rule for rule in (latency, prefill, transfer, kv, decode) if rule.holds]
    evidence = tuple(item for rule in (latency, prefill, transfer, kv, decode) for item in rule.evidence)
    if len(found) == 1:
        support = "; ".join(item.words for item in found[0].evidence if item.speaks_for)
        return Verdict(found[0].bound, f"{found[0].bound}: {support}", evidence)
    if found:
        names = " and ".join(rule.bound for rule in found)
        words = f"cannot say: the evidence holds for {names}"
        return Verdict("cannot say", words, evidence, "measure twice this load and half of it")
    return Verdict("cannot say", f"cannot say: {_why_none(signals)}", evidence, _settle(signals))


# --- signals -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Signals:
    """Everything that the rules look at, once. None: not seen."""

    point: Measurement
    stages: Occupancy | None
    queue_share: float | None
    prompt_use: float | None
    slowdown: float | None
    tpot_growth: float | None
    gain_below: float | None
    gain_above: float | None
    transfer_use: float | None
    transfer_part: float | None
    pool_demand: float | None
    prefill_waiting: float | None
    transfer_waiting: float | None
    pool_waiting: float | None
    token_usage: float | None
    places_use: float | None

    @property
    def flat(self) -> float | None:
        """The smallest gain of a doubled load next to this point."""
        return min((gain for gain in (self.gain_below, self.gain_above) if gain is not None), default=None)

    @property
    def queues(self) -> float | None:
        """Requests in all of the engine's queues before the first token; None when one was not recorded."""
        parts = (self.prefill_waiting, self.transfer_waiting, self.pool_waiting)
        return None if None in parts else math.fsum(part for part in parts if part is not None)

    @property
    def pool_share(self) -> float | None:
        """The share of the queue for room in decode in all queues; None when unknown or hardly anything waits."""
        total = self.queues
        return None if total is None or total < WAITING else (self.pool_waiting or 0.0) / total

    @property
    def prefill_share(self) -> float | None:
        """Prefill's share of the queues behind the one for room in decode, which admits to them."""
        if self.prefill_waiting is None or self.transfer_waiting is None:
            return None
        total = self.prefill_waiting + self.transfer_waiting
        return None if total < WAITING else self.prefill_waiting / total

    @property
    def waiting_part(self) -> float | None:
        """The share of requests in flight that wait in the engine's queues."""
        total, flying = self.queues, self.stages.in_flight if self.stages else self.point.concurrency
        return None if total is None or not flying else total / flying

    @property
    def prefill_full(self) -> bool:
        """Prefill is used to its limit and each of its servers has a prompt waiting."""
        servers = self.point.servers.prefill
        return (self.prompt_use or 0) >= FULL and (self.prefill_waiting or 0) >= QUEUE_OF_ONE * servers

    @property
    def transfer_full(self) -> bool:
        """The KV path is used to its limit and a transfer waits for another."""
        return (self.transfer_use or 0) >= TRANSFER_FULL and (self.transfer_waiting or 0) >= 1 + QUEUE_OF_ONE

    @property
    def admission_queue(self) -> bool:
        """Most of what waits has not been let in by decode: a flat rate then says nothing of the stages behind."""
        return self.pool_share is not None and self.pool_share >= MOST_OF_QUEUES


@dataclass(frozen=True)
class _Rule:
    bound: Bound
    holds: bool
    evidence: tuple[Evidence, ...]


def _signals(point: Measurement, context: Context) -> _Signals:
    servers, engine, kv = point.servers, point.engine, point.kv
    alone_ttft = mean([other.ttft_ms for other in context.alone if other.ttft_ms is not None])
    same = [other for other in context.alone if other.output_len == point.output_len] or context.alone
    alone_tpot = mean([other.tpot_ms for other in same if other.tpot_ms is not None])
    # What a lone request spends in the transfer is not prefill's time.
    moved = mean([o.engine.kv_transfer_ms for o in context.alone if o.engine and o.engine.kv_transfer_ms is not None])
    alone_prefill = None if alone_ttft is None else max(0.0, alone_ttft - (moved or 0.0))
    total, alone_e2e = e2e_ms(point), None
    if alone_ttft is not None and (alone_tpot is not None or point.output_len <= 1):
        alone_e2e = alone_ttft + (point.output_len - 1) * (alone_tpot or 0.0)
    transfer_use = None
    if kv.bytes_per_token_at_most is not None and kv.path_gb_s_at_least:
        transfer_use = point.request_s * point.input_len * kv.bytes_per_token_at_most / (kv.path_gb_s_at_least * 1e9)
    return _Signals(
        point=point,
        stages=occupancy(point),
        queue_share=1 - alone_ttft / point.ttft_ms if alone_ttft is not None and point.ttft_ms else None,
        prompt_use=point.request_s * alone_prefill / 1000 / servers.prefill
        if alone_prefill is not None and servers.disaggregated
        else None,
        slowdown=total / alone_e2e if total is not None and alone_e2e else None,
        tpot_growth=point.tpot_ms / alone_tpot if point.tpot_ms is not None and alone_tpot else None,
        gain_below=doubling_gain(_mean_of(context.below), point),
        gain_above=doubling_gain(point, _mean_of(context.above)),
        transfer_use=transfer_use,
        transfer_part=engine.kv_transfer_ms / point.ttft_ms
        if engine and engine.kv_transfer_ms is not None and point.ttft_ms
        else None,
        pool_demand=point.concurrency * (point.input_len + point.output_len) / kv.pool_tokens
        if kv.pool_tokens and point.concurrency is not None
        else None,
        prefill_waiting=engine.prefill_waiting if engine else None,
        transfer_waiting=engine.prefill_inflight if engine else None,
        pool_waiting=engine.decode_prealloc if engine else None,
        token_usage=engine.token_usage if engine else None,
        places_use=engine.decode_running / engine.decode_places
        if engine and engine.decode_places and engine.decode_running is not None
        else None,
    )


def _mean_of(points: Sequence[Measurement]) -> Measurement | None:
    """Repeats of one load as one point with their mean rate."""
    if not points:
        return None
    first = points[0]
    rate = math.fsum(point.request_s for point in points) / len(points)
    return Measurement(
        first.label, rate, first.input_len, first.output_len, None, None, concurrency=first.concurrency, arm=first.arm
    )


# --- rules -------------------------------------------------------------------------------------------------------


def _queued(bound: Bound, signals: _Signals) -> Evidence:
    return at_least(bound, "queue_share", signals.queue_share, QUEUED, "{value} of TTFT is more than a lone request's")


def _latency(signals: _Signals) -> _Rule:
    lone = signals.point.concurrency == 1
    slow = at_most(
        "latency-bound", "slowdown", signals.slowdown, SLOWDOWN, "a request takes {value} times as long as alone"
    )
    gain = at_least(
        "latency-bound", "gain_above", signals.gain_above, MUCH_GAIN, "twice the load gives {value} more rate"
    )
    use = at_most(
        "latency-bound",
        "prompt_use",
        signals.prompt_use,
        BUSY_FOR_LATENCY,
        "rate x a lone request's time to its first token uses {value} of the prefill servers",
    )
    if lone:
        only = at_most("latency-bound", "concurrency", 1, 1, "one request in flight: nothing can queue")
        return _Rule("latency-bound", True, (only,))
    empty = at_most(
        "latency-bound",
        "waiting_part",
        signals.waiting_part,
        WAITING_PART_HARDLY_SLOWER if (signals.slowdown or math.inf) <= HARDLY_SLOWER else WAITING_PART,
        "{value} of the requests in flight wait in the engine's queues",
    )
    places = at_most(
        "latency-bound", "places_use", signals.places_use, POOL_FULL, "{value} of decode's places are in use"
    )
    # The next load may lie beyond a limit that this one does not reach: empty queues then say so. A prompt that shares
    # a batch uses less of prefill than rate x TTFT says: a rate that still grows then says so.
    grows = gain.speaks_for or empty.speaks_for or gain.side == "not seen"
    # A pool that is just full has no queue yet, and no room for more load either.
    room = at_most("latency-bound", "token_usage", signals.token_usage, POOL_FULL, "{value} of the KV pool is in use")
    quick = (
        slow.speaks_for and grows and (use.speaks_for or gain.speaks_for) and "against" not in (room.side, places.side)
    )
    return _Rule("latency-bound", quick, (slow, gain, empty, use, room, places))


def _prefill(signals: _Signals) -> _Rule:
    bound: Bound = "prefill-bound"
    queued = _queued(bound, signals)
    use = at_least(
        bound,
        "prompt_use",
        signals.prompt_use,
        FULL,
        "rate x a lone request's time to its first token uses {value} of the prefill servers",
    )
    flat = at_most(bound, "flat", signals.flat, FLAT, "twice the load gives {value} more rate")
    share = at_least(
        bound,
        "prefill_queue",
        signals.prefill_share,
        MOST_OF_QUEUES,
        "{value} of the queues behind decode's admission are prefill's",
    )
    not_transfer = _idle_transfer(bound, signals)
    not_pool = _idle_pool(bound, signals)
    stage = at_least(
        bound,
        "before_first_token",
        1 - signals.stages.decode_share if signals.stages else None,
        0.5,
        "{value} of the requests in flight wait for their first token",
    )
    if share.side == "not seen":
        holds = (
            queued.speaks_for
            and use.speaks_for
            and any(item.speaks_for for item in not_transfer)
            and (stage.speaks_for or flat.speaks_for)
        )
    else:
        full = signals.prefill_full if signals.admission_queue else use.speaks_for or flat.speaks_for
        holds = share.speaks_for and full
    return _Rule(bound, holds, (queued, use, flat, share, stage, *not_transfer, *not_pool))


def _transfer(signals: _Signals) -> _Rule:
    bound: Bound = "transfer-bound"
    queued = _queued(bound, signals)
    use = at_least(
        bound, "transfer_use", signals.transfer_use, TRANSFER_FULL, "KV bytes use {value} of what the path carries"
    )
    share = at_least(
        bound,
        "transfer_queue",
        None if signals.prefill_share is None else 1 - signals.prefill_share,
        MOST_OF_QUEUES,
        "{value} of the queues behind decode's admission are KV transfers",
    )
    part = at_least(
        bound, "transfer_part", signals.transfer_part, QUEUED, "KV transfers take {value} of TTFT, queue included"
    )
    flat = at_most(bound, "flat", signals.flat, FLAT, "twice the load gives {value} more rate")
    if share.side == "not seen":
        holds = queued.speaks_for and use.speaks_for
    else:
        full = use.speaks_for or (use.side == "not seen" and flat.speaks_for)
        holds = share.speaks_for and (signals.transfer_full if signals.admission_queue else full)
    return _Rule(bound, holds, (queued, use, share, part, flat))


def _kv(signals: _Signals) -> _Rule:
    bound: Bound = "KV-bound"
    demand = at_least(
        bound, "pool_demand", signals.pool_demand, 1.0, "all requests together want {value} of the KV pool's tokens"
    )
    share = at_least(
        bound,
        "pool_queue",
        signals.pool_share,
        MOST_OF_QUEUES,
        "{value} of the engine's queues waits for room in decode",
    )
    usage = at_least(bound, "token_usage", signals.token_usage, POOL_FULL, "{value} of the KV pool is in use")
    behind = _behind(bound, signals)
    holds = share.speaks_for and usage.speaks_for and demand.side != "against" and behind.side != "against"
    return _Rule(bound, holds, (demand, share, usage, behind))


def _decode(signals: _Signals) -> _Rule:
    bound: Bound = "decode-bound"
    share = at_least(
        bound,
        "decode_share",
        signals.stages.decode_share if signals.stages else None,
        DECODING,
        "{value} of the requests in flight decode",
    )
    slower = at_least(
        bound, "tpot_growth", signals.tpot_growth, SLOWER_TOKENS, "a token takes {value} times as long as alone"
    )
    gains = [gain for gain in (signals.gain_above, signals.gain_below) if gain is not None]
    gain = at_most(bound, "gain", gains[0] if gains else None, LITTLE_GAIN, "twice the load gives {value} more rate")
    places = at_least(
        bound,
        "place_queue",
        signals.pool_share,
        MOST_OF_QUEUES,
        "{value} of the engine's queues waits for a place in decode",
    )
    room = at_most(bound, "token_usage", signals.token_usage, POOL_FULL, "{value} of the KV pool is in use")
    loaded = (
        share.speaks_for
        and slower.speaks_for
        and gain.speaks_for
        and not (places.speaks_for and room.side == "against")
    )
    behind = _behind(bound, signals)
    slots = places.speaks_for and room.speaks_for and behind.side != "against"
    return _Rule(bound, loaded or slots, (share, slower, gain, places, room, behind))


def _behind(bound: Bound, signals: _Signals) -> Evidence:
    """What decode lets in may still wait for a full prefill or link: then more room would only move the queue there."""
    unseen = signals.prefill_waiting is None and signals.transfer_waiting is None
    full = None if unseen else float(signals.prefill_full) + float(signals.transfer_full)
    return at_most(bound, "full_behind", full, 0, "{value} of the stages behind decode's admission are at their limit")


def _idle_transfer(bound: Bound, signals: _Signals) -> tuple[Evidence, ...]:
    return (
        at_most(bound, "transfer_use", signals.transfer_use, TRANSFER_IDLE, "KV bytes use at most {value} of the path"),
        at_most(bound, "transfer_part", signals.transfer_part, TRANSFER_PART, "KV transfers take {value} of TTFT"),
    )


def _idle_pool(bound: Bound, signals: _Signals) -> tuple[Evidence, ...]:
    return (
        at_most(bound, "pool_demand", signals.pool_demand, 1.0, "all requests want {value} of the KV pool's tokens"),
        at_most(bound, "token_usage", signals.token_usage, POOL_FULL, "{value} of the KV pool is in use"),
    )


# --- words -------------------------------------------------------------------------------------------------------


def _colocated(signals: _Signals, latency: _Rule) -> Verdict:
    if latency.holds:
        support = "; ".join(item.words for item in latency.evidence if item.speaks_for)
        return Verdict("latency-bound", f"latency-bound: {support}", latency.evidence)
    words = "cannot say: prefill and decode share these servers, and what one takes the other lacks"
    return Verdict("cannot say", words, latency.evidence, "measure the same load with prefill and decode apart")


def _why_none(signals: _Signals) -> str:
    if signals.queue_share is not None and signals.queue_share >= QUEUED:
        share = f"{signals.queue_share:.0%} of TTFT is waiting"
        if signals.queues is None and signals.transfer_use is None and signals.transfer_part is None:
            return (
                f"{share}, and nothing recorded tells a queue for prefill from one for the KV transfer or the KV pool"
            )
        return f"{share}, but no stage is seen at its limit"
    if signals.queue_share is None and signals.slowdown is None:
        return "without a point of one request in flight and this input length, waiting cannot be told from working"
    return "no stage is seen at its limit, and a request takes longer than alone: between two bounds"


def _settle(signals: _Signals) -> str:
    if signals.queue_share is None and signals.slowdown is None:
        return "measure concurrency 1 with the same input length"
    if signals.queue_share is not None and signals.queue_share >= QUEUED and signals.queues is None:
        return "record the engine's queues during the point, and what the KV path carries"
    return "measure twice this load: a rate that grows on has no bound yet"
