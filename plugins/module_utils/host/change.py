# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a host, changed and put back: what would change, then the change, each old value remembered first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.host import lasting, values
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.asked import Asked, Skipped
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.memory import Memory

WANTS = "/etc/systemd/system/multi-user.target.wants/" + lasting.UNIT_NAME
OWN_FILES = (lasting.LIMITS, lasting.SYSCTL, lasting.TMPFILES, lasting.UNIT)
PUT_BACK, ALREADY_BACK, GONE, LEFT_ALONE = FATES = ("put back", "already back", "gone", "left alone")


@dataclass(frozen=True)
class Change:
    """One value: what it is now, and what it is to become."""

    key: str
    now: str | None
    new: str | None

    def as_dict(self) -> dict[str, str]:
        """The change in words."""
        return {
            "setting": values.label(self.key),
            "before": values.shown(self.key, self.now),
            "after": values.shown(self.key, self.new),
        }


@dataclass
class Plan:
    """`changes` in the order in which they are made; `memory` as it will be then; `enable`: the unit at boot."""

    changes: list[Change]
    memory: Memory
    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    enable: bool = False
    remembers: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything on the host becomes different, the memory included."""
        return bool(self.changes) or self.enable or self.remembers


# --- asked for -------------------------------------------------------------------------------------------------------


def foreign_memory(machine: Machine, memory: Memory) -> str | None:
    """The memory of another pdlab root that settings of this host belong to, None when there is none."""
    for path in OWN_FILES:
        other = lasting.memory_of(machine.text(path))
        if other is not None and other != memory.path and machine.text(other) is not None:
            return other
    return None


def plan_asked(machine: Machine, memory: Memory, asked: Asked) -> Plan:
    """What would change. Touches nothing; reads what is asked for and the files of pdlab's own."""
    after = deepcopy(memory)
    plan = Plan([], after, list(asked.skipped))
    for key, now in values.read_all(machine, asked.wanted).items():
        new = asked.wanted[key]
        barrier = values.obstacle(machine, key, new)
        if barrier is not None and now != new:
            plan.skipped.append(
                Skipped(f"{values.label(key)}: {values.shown(key, now)} -> {values.shown(key, new)}", *barrier)
            )
        elif barrier is None:
            if now != new:
                plan.changes.append(Change(key, now, new))
            after.remember(key, now, new)
    lost = not memory.settings and any(lasting.memory_of(machine.text(path)) == memory.path for path in OWN_FILES)
    if lost:
        plan.warnings.append(
            f"pdlab has set values on this host before, and its memory {memory.path} is gone: the old values of "
            "what is set already are lost, a reboot without pdlab's files brings the system's own back"
        )
    plan.changes += _file_changes(machine, memory, after, asked.limits)
    plan.enable = after.settings.get(lasting.UNIT, {}).get("set") is not None and not machine.exists(WANTS)
    if not machine.has_systemd:
        fleeting = sorted({values.label(key).split()[0] for key in after.settings if not values.is_own_file(key)})
        if fleeting and plan.changes:
            plan.warnings.append(f"without systemd these settings last until the next reboot: {', '.join(fleeting)}")
    if not machine.is_root:
        return _without_root(plan, memory)
    plan.remembers = (after.settings, after.left) != (memory.settings, memory.left)
    return plan


def _file_changes(machine: Machine, memory: Memory, after: Memory, limits: Mapping[str, Any] | None) -> list[Change]:
    """Changes of pdlab's own files, noted in `after`. Limits that are asked for no more stay until they are undone."""
    texts: dict[str, str | None] = {}
    if limits:
        texts[lasting.LIMITS] = lasting.limits_text(limits, memory.path)
    if machine.has_systemd:
        texts.update(lasting.boot_files(_set_values(after), memory.path))
    changes = []
    for path, text in texts.items():
        now = machine.text(path)
        if text is None and path not in memory.settings:
            continue
        # What pdlab wrote itself, and has forgotten, is no old value.
        was = None if lasting.memory_of(now) is not None else now
        new = memory.settings[path]["was"] if text is None else text
        if now != new:
            changes.append(Change(path, now, new))
        if text is None:
            after.forget([path])
        else:
            after.remember(path, was, text)
    return changes


def _set_values(memory: Memory) -> dict[str, str]:
    return {
        key: entry["set"]
        for key, entry in memory.settings.items()
        if not values.is_own_file(key) and key not in memory.left and entry["set"] is not None
    }


def _without_root(plan: Plan, memory: Memory) -> Plan:
    """The same plan when nothing of it may be done: each change becomes a setting that was skipped."""
    cure = "become root (ansible_become: true)"
    skipped = [
        Skipped(line, "for want of root", cure)
        for line in changes_as_text(change for change in plan.changes if change.key not in OWN_FILES[1:])
    ]
    return Plan([], memory, plan.skipped + skipped)


def apply(machine: Machine, memory: Memory, plan: Plan, asked: Asked) -> list[str]:
    """Make the plan true; returns what could not be done, one line each.

    The old values are on disk before the first one is changed. A value that could not be set is forgotten again.
    Raises OSError when the memory cannot be written: then nothing has been touched.
    """
    after = plan.memory
    after.save(machine)
    errors = []
    for change in plan.changes:
        if values.is_own_file(change.key):
            continue
        error = _try(machine, change)
        if error is not None:
            errors.append(error)
            after.settings[change.key] = dict(memory.settings.get(change.key, {}))
            if not after.settings[change.key]:
                after.forget([change.key])
    if errors:
        # The files say what was really set.
        for path in OWN_FILES:
            after.forget([path])
            if path in memory.settings:
                after.settings[path] = dict(memory.settings[path])
        files = _file_changes(machine, memory, after, asked.limits)
    else:
        files = [change for change in plan.changes if values.is_own_file(change.key)]
    errors += _apply_files(machine, files)
    if after.settings.get(lasting.UNIT) and not machine.exists(WANTS):
        errors += _systemctl(machine, "enable", "--quiet", lasting.UNIT_NAME)
    after.save(machine)
    return errors


