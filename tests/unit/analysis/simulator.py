# SPDX-License-Identifier: Apache-2.0
"""A closed loop on prefill and decode servers, event by event: the truth that the analysis is held against.

Idealised as the models are, but not the models: FCFS prefill servers with one prompt at a time, one FCFS transfer link,
decode in batch steps of a + b * n ms that requests join between steps, a KV pool and places in decode that a request
takes before its prefill (as the engine's decode side allocates before it lets prefill begin) and gives back at its end.
What binds a cell is found by experiment: make one resource 25 % larger and see whether the rate follows.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field, replace

from pdlab.analysis.measurement import EngineView, KvFacts, Measurement, Requests, Servers

GROWTH = 1.25


@dataclass(frozen=True)
class Cell:
    """One load on one set of servers. Times in ms; `pool_tokens` and `slots` are per decode server."""

    concurrency: int
    input_len: int = 256
    output_len: int = 128
    prefill: int = 1
    decode: int = 1
    prompt_ms: float = 20.0
    transfer_ms: float = 1.0
    a_ms: float = 5.0
    b_ms: float = 0.03
    pool_tokens: float = float("inf")
    slots: float = float("inf")
    jitter: float = 0.1
    seed: int = 1
    rounds: int = 6


@dataclass
class _Decode:
    free_tokens: float
    free_slots: float
    waiting: deque = field(default_factory=deque)
    joining: list = field(default_factory=list)
    active: dict = field(default_factory=dict)
    steps: int = 0
    running: bool = False


class _Area:
    """Time integral of a count."""

    def __init__(self) -> None:
        self.count, self.since, self.total = 0.0, 0.0, 0.0

    def add(self, now: float, change: float) -> None:
        self.total += self.count * (now - self.since)
        self.count, self.since = self.count + change, now


@dataclass(frozen=True)
class Outcome:
    """A run: its measurement as a client and the engine's metrics would give it."""

    measurement: Measurement

    @property
    def rate(self) -> float:
        return self.measurement.request_s


def simulate(cell: Cell) -> Outcome:
    """Run a cell to its end."""
    draw = random.Random(cell.seed)
    total = max(24, cell.rounds * cell.concurrency)
    need = cell.input_len + cell.output_len
    servers = [_Decode(cell.pool_tokens, cell.slots) for _ in range(cell.decode)]
    events: list[tuple[float, int, str, int]] = []
    serial = 0
    prefill_queue: deque[int] = deque()
    link_queue: deque[int] = deque()
    free_prefill, link_free = cell.prefill, True
    arrived, prefilled, first, ended = {}, {}, {}, {}
    areas = {name: _Area() for name in ("pool", "prefill", "link", "tokens", "running")}
    sent = 0
    now = 0.0

    def at(delay: float, kind: str, who: int) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(events, (now + delay, serial, kind, who))

    def varied(time: float) -> float:
        return time * (1 + cell.jitter * (2 * draw.random() - 1))

    def send() -> None:
        nonlocal sent
        who, sent = sent, sent + 1
        arrived[who] = now
        servers[who % cell.decode].waiting.append(who)
        areas["pool"].add(now, 1)
        allocate(servers[who % cell.decode])

    def allocate(server: _Decode) -> None:
        while server.waiting and server.free_tokens >= need and server.free_slots >= 1:
            who = server.waiting.popleft()
            server.free_tokens -= need
            server.free_slots -= 1
            areas["pool"].add(now, -1)
            areas["tokens"].add(now, need)
            areas["prefill"].add(now, 1)
            prefill_queue.append(who)
            start_prefill()

    def start_prefill() -> None:
        nonlocal free_prefill
        while free_prefill and prefill_queue:
            free_prefill -= 1
            areas["prefill"].add(now, -1)
            at(varied(cell.prompt_ms), "prefilled", prefill_queue.popleft())

    def start_link() -> None:
        nonlocal link_free
        if link_free and link_queue:
            link_free = False
            at(varied(cell.transfer_ms), "transferred", link_queue[0])

    def step(index: int) -> None:
        server = servers[index]
        for who in server.joining:
            server.active.setdefault(server.steps + cell.output_len - 1, []).append(who)
        areas["running"].add(now, len(server.joining))
        server.joining = []
        batch = sum(len(group) for group in server.active.values())
        server.running = batch > 0
        if batch:
            at(varied(cell.a_ms + cell.b_ms * batch), "step", index)

    def finish(who: int) -> None:
        server = servers[who % cell.decode]
        ended[who] = now
        server.free_tokens += need
        server.free_slots += 1
        areas["tokens"].add(now, -need)
        allocate(server)
        if sent < total:
            send()

    for _ in range(min(cell.concurrency, total)):
        send()
    while events:
        now, _order, kind, who = heapq.heappop(events)
        if kind == "prefilled":
            free_prefill += 1
            prefilled[who] = now
            areas["link"].add(now, 1)
            link_queue.append(who)
            start_link()
            start_prefill()
        elif kind == "transferred":
            link_queue.popleft()
            areas["link"].add(now, -1)
            link_free = True
            start_link()
            first[who] = now
            if cell.output_len == 1:
                finish(who)
                continue
            server = servers[who % cell.decode]
            server.joining.append(who)
            if not server.running:
                step(who % cell.decode)
        else:
            server = servers[who]
            server.steps += 1
            done = server.active.pop(server.steps, [])
            areas["running"].add(now, -len(done))
            for one in done:
                finish(one)
            step(who)
    return Outcome(_measured(cell, now, arrived, prefilled, first, ended, areas))


