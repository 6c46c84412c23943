# SPDX-License-Identifier: Apache-2.0
"""The legs of any runs as one set, for `pdlab compare`: the same arm again is a repeat, another set-up an arm of its own.

Two legs are of one arm when they have the same name and the same servers, engine and model. Where one name stands for
two set-ups, the arms are called NAME-ID after the six digits of the first run with that set-up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from pdlab.evidence.legs import Leg, legs_of
from pdlab.evidence.likeness import engine, model
from pdlab.loose import as_list, as_mapping, as_rows
from pdlab.store import RunFolder

# What a server is, whatever its ports, paths and hosts.
_OF_A_SERVER = ("role", "tp", "device", "transfer_backend", "args", "env")


def legs_side_by_side(folders: Sequence[RunFolder]) -> tuple[Leg, ...]:
    """The legs of all runs, in the order in which they began. Paths are relative to the runs' common parent.

    Repeats are numbered anew, each arm from 0: what is paired is the order in which arms ran. A run that is named twice
    counts once, and so does a copy of it in another place.
    """
    runs = {str(folder.path): folder for folder in folders}
    # A copy of a run is no repeat of it: the same leg of the same run, begun at the same moment, is one measurement.
    known = {
        (folder.run_name, leg.id, leg.report.started): (folder, leg)
        for folder in reversed(list(runs.values()))
        for leg in legs_of(folder)
    }
    found = list(known.values())
    found.sort(key=lambda one: (one[1].report.started or "", one[1].run, one[1].order))
    names = _names([leg for _folder, leg in found])
    seen: dict[str, int] = {}
    made = []
    for order, ((folder, leg), name) in enumerate(zip(found, names, strict=True)):
        repeat = seen.get(name, 0)
        seen[name] = repeat + 1
        points = tuple(replace(one, arm=name, repeat=repeat) for one in leg.measurements)
        path = str(PurePosixPath(folder.name) / leg.path)
        made.append(
            replace(leg, id=f"{name}-r{repeat}", arm=name, repeat=repeat, order=order, measurements=points, path=path)
        )
    return tuple(made)


def set_up(leg: Leg) -> str:
    """What makes two legs one arm: servers with their settings, the router's policy, engine and model."""
    plan = leg.contents.plan or {}
    servers = [
        {**{name: row.get(name) for name in _OF_A_SERVER}, "gpus": len(as_list(row.get("gpus")))}
        for row in as_rows(plan.get("servers"))
    ]
    servers.sort(key=lambda row: json.dumps(row, sort_keys=True, default=str))
    router = as_mapping(plan.get("router"))
    facts = [servers, router.get("policy"), router.get("args"), engine(leg), model(leg)]
    return json.dumps(facts, sort_keys=True, default=str)


def _names(legs: Sequence[Leg]) -> list[str]:
    """Each leg's arm; with the id of a run where a name stands for more than one set-up."""
    set_ups: dict[str, dict[str, str]] = {}
    for leg in legs:
        set_ups.setdefault(leg.arm, {}).setdefault(set_up(leg), leg.run.rsplit("-", 1)[-1])
    return [f"{leg.arm}-{set_ups[leg.arm][set_up(leg)]}" if len(set_ups[leg.arm]) > 1 else leg.arm for leg in legs]
