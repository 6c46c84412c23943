# SPDX-License-Identifier: Apache-2.0
"""arms.json: what a run of arms set out to measure, so that it can go on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_arms import fingerprint
from pydantic import BaseModel, ConfigDict, ValidationError

from pdlab.bench.schedule import PlannedLeg, schedule

SCHEMA_VERSION = 1


class ArmsError(Exception):
    """Arms that cannot be measured, or a run that cannot go on. The message says why and what to do."""


class OrderedLeg(BaseModel):
    """A leg as it is planned; see schedule.PlannedLeg."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    arm: str
    repeat: int
    seed: int

    def planned(self) -> PlannedLeg:
        return PlannedLeg(self.id, self.arm, self.repeat, self.seed)


class ArmsDocument(BaseModel):
    """The whole plan of a run of arms.

    seed: of the first repeat. restore: the arm that is deployed again at the end. benchmark: pd_benchmark when the
    command line gave it, otherwise the inventory's holds. fingerprints: of each arm's topology. sweep: fingerprint of
    the points. limit, extra_vars: as given to ansible-playbook. search: whether rates are searched; null: except on a rehearsal. resident: all arms stay
    up beside each other, and no leg starts afresh.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    arms: list[str]
    repeats: int
    seed: int
    order: list[OrderedLeg]
    workloads: list[str]
    restore: str
    benchmark: dict[str, Any] | None
    search: bool | None
    inventory: str
    limit: str | None
    extra_vars: list[str]
    fingerprints: dict[str, str]
    sweep: str
    resident: bool = False

    @property
    def planned(self) -> tuple[PlannedLeg, ...]:
        """All legs, in order."""
        return tuple(leg.planned() for leg in self.order)


def new_document(
    plan: Mapping[str, Any],
    arms: Sequence[str],
    repeats: int,
    *,
    benchmark: Mapping[str, Any] | None,
    search: bool | None,
    inventory: str,
    limit: str | None,
    extra_vars: Sequence[str],
    resident: bool = False,
) -> ArmsDocument:
    """What is to be measured, from a plan of the inventory. Raises ArmsError naming what is wrong with the arms."""
    known = [arm["name"] for arm in plan["arms"]]
    if not known:
        raise ArmsError("the inventory declares no arms: write pd_arms into it (docs/inventory.md)")
    unknown = [arm for arm in arms if arm not in known]
    if unknown:
        raise ArmsError(f"--arms: there is no arm {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    if len(arms) < 2 or len(set(arms)) < len(arms):
        alone = f"; {arms[0]} alone is deployed and measured by `pdlab up -e pd_arm={arms[0]}`" if arms else ""
        raise ArmsError(f"--arms: name two different arms or more, of {', '.join(known)}{alone}")
    if repeats < 1:
        raise ArmsError(f"--repeats: {repeats} is no number of repeats; write 1 or more")
    clash = port_clash(plan, arms) if resident else None
    if clash:
        raise ArmsError(
            f"--resident: {clash}: arms that are up together need ports of their own; write them in pd_arms"
        )
    points = plan["benchmark"]["points"]
    seed = int(points[0]["seed"])
    order = [OrderedLeg.model_validate(vars(leg)) for leg in schedule(arms, repeats, seed)]
    return ArmsDocument(
        arms=list(arms),
        repeats=repeats,
        seed=seed,
        order=order,
        workloads=list(dict.fromkeys(str(point.get("workload") or plan["benchmark"]["name"]) for point in points)),
        restore=arms[0],
        benchmark=dict(benchmark) if benchmark else None,
        search=search,
        inventory=inventory,
        limit=limit,
        extra_vars=list(extra_vars),
        fingerprints=fingerprints(plan, arms),
        sweep=sweep_fingerprint(plan),
        resident=resident,
    )


def port_clash(plan: Mapping[str, Any], arms: Sequence[str]) -> str | None:
    """The first port that servers of two arms want on one host, in words, or None. The router is one for all arms."""
    holders: dict[tuple[str, int], str] = {}
    for arm in (arm for arm in plan["arms"] if arm["name"] in arms):
        for server in arm["servers"]:
            who = f"{server['name']} of {arm['name']}"
            for port in (server[key] for key in ("port", "nccl_port", "bootstrap_port") if server[key]):
                other = holders.setdefault((server["host"], port), who)
                if other.partition(" of ")[0] != server["name"]:
                    return f"{who} and {other} both have port {port}"
    return None


def read_document(document: Mapping[str, Any] | None, run: str) -> ArmsDocument:
    """arms.json of a run. Raises ArmsError when there is none or it is not whole."""
    if document is None:
        raise ArmsError(
            f"{run} is no run of arms, or its arms.json cannot be read: start one with `pdlab bench --arms`"
        )
    try:
        return ArmsDocument.model_validate(document)
    except ValidationError as error:
        raise ArmsError(f"arms.json of {run} is not whole, so the run cannot go on: {error}") from error


def fingerprints(plan: Mapping[str, Any], arms: Sequence[str]) -> dict[str, str]:
    """The fingerprint of each arm that the plan knows."""
    return {arm["name"]: arm["fingerprint"] for arm in plan["arms"] if arm["name"] in arms}


def sweep_fingerprint(plan: Mapping[str, Any]) -> str:
    """A fingerprint of the points as the inventory has them, without a repeat's seeds and what a search added."""
    searched = plan["benchmark"].get("searched", [])
    return fingerprint(
        [{**point, "seed": None} for point in plan["benchmark"]["points"] if point.get("label") not in searched]
    )


def changes(document: ArmsDocument, plan: Mapping[str, Any]) -> list[str]:
    """What of the inventory is no longer as it was when the run began."""
    now = fingerprints(plan, document.arms)
    found = [f"arm {arm} is gone" for arm in document.arms if arm not in now]
    found += [f"arm {arm} is another one now" for arm in now if now[arm] != document.fingerprints.get(arm)]
    return found + (["the sweep is another one now"] if sweep_fingerprint(plan) != document.sweep else [])
