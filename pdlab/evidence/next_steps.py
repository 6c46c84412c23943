# SPDX-License-Identifier: Apache-2.0
"""The measurement that would settle a verdict, or make it stronger: in words, with numbers and a command. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from pdlab.analysis.rate_search import HighestRate
from pdlab.analysis.repeats_needed import MOST_REPEATS, repeats_needed
from pdlab.evidence.model import Arm

AIM = 5
# Stands for an arm that is yet to be declared.
NEW = "NAME"
# Rates within this factor bracket a highest rate well enough; a search ends there, too.
NEAR = 1.25


def more_repeats(workload: str, arms: Sequence[Arm], seen: Sequence[float]) -> str:
    """How many repeats would show the effect, from the paired differences seen."""
    if len(seen) < 2:
        return f"{AIM} repeats, interleaved: {command(workload, arms, AIM)}"
    needed = repeats_needed(seen)
    if needed is None:
        return (
            f"more repeats will hardly settle it: with this spread it would take more than {MOST_REPEATS}; "
            "measure more requests a point, or another load"
        )
    total = max(needed, len(seen) + 1)
    more = total - len(seen)
    return (
        f"about {more} more repeat{'s' if more > 1 else ''} ({total} in all) would settle it if the spread stays as it "
        f"is; all in one run: {command(workload, arms, total)}"
    )


def again(workload: str, arms: Sequence[Arm], repeats: int, what: str = "") -> str:
    """What to do where an arm has no point that counts. `what`: which one, where that has not been said."""
    said = f"{what}; measure it again" if what else "measure it again; the checks that failed say why"
    return f"{said}: {command(workload, arms, repeats)}"


def stronger(workload: str, arms: Sequence[Arm], repeats: int) -> str | None:
    """What makes a shown effect stronger; None when enough repeats are there."""
    if repeats >= AIM:
        return None
    return f"{AIM} repeats would narrow the interval: {command(workload, arms, AIM)}"


def higher_rates(workload: str, arms: Sequence[Arm], rates: Sequence[HighestRate]) -> str:
    """Which rate to try next where an arm keeps the limits at every measured rate."""
    top = max(rate.rates[-1].rate_s for rate in rates)
    first, second = _round(1.5 * top), _round(2 * top)
    return f"{workload} at {first} and {second} requests/s, to find where the limits break: {search(workload, arms)}"


def lower_rates(workload: str, arms: Sequence[Arm], rates: Sequence[HighestRate]) -> str:
    """Which rate to try next where no arm keeps the limits at any measured rate."""
    rate = _round(min(rate.rates[0].rate_s for rate in rates) / 2)
    return f"{workload} at {rate} requests/s and less ({search(workload, arms)}), or other limits"


def between(workload: str, arms: Sequence[Arm], rate: HighestRate) -> str | None:
    """The rate between the last that keeps and the first that does not; None when they are near each other, or contradict others."""
    if rate.refused or rate.kept_s is None or rate.failed_s is None or rate.failed_s <= rate.kept_s * NEAR:
        return None
    middle = _round((rate.kept_s + rate.failed_s) / 2)
    return f"{workload} at {middle} requests/s, between what keeps and what does not: {search(workload, arms)}"


def state_limits(workload: str) -> str:
    """What a trade needs."""
    return (
        f"state the limits of {workload} (TTFT, TPOT or E2E, in ms) and measure it in an open loop at rising rates: "
        "goodput under limits decides between faster tokens and more of them"
    )


def a_baseline(arms: Sequence[Arm], disaggregated: bool) -> str:
    """What is missing where there is nothing to compare with."""
    missing = "an arm of colocated servers" if disaggregated else "an arm of prefill and decode servers"
    beside = ", ".join(arm.name for arm in arms)
    return f"measure {missing} on the same GPUs beside {beside}: {_typed(arms, f'--repeats {AIM}', NEW)}"


def command(workload: str, arms: Sequence[Arm], repeats: int) -> str:
    """The command that measures the arms again on one workload."""
    return _typed(arms, f"--workload {shlex.quote(workload)} --repeats {repeats}")


def search(workload: str, arms: Sequence[Arm]) -> str:
    """The command that looks for the rates itself."""
    return _typed(arms, f"--workload {shlex.quote(workload)} --search")


def _typed(arms: Sequence[Arm], rest: str, *more: str) -> str:
    """A command on arms as it is typed; with what to declare first where the inventory does not have their names.

    more: names of arms that do not exist yet.
    """
    # Arms of unlike runs have no inventory in common.
    options = list(dict.fromkeys(tuple(arm.options) for arm in arms))
    before = shlex.join(["pdlab", "bench", *(options[0] if len(options) == 1 else ())])
    line = f"`{before} --arms {shlex.quote(','.join([*(arm.name for arm in arms), *more]))} {rest}`"
    missing = [arm.name for arm in arms if not arm.declared]
    if not missing:
        return line
    *first, last = [*missing, *more]
    names = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    there = [arm.name for arm in arms if arm.declared]
    beside = f", beside {', '.join(there)}" if there else ""
    return f"{line}, once {names} declared in one inventory's pd_arms{beside}"


def _round(value: float) -> str:
    """Two digits are enough for a rate to try."""
    digits = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, digits):g}"
