# SPDX-License-Identifier: Apache-2.0
"""The options with which a command reaches the inventory of runs: without them advice would be about another box. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.evidence.legs import Leg
from pdlab.secret_values import without_secrets
from pdlab.typed_options import typed_options

_DEFAULT = "inventory/local"


def inventory_options(legs: Sequence[Leg]) -> list[str]:
    """-i, -l and -e as the runs were typed, but for the choice of one arm; none where runs differ in them."""
    seen = {tuple(_options(leg)) for leg in legs}
    return without_secrets(seen.pop()) if len(seen) == 1 else []


def _options(leg: Leg) -> list[str]:
    found: list[str] = []
    for name, value in typed_options(leg.report.command):
        if not (name == "-e" and value.startswith("pd_arm=")):
            found += [name, value]
    inventory = leg.report.inventory
    if "-i" not in found and inventory and not inventory.endswith(_DEFAULT):
        found = ["-i", inventory, *found]
    return found
