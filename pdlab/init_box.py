# SPDX-License-Identifier: Apache-2.0
"""`pdlab init`: look at a box, or at a recording of one, and make an inventory for it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording
from rich.console import Console

from pdlab.box_shape import Shape, candidate_ports, candidate_roots, root_of, shape_of
from pdlab.inventory_writer import Box, InventoryError, files_of, refuse_folder, write_inventory
from pdlab.runner import Outcome, PlaybookOptions
from pdlab.session import play_quietly

LOOK = "look"
THIS_MACHINE = "this-machine"
# What a recording calls the home directory of the user who looked (module_utils/facts/redaction.py).
RECORDED_HOME = "/home/user-1"


class LookError(Exception):
    """The box could not be looked at; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("the box cannot be looked at")
        self.outcome = outcome


def look_at(host: str | None, become: bool, console: Console) -> dict[str, Any]:
    """The facts of a host that ssh reaches as `[USER@]HOST`, or of this machine. Raises LookError."""
    user, _at, address = (host or "").rpartition("@")
    reached = (
        {"ansible_host": address, **({"ansible_user": user} if user else {})}
        if host
        else {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    )
    variables = {"look_ports": candidate_ports(), "look_paths": candidate_roots(_home(host))}
    with tempfile.TemporaryDirectory(prefix="pdlab-init-") as folder:
        inventory = Path(folder) / "hosts.yml"
        inventory.write_text(
            yaml.safe_dump({"all": {"children": {"pdlab": {"hosts": {"box": {**reached, "ansible_become": become}}}}}})
        )
        outcome = play_quietly(LOOK, PlaybookOptions(inventory), console, variables)
    looked = outcome.of_action("box_facts")
    if not outcome.ok or not looked:
        raise LookError(outcome)
    return dict(looked[0].result["facts"])


def look_at_recording(folder: Path) -> dict[str, Any]:
    """The facts of a recorded box. Raises ValueError when there is no recording in `folder`."""
    return read_facts(Recording(folder), {"ports": candidate_ports(), "paths": candidate_roots(RECORDED_HOME)})


def _home(host: str | None) -> str | None:
    """The home directory on the box, as far as it is known from here."""
    user = (host or "").rpartition("@")[0]
    if host is None:
        return str(Path.home())
    return f"/home/{user}" if user and user != "root" else None


def make_inventory(
    facts: Mapping[str, Any],
    host: str | None,
    folder: Path,
    model: str | None,
    *,
    become: bool = False,
    recording: Path | None = None,
) -> Shape:
    """Choose what runs on the box of these facts, and write it. Raises InventoryError."""
    user, _at, address = (host or "").rpartition("@")
    source = f"the recording {recording.name}" if recording else host or "this machine"
    box = Box(host_name(address), address or None, user or None, become, bool(facts["root"]), source)
    shape = shape_of(facts)
    root, why = root_of(facts, RECORDED_HOME if recording else _home(host))
    write_inventory(folder, files_of(box, shape, folder, root, why, model))
    return shape


def host_name(address: str) -> str:
    """How the inventory calls the box: its address's first part, when that can name a host."""
    first = address if re.fullmatch(r"[0-9.:]+", address) else address.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_.-]", "-", first) or THIS_MACHINE


def default_folder(host: str | None, recording: Path | None) -> Path:
    """Where the inventory goes when nobody says."""
    return Path(host_name((host or "").rpartition("@")[2]) if host else recording.name if recording else THIS_MACHINE)


__all__ = [
    "InventoryError",
    "LookError",
    "default_folder",
    "look_at",
    "look_at_recording",
    "make_inventory",
    "refuse_folder",
]