def _apply_files(machine: Machine, changes: Sequence[Change]) -> list[str]:
    unit = next((change for change in changes if change.key == lasting.UNIT), None)
    errors = []
    if unit is not None and unit.new is None and machine.exists(WANTS):
        errors += _systemctl(machine, "disable", "--quiet", lasting.UNIT_NAME)
    errors += [error for error in (_try(machine, change) for change in changes) if error is not None]
    if unit is not None and machine.has_systemd:
        errors += _systemctl(machine, "daemon-reload")
    return errors


def _try(machine: Machine, change: Change) -> str | None:
    try:
        values.write(machine, change.key, change.new)
    except SettingError as error:
        if values.read(machine, change.key) != change.now:
            # Half of it was done: of huge pages, for example, the kernel finds as many as it can.
            with contextlib.suppress(SettingError):
                values.write(machine, change.key, change.now)
        return f"{values.label(change.key)}: {error}"
    return None


def _systemctl(machine: Machine, *arguments: str) -> list[str]:
    try:
        machine.run(["systemctl", "--no-pager", "--no-ask-password", *arguments])
    except SettingError as error:
        return [str(error)]
    return []


# --- put back --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fate:
    """What becomes of one remembered setting, and why."""

    key: str
    what: str
    was: str | None
    set: str | None
    now: str | None

    def as_dict(self) -> dict[str, str]:
        """The fate in words."""
        texts = {"was": self.was, "set": self.set, "now": self.now}
        return {
            "setting": values.label(self.key),
            **{name: values.shown(self.key, text) for name, text in texts.items()},
        }


def plan_restored(machine: Machine, memory: Memory, force: bool = False) -> list[Fate]:
    """What becomes of each remembered setting, pdlab's own files first: a value that is back must stay back.

    One that is neither what pdlab set nor what it was before has been changed by somebody, and is left alone unless
    `force`.
    """
    keys = [path for path in reversed(OWN_FILES) if path in memory.settings]
    keys += [key for key in memory.settings if key not in keys]
    now = values.read_all(machine, keys)
    fates = []
    for key in keys:
        was, new = memory.settings[key]["was"], memory.settings[key]["set"]
        if now[key] == was:
            what = ALREADY_BACK
        elif now[key] is None and not values.is_own_file(key):
            what = GONE
        else:
            what = PUT_BACK if now[key] == new or force else LEFT_ALONE
        fates.append(Fate(key, what, was, new, now[key]))
    return fates


def restore(machine: Machine, memory: Memory, fates: Sequence[Fate]) -> list[str]:
    """Put back what is to be put back and forget it; returns what could not be done, one line each.

    What is left alone, or could not be put back, stays remembered. Raises OSError when the memory cannot be written.
    """
    changes = [Change(fate.key, fate.now, fate.was) for fate in fates if fate.what == PUT_BACK]
    errors = _apply_files(machine, [change for change in changes if values.is_own_file(change.key)])
    for change in changes:
        if not values.is_own_file(change.key):
            error = _barred(machine, change) or _try(machine, change)
            errors += [error] if error else []
    after = values.read_all(machine, [change.key for change in changes])
    memory.forget(fate.key for fate in fates if fate.what in (ALREADY_BACK, GONE))
    memory.forget(change.key for change in changes if after[change.key] == change.new)
    memory.left = [fate.key for fate in fates if fate.key in memory.settings and not values.is_own_file(fate.key)]
    memory.save(machine)
    return errors


def _barred(machine: Machine, change: Change) -> str | None:
    barrier = values.obstacle(machine, change.key, change.new or "")
    return f"{values.label(change.key)}: {barrier[0]}; {barrier[1]}" if barrier else None


# --- in words --------------------------------------------------------------------------------------------------------


def state_as_text(state: Iterable[tuple[str, str | None]]) -> str:
    """Keys and values as lines for a diff, with the many of one kind (CPUs, GPUs) that are alike in one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, value in state:
        name, _blank, member = values.label(key).partition(" ")
        alone = not member or name not in ("cpu_governor", "gpu_persistence")
        group = (values.label(key) if alone else name, values.shown(key, value))
        groups.setdefault(group, []).append("" if alone else member)
    return "".join(f"{name}{_members(members)}: {value}\n" for (name, value), members in groups.items())


def changes_as_text(changes: Iterable[Change]) -> list[str]:
    """Changes as lines, those that are alike in one."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for change in changes:
        name, _blank, member = values.label(change.key).partition(" ")
        alone = not member or name not in ("cpu_governor", "gpu_persistence")
        words = change.as_dict()
        group = (words["setting"] if alone else name, words["before"], words["after"])
        groups.setdefault(group, []).append("" if alone else member)
    return [f"{name}{_members(members)}: {now} -> {new}" for (name, now, new), members in groups.items()]


def _members(members: Sequence[str]) -> str:
    if members == [""]:
        return ""
    shown = [*members[:2], f"… {members[-1]}"] if len(members) > 3 else list(members)
    return f" {', '.join(shown)}" + (f" ({len(members)})" if len(members) > 3 else "")