def _measured(cell, end, arrived, prefilled, first, ended, areas) -> Measurement:
    order = sorted(ended)
    ttft = [first[who] - arrived[who] for who in order]
    e2e = [ended[who] - arrived[who] for who in order]
    tokens = max(1, cell.output_len - 1)
    tpot = [(whole - wait) / tokens for whole, wait in zip(e2e, ttft, strict=True)]
    means = {name: area.total / end for name, area in areas.items()}
    pool = cell.pool_tokens * cell.decode
    count = len(order)
    engine = EngineView(
        prefill_waiting=means["prefill"],
        prefill_inflight=means["link"],
        decode_prealloc=means["pool"],
        decode_running=means["running"],
        # The engine counts what is taken; a pool holds whole requests, so it is full when no further one fits.
        token_usage=0.0 if pool == float("inf") else means["tokens"] / pool,
        decode_places=None if cell.slots == float("inf") else cell.slots * cell.decode,
        kv_transfer_ms=sum(first[who] - prefilled[who] for who in order) / count,
    )
    return Measurement(
        label=f"c{cell.concurrency}",
        request_s=1000 * count / end,
        input_len=cell.input_len,
        output_len=cell.output_len,
        tpot_ms=sum(tpot) / count if cell.output_len > 1 else None,
        ttft_ms=sum(ttft) / count,
        e2e_ms=sum(e2e) / count,
        concurrency=cell.concurrency,
        requested=count,
        completed=count,
        duration_s=end / 1000,
        servers=Servers(cell.prefill, cell.decode),
        engine=engine,
        kv=KvFacts(
            bytes_per_token_at_most=1.0,
            path_gb_s_at_least=cell.input_len / (cell.transfer_ms * 1e-3) / 1e9,
            pool_tokens=None if pool == float("inf") else pool,
        ),
        requests=Requests(tuple(ttft), tuple(tpot), tuple(e2e)),
    )


# --- the truth, by experiment ------------------------------------------------------------------------------------

RESOURCES = {
    "latency-bound": lambda cell: replace(
        cell, concurrency=max(cell.concurrency + 1, round(cell.concurrency * GROWTH))
    ),
    "prefill-bound": lambda cell: replace(cell, prompt_ms=cell.prompt_ms / GROWTH),
    "transfer-bound": lambda cell: replace(cell, transfer_ms=cell.transfer_ms / GROWTH),
    "KV-bound": lambda cell: replace(cell, pool_tokens=cell.pool_tokens * GROWTH),
    "decode-bound": lambda cell: replace(
        cell, a_ms=cell.a_ms / GROWTH, b_ms=cell.b_ms / GROWTH, slots=cell.slots * GROWTH
    ),
}


def elasticities(cell: Cell, base: float) -> dict[str, float]:
    """For each resource: which share of its growth the rate follows, 1 all of it, 0 none."""
    found = {}
    for name, larger in RESOURCES.items():
        if name == "KV-bound" and cell.pool_tokens == float("inf"):
            found[name] = 0.0
            continue
        changed = larger(cell)
        growth = changed.concurrency / cell.concurrency if name == "latency-bound" else GROWTH
        found[name] = (simulate(changed).rate / base - 1) / (growth - 1)
    return found


def alone_and_together(cell: Cell, base: float) -> bool:
    """Whether load and room in decode bind only together: the load just fills the room, and either alone is no use."""
    room = replace(cell, pool_tokens=cell.pool_tokens * GROWTH, slots=cell.slots * GROWTH)
    both = RESOURCES["latency-bound"](room)
    more, most = simulate(room).rate / base - 1, simulate(both).rate / base - 1
    return more < 0.3 * (GROWTH - 1) and most > 0.6 * (GROWTH - 1)


def truth(cell: Cell, base: float) -> str | None:
    """What binds a cell; None where no single resource does.

    With nothing full the rate follows the load, whatever else would shorten a request as well. Else it is the one
    resource that the rate follows most, when it follows by two thirds and no other by more than a third. A full KV pool
    is given back the sooner the faster decode is, so that the rate follows decode, too: it is the pool that is full.
    """
    follows = elasticities(cell, base)
    if cell.concurrency == 1 or follows["latency-bound"] >= 0.75:
        return "latency-bound"
    if follows.pop("latency-bound") > 0.45:
        return None
    if follows["KV-bound"] >= 0.66 and max(follows["prefill-bound"], follows["transfer-bound"]) <= 0.34:
        return "KV-bound"
    if alone_and_together(cell, base):
        return None
    name, *others = sorted(follows, key=lambda key: -follows[key])
    return name if follows[name] >= 0.66 and all(follows[other] <= 0.34 for other in others) else None


def random_shape(draw: random.Random) -> Cell:
    """Servers and lengths drawn widely, at concurrency 1. A KV pool or places in decode hold 4 to 16 requests."""
    input_len, output_len = draw.choice([128, 512, 2048, 8192]), draw.choice([16, 64, 128, 256, 512])
    cell = Cell(
        1,
        input_len,
        output_len,
        prefill=draw.randint(1, 3),
        decode=draw.randint(1, 3),
        prompt_ms=10 ** draw.uniform(0.3, 2.5),
        transfer_ms=10 ** draw.uniform(-0.5, 2.2),
        a_ms=10 ** draw.uniform(0.3, 1.5),
        b_ms=10 ** draw.uniform(-2.3, -0.2),
        jitter=draw.choice([0.05, 0.1, 0.3]),
        seed=draw.randrange(10**6),
    )
    room = draw.choice([4, 8, 12, 16])
    kind = draw.random()
    if kind < 0.3:
        # A little more than whole requests, which floating point would else turn away.
        return replace(cell, pool_tokens=(input_len + output_len) * room * 1.001)
    return replace(cell, slots=room) if kind < 0.45 else cell
