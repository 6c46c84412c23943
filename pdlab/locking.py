# SPDX-License-Identifier: Apache-2.0
"""Lock files and the hosts: what is deployed now as a lock, and a rebuild of what a lock says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from pdlab.exit_codes import Exit
from pdlab.failures import failure_lines
from pdlab.lockfile import (
    Difference,
    LockError,
    LockFile,
    against_box,
    against_inventory,
    lock_of,
    materialize,
    notes,
    read_lock,
)
from pdlab.runner import PlaybookOptions
from pdlab.session import play_quietly
from pdlab.status import PartState, ServiceState, build_status


def lock_now(
    options: PlaybookOptions,
    console: Console,
    *,
    look: bool = True,
    lock: LockFile | None = None,
    reach: bool = True,
) -> LockFile:
    """A lock of what the inventory says now, with what is on the hosts when `look`. Nothing is changed.

    Without `reach` no host is asked for anything, so that NUMA nodes which only the box knows are left open.
    `lock` brings the engine's requirements and overlay, as it does for a rebuild. Raises LockError when the playbook
    fails, or when what is there is not what was declared.
    """
    with TemporaryDirectory(prefix="pdlab-locked-") as folder:
        variables: dict[str, Any] = {"lock_look": look, "lock_look_numa": reach}
        if lock:
            variables["pdlab_locked"] = materialize(lock, Path(folder))
        outcome = play_quietly("lock", replace(options, check=False, diff=False), console, variables)
    if not outcome.ok:
        status = Exit.ERROR if outcome.of_action("engine_sources") else Exit.USAGE
        raise LockError("\n".join(failure_lines(outcome)), status)
    if look:
        state = build_status(outcome)
        items: list[ServiceState | PartState] = [*state.services, *state.parts]
        wrong = [f"{item.name} on {item.host}: {why}" for item in items for why in item.why]
        if wrong:
            listed = "\n".join(f"- {line}" for line in wrong)
            raise LockError(f"what is there is not what was declared; `pdlab deploy` makes it so:\n{listed}")
    return lock_of(outcome)


def lock_to_rebuild(path: Path, options: PlaybookOptions, console: Console) -> LockFile:
    """A lock file that the inventory does not contradict. Raises LockError with all differences otherwise."""
    lock = read_lock(path)
    inventory = lock_now(options, console, look=False)
    for note in notes(lock, inventory):
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    found = against_inventory(lock, inventory)
    if found:
        raise LockError(
            f"the inventory is not what {path} says ({_counted(found)}); no host was touched:\n{_listed(found)}\n"
            "Correct the inventory, or write the lock anew with `pdlab lock`.",
            Exit.DIFFERS,
        )
    return lock


def check_box(lock: LockFile, options: PlaybookOptions, console: Console) -> None:
    """Raise LockError when what is on the hosts is not what the lock says."""
    found = against_box(lock, lock_now(options, console, lock=lock))
    if found:
        raise LockError(f"the box is not what the lock says ({_counted(found)}):\n{_listed(found)}", Exit.DIFFERS)
    console.print("the box is what the lock says")


def _counted(found: list[Difference]) -> str:
    return "1 difference" if len(found) == 1 else f"{len(found)} differences"


def _listed(found: list[Difference]) -> str:
    return "\n".join(f"- {difference}" for difference in found)
