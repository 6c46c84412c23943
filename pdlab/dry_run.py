# SPDX-License-Identifier: Apache-2.0
"""A plan on a box that is not asked but given: what a deployment would write and start there, to the letter.

The facts come from a recording (`pdlab plan --box`). The same functions of the collection complete the plan and write
the units as in a deployment, so what is shown is what would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import prometheus_service
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault, Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import place
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import STOP_TIMEOUT_S, definition_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import SYSTEMD
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import AUTO
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_manager import SupervisorManager
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_manager import SystemdManager

from pdlab.preflight import BoxError

# It is not known before the engine is built.
FINGERPRINT = "(known when the engine is built)"


@dataclass(frozen=True)
class Unit:
    """The file that a service manager would be given for one part."""

    manager: str
    path: str
    text: str


@dataclass(frozen=True)
class DryRun:
    """The plan completed by what the box says; `faults` is not empty when the box contradicts the inventory.

    `units` by the part's name; `shared` by host: {path: text} of what all services of a host have in common.
    """

    plan: dict[str, Any]
    faults: Sequence[Fault]
    units: Mapping[str, Unit]
    shared: Mapping[str, Mapping[str, str]]


def facts_of(boxes: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """The facts of recorded boxes, host by host. Raises BoxError."""
    try:
        return {host: read_facts(Recording(folder), {}) for host, folder in boxes.items()}
    except ValueError as error:
        raise BoxError(str(error)) from error


def dry_run(plan: Mapping[str, Any], boxes: Mapping[str, Mapping[str, Any]]) -> DryRun:
    """Complete a plan from the facts of its hosts, and write the unit of every part. `boxes`: host -> facts."""
    faults = Faults()
    placed = place(plan, boxes, faults)
    parts = [*placed["servers"], placed["router"], placed["reference"]]
    units = {part["name"]: unit_of_part(part, placed, boxes[part["host"]]) for part in parts if part}
    shared = {
        host: SystemdManager(placed["hosts"][host]["root"]).shared_files()
        for host in dict.fromkeys(part["host"] for part in parts if part)
        if uses_systemd(placed, host, boxes[host])
    }
    host = placed["monitoring"]["host"]
    if placed["monitoring"]["install"] and boxes[host]["init"] == SYSTEMD:
        shared.setdefault(host, {})[prometheus_service.UNIT_PATH] = prometheus_unit(placed)
    return DryRun(placed, list(faults), units, shared)


def prometheus_unit(plan: Mapping[str, Any]) -> str:
    """The unit that the module prometheus would write, with Debian's program."""
    wanted = plan["monitoring"]
    root = plan["hosts"][wanted["host"]]["root"]
    command = prometheus_service.argv(
        prometheus_service.DEBIAN_PROGRAM, root, wanted["address"], wanted["port"], wanted["retention_days"]
    )
    return prometheus_service.unit_text(command, root)


def uses_systemd(plan: Mapping[str, Any], host: str, facts: Mapping[str, Any]) -> bool:
    """Whether services of this host are systemd's: asked for, or PID 1 (pdlab being root)."""
    asked = plan["hosts"][host]["service_manager"]
    return asked == SYSTEMD or (asked == AUTO and facts["init"] == SYSTEMD)


def unit_of_part(part: Mapping[str, Any], plan: Mapping[str, Any], facts: Mapping[str, Any]) -> Unit:
    """The file that pd_server would write for one part."""
    root = plan["hosts"][part["host"]]["root"]
    definition = definition_of(part, root, FINGERPRINT, part["user"], STOP_TIMEOUT_S)
    if uses_systemd(plan, part["host"], facts):
        units = SystemdManager(root)
        return Unit(units.kind, units.path(definition.name), units.render(definition))
    programs = SupervisorManager(root, "")
    return Unit(programs.kind, programs.path(definition.name), programs.text(definition))
