# SPDX-License-Identifier: Apache-2.0
"""In which order arms are measured, and how long it will take. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class PlannedLeg:
    """One deployment of one arm and the sweep on it. `repeat` counts from 1; `seed` is the same for all its arms."""

    id: str
    arm: str
    repeat: int
    seed: int


def leg_id(arm: str, repeat: int) -> str:
    """ARM-rREPEAT, as in pd-r1."""
    return f"{arm}-r{repeat}"


def schedule(arms: Sequence[str], repeats: int, seed: int) -> tuple[PlannedLeg, ...]:
    """Every arm `repeats` times, a block for each repeat: ABBA for two arms.

    Blocks come in pairs, an order and its reverse, so that over each pair all arms have the same mean place in time and
    a steady drift of the box (heat, clocks) falls on all alike. From pair to pair the order is rotated, so that no arm
    always follows the same one. Repeat k has the seed `seed` + k - 1. Raises ValueError for fewer than two arms, an arm
    named twice, or no repeat.
    """
    if len(arms) < 2 or len(set(arms)) < len(arms) or repeats < 1:
        raise ValueError("two different arms or more, and one repeat or more")
    order = []
    for repeat in range(1, repeats + 1):
        pair, second = divmod(repeat - 1, 2)
        turn = pair % len(arms)
        block = [*arms[turn:], *arms[:turn]]
        for arm in reversed(block) if second else block:
            order.append(PlannedLeg(leg_id(arm, repeat), arm, repeat, seed + repeat - 1))
    return tuple(order)


def remaining(order: Sequence[PlannedLeg], done: Collection[str]) -> tuple[PlannedLeg, ...]:
    """What is still to be measured, in the order in which it was planned. `done`: ids of the legs that are whole."""
    return tuple(leg for leg in order if leg.id not in done)


def seconds_left(
    rest: Sequence[PlannedLeg], took: Mapping[str, Sequence[float]], elapsed_s: float = 0.0
) -> float | None:
    """Seconds for the legs in `rest`, the first of which has run for `elapsed_s`; None before any leg is through.

    `took`: seconds of finished legs by arm. An arm that has none counts as the mean of the others.
    """
    known = [seconds for times in took.values() for seconds in times]
    if not known:
        return None
    expected = [fmean(took[leg.arm]) if took.get(leg.arm) else fmean(known) for leg in rest]
    if not expected:
        return 0.0
    return max(0.0, expected[0] - elapsed_s) + sum(expected[1:])


def minutes(seconds: float | None) -> str:
    """A time for a person: "about 12 min", "less than a minute"."""
    if seconds is None:
        return "time left: known after the first leg"
    if seconds < 60:
        return "less than a minute left"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"about {hours} h {rest:02d} min left" if hours else f"about {rest} min left"
