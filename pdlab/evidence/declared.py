# SPDX-License-Identifier: Apache-2.0
"""Which arms a command may name: those that one inventory declares beside each other in pd_arms. Pure.

What evidence calls an arm is for people: a plain run is "pd" though its inventory has no arms, and of runs side by side
one name may stand for two set-ups. `pdlab bench --arms` takes the inventory's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdlab.evidence.legs import Leg, arms_of
from pdlab.loose import as_mapping, as_rows, as_text

# An arm's fingerprints, each a digest of what it runs; None where a plan of before does not tell.
Fingerprints = set[str | None]


def declared_arms(legs: Sequence[Leg]) -> frozenset[str]:
    """The arms that have, in one inventory, the names that the legs have; of several inventories the one with most.

    An inventory is what the plans of one run tell of it. A name counts only for the same arm: servers, hosts, model.
    """
    own = {arm: _own([leg for leg in legs if leg.arm == arm], arm) for arm in arms_of(legs)}
    known = [
        frozenset(arm for arm, prints in own.items() if prints & inventory.get(arm, set()))
        for inventory in _inventories(legs)
    ]
    return max(known, key=len, default=frozenset())


def _own(legs: Sequence[Leg], name: str) -> Fingerprints:
    """The fingerprints that an arm ran with under the name that its inventory has for it; none when it has another."""
    plans = [leg.contents.plan for leg in legs if leg.contents.plan]
    return {_fingerprints(plan).get(name) for plan in plans if as_text(plan.get("arm")) == name}


def _inventories(legs: Sequence[Leg]) -> list[dict[str, Fingerprints]]:
    """What each run knows of its inventory's arms: {name: fingerprints}."""
    runs: dict[str, dict[str, Fingerprints]] = {}
    for leg in legs:
        known = runs.setdefault(leg.run, {})
        plan = leg.contents.plan or {}
        for name, mark in _fingerprints(plan).items():
            known.setdefault(name, set()).add(mark)
    return list(runs.values())


def _fingerprints(plan: Mapping[str, object]) -> dict[str, str | None]:
    """The arms of a plan's inventory by name, the plan's own among them."""
    own = as_text(plan.get("arm"))
    found: dict[str, str | None] = {own: None} if own else {}
    for row in as_rows(plan.get("arms")):
        found[str(row.get("name"))] = as_text(as_mapping(row).get("fingerprint"))
    return found
