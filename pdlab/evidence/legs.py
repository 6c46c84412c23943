# SPDX-License-Identifier: Apache-2.0
"""The legs of a run: one for a plain run, one a deployment for a run of arms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pdlab.analysis.measurement import Measurement
from pdlab.evidence.measured import arm_of, measurements
from pdlab.results.build import build_report
from pdlab.results.model import Report
from pdlab.store import RunContents, RunFolder

_LEG_NAME = re.compile(r"(?P<order>\d+)-(?P<arm>.+)-r(?P<repeat>\d+)")


@dataclass(frozen=True)
class Leg:
    """One deployment of one arm and the sweep on it, read once. `id` is ARM-rREPEAT.

    order: its place in time, from 0. measurements: its points that have figures. run: the run that it belongs to.
    path: its folder, relative to the folder that the evidence is about.
    """

    id: str
    arm: str
    repeat: int
    order: int
    contents: RunContents
    report: Report
    measurements: tuple[Measurement, ...]
    run: str = ""
    path: str = "."


def legs_of(folder: RunFolder) -> tuple[Leg, ...]:
    """The legs of a run in the order in which they ran. A plain run is one leg, repeat 0.

    A leg that was cut and made anew counts once: its last deployment. Never raises for what is missing or damaged.
    """
    found: dict[str, Leg] = {}
    for part in folder.leg_folders():
        named = _LEG_NAME.fullmatch(part.name)
        if named:
            leg = read_leg(part, named["arm"], int(named["repeat"]), int(named["order"]))
            found[leg.id] = replace(leg, run=folder.run_name, path=str(part.path.relative_to(folder.path)))
    if found:
        return tuple(sorted(found.values(), key=lambda leg: (leg.order, leg.id)))
    if folder.arms_document() is not None:
        return ()
    return (replace(read_leg(folder), run=folder.run_name),)


def read_leg(folder: RunFolder, arm: str | None = None, repeat: int = 0, order: int = 0) -> Leg:
    """One run folder as a leg. Without a name the arm is its plan's."""
    contents = folder.read()
    report = build_report(contents)
    name = arm or arm_of(contents.plan or {})
    return Leg(
        id=f"{name}-r{repeat}",
        arm=name,
        repeat=repeat,
        order=order,
        contents=contents,
        report=report,
        measurements=measurements(contents, report, arm=name, repeat=repeat),
        run=folder.run_name,
    )


def arms_of(legs: Sequence[Leg]) -> tuple[str, ...]:
    """The arms in the order in which they first ran."""
    return tuple(dict.fromkeys(leg.arm for leg in sorted(legs, key=lambda leg: leg.order)))
