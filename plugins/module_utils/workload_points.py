# SPDX-License-Identifier: GPL-3.0-or-later
"""One workload's points: how many prompts each gets and why, its load, its label. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

CLOSED, OPEN = "closed", "open"
RANDOM_IDS, SHARED_PREFIX = "random-ids", "shared-prefix"

# Read when neither the inventory nor the workload says otherwise. Lengths in tokens; limit_s is seconds a point.
DEFAULTS: dict[str, Any] = {
    "input_len": 256,
    "output_len": 128,
    "range_ratio": 1.0,
    "seed": 42,
    "limit_s": 600,
    "dataset": RANDOM_IDS,
}
# How many prompts a point gets that does not say so (prompts_by_rule).
RULE: dict[str, Any] = {"waves": 5, "percentile": "p90", "duration_s": 60}
PREFIX: dict[str, Any] = {"prefix_groups": 8, "prefix_len": 128}

# The smallest sample in which, with 99 % confidence, at least two values lie above the percentile:
# 1 - p**n - n * (1 - p) * p**(n - 1) >= 0.99, the rule of MLPerf's endpoints harness.
SAMPLES_NEEDED = {"p50": 11, "p90": 64, "p95": 130, "p99": 662}


def prompts_by_rule(
    load: Mapping[str, Any], waves: int, percentile: str, duration_s: float, groups: int | None = None
) -> int:
    """How many prompts a point needs, for its load ({"concurrency"} or {"rate_s"}).

    A closed loop of C requests starts with C of them at once and ends with a tail in which fewer than C are in
    flight. So it gets `waves` times C: with 5, four fifths of the requests start while the loop is full (SGLang's own
    benchmark guide says 5 at least; others take 10). An open loop at rate r runs for about `duration_s`, which is
    r * duration_s prompts. Either gets the sample that `percentile` needs, too: goodput asks which requests out of
    ten kept a limit, and that is a 90th percentile. Prompts that share prefixes come in whole `groups`.
    """
    count = waves * load["concurrency"] if load.get("concurrency") else math.ceil(duration_s * load["rate_s"])
    count = max(count, SAMPLES_NEEDED[percentile])
    return math.ceil(count / groups) * groups if groups else count


def finished(point: Mapping[str, Any], settings: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """A POINT without its label: the point's own words over its workload's `settings` over the defaults.

    {"workload", "loop", "concurrency", "rate_s", "prompts", "input_len", "output_len", "range_ratio", "seed",
    "limit_s", "dataset", "limits"}, and for shared prefixes "prefix_groups" and "prefix_len".
    """
    known = {**DEFAULTS, **RULE, **settings, **point}
    shared = known["dataset"] == SHARED_PREFIX
    if shared:
        known = {**PREFIX, **known}
    load = {name: point.get(name) for name in ("concurrency", "rate_s")}
    prompts = point.get("prompts")
    if prompts is None:
        groups = known["prefix_groups"] if shared else None
        prompts = prompts_by_rule(load, known["waves"], known["percentile"], known["duration_s"], groups)
    return {
        "workload": workload,
        "loop": CLOSED if load["concurrency"] else OPEN,
        **load,
        "prompts": prompts,
        **{name: known[name] for name in DEFAULTS},
        **({name: known[name] for name in PREFIX} if shared else {}),
        "limits": [dict(limits) for limits in known.get("limits") or []],
    }


def faults_of(point: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is wrong with a finished point, as (key, problem, cure)."""
    found = []
    if point["concurrency"] and point["prompts"] < point["concurrency"]:
        problem = f"{point['prompts']} prompts never keep {point['concurrency']} requests in flight"
        found.append(("prompts", problem, f"write {point['concurrency']} or more"))
    if point["dataset"] == SHARED_PREFIX:
        if point["prefix_len"] >= point["input_len"]:
            problem = f"a prefix of {point['prefix_len']} tokens leaves nothing of a prompt of {point['input_len']}"
            found.append(("prefix_len", problem, f"write less than {point['input_len']}"))
        if point["prompts"] % point["prefix_groups"]:
            problem = f"{point['prompts']} prompts are no whole number for each of {point['prefix_groups']} prefixes"
            nearest = math.ceil(point["prompts"] / point["prefix_groups"]) * point["prefix_groups"]
            found.append(("prompts", problem, f"write {nearest}"))
        if point["range_ratio"] != 1.0:
            found.append(("range_ratio", "prompts with a shared prefix have exact lengths", "leave it out"))
    return found


def labelled(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each point a label that no other has.

    c16-n48 in a closed loop, r4-n240 in an open one, behind its workload where a run has several; with its lengths,
    then a count, where that is not enough.
    """
    several = len({point["workload"] for point in points}) > 1
    names = [(f"{point['workload']}-" if several else "") + load_name(point) for point in points]
    lengths = [f"-i{point['input_len']}-o{point['output_len']}" for point in points]
    longer = [name if names.count(name) == 1 else name + lengths[index] for index, name in enumerate(names)]
    labels = [
        name if longer.count(name) == 1 else f"{name}-r{longer[: index + 1].count(name)}"
        for index, name in enumerate(longer)
    ]
    return [{"label": labels[index], **point} for index, point in enumerate(points)]


def at_rate(points: Sequence[Mapping[str, Any]], workload: str, rate_s: float) -> dict[str, Any]:
    """An open-loop point of `workload` at another rate: like its nearest one among `points`, with a label of its own.

    It runs for as long as the workload's fastest point, and has at least as many prompts as its smallest. Raises
    ValueError when the workload has no open-loop point.
    """
    own = [point for point in points if point["workload"] == workload and point["loop"] == OPEN]
    if not own:
        raise ValueError(f"{workload} has no point in an open loop")
    fastest = max(own, key=lambda point: point["rate_s"])
    seconds = fastest["prompts"] / fastest["rate_s"]
    prompts = max(math.ceil(seconds * rate_s), min(point["prompts"] for point in own))
    like = min(own, key=lambda point: abs(math.log(point["rate_s"] / rate_s)))
    groups = like["prefix_groups"] if like["dataset"] == SHARED_PREFIX else 1
    point = {**like, "rate_s": rate_s, "prompts": math.ceil(prompts / groups) * groups}
    several = len({one["workload"] for one in points}) > 1
    name = (f"{workload}-" if several else "") + load_name(point)
    taken = {one["label"] for one in points}
    labels = (name if count == 1 else f"{name}-{count}" for count in range(1, len(taken) + 2))
    return {**point, "label": next(label for label in labels if label not in taken)}


def with_more(benchmark: Mapping[str, Any], more: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The plan's `benchmark` with further points behind its own; "searched" has their labels."""
    if not more:
        return dict(benchmark)
    points = [*benchmark["points"], *(dict(point) for point in more)]
    return {**benchmark, "points": points, "searched": [point["label"] for point in more]}


def with_seeds(benchmark: Mapping[str, Any], offset: int) -> dict[str, Any]:
    """The plan's `benchmark` for another repeat: every point's seed moved by `offset`."""
    return {**benchmark, "points": [{**point, "seed": point["seed"] + offset} for point in benchmark["points"]]}


def load_name(point: Mapping[str, Any]) -> str:
    """c16-n48 or r0.5-n64."""
    load = f"c{point['concurrency']}" if point["concurrency"] else f"r{point['rate_s']:g}"
    return f"{load}-n{point['prompts']}"
