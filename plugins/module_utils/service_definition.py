# SPDX-License-Identifier: GPL-3.0-or-later
"""What a service manager has to know about one service, in no manager's own language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "pdlab-"
ALWAYS = "always"
ON_FAILURE = "on-failure"
NEVER = "never"
RESTART_POLICIES = (ALWAYS, ON_FAILURE, NEVER)
UNLIMITED = -1
# Names that both managers, a file system and a URL take as they are.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class DefinitionError(ValueError):
    """A value that a service manager's file cannot carry unchanged; the text says which and what to do."""


@dataclass(frozen=True)
class ServiceDefinition:
    """One service. `restart` NEVER makes it a job: run once, not started at boot, its exit code kept.

    `environment` is the whole environment of the process. `fingerprint` names the content that the command
    runs (the engine's), so that a new engine at the same path is a new definition. `after` names services
    that start first, and stop last, where the manager orders them. Limits are soft and hard; UNLIMITED is -1.

    `user` is an unprivileged account to run as, and `writable` the only folders that it may write to, where the
    manager can hold it to that. `mounts` are paths whose file systems must be there first. `least_absence_s` is how
    long the service stays away between two lives, whoever starts it again. `as_root` is a command that root runs
    before every start and whose failure means nothing.
    """

    name: str
    description: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str
    log_path: str
    restart: str = ON_FAILURE
    restart_delay_s: int = 15
    stop_timeout_s: int = 60
    limit_memlock: int = UNLIMITED
    limit_nofile: int = 1048576
    limit_stack: int = 67108864
    user: str | None = None
    fingerprint: str = ""
    after: tuple[str, ...] = field(default=())
    writable: tuple[str, ...] = field(default=())
    mounts: tuple[str, ...] = field(default=())
    least_absence_s: int = 0
    as_root: tuple[str, ...] = field(default=())

    @property
    def is_job(self) -> bool:
        """Tell whether this runs once and keeps its exit code."""
        return self.restart == NEVER

    def faults(self) -> list[str]:
        """Return what no service manager could take, as sentences that name the service and the key."""
        found = []
        if not _NAME.match(self.name):
            found.append(f"{self.name!r}: name: only letters, digits, dot, dash and underscore are possible")
        if not self.argv or not self.argv[0]:
            found.append(f"{self.name}: argv: empty, there is no program to run")
        if self.restart not in RESTART_POLICIES:
            found.append(f"{self.name}: restart: {self.restart!r} is none of {', '.join(RESTART_POLICIES)}")
        paths = [(key, getattr(self, key)) for key in ("working_directory", "log_path")]
        paths += [(key, path) for key in ("writable", "mounts") for path in getattr(self, key)]
        for key, value in paths:
            if not value.startswith("/") or value != value.strip() or value.endswith("\\") or _controls(value):
                found.append(
                    f"{self.name}: {key}: {value!r} must be absolute, with no control character and no blank or "
                    "backslash at its end; choose another path"
                )
        for variable in self.environment:
            if not _VARIABLE.match(variable):
                found.append(f"{self.name}: env: {variable!r} is no variable name; use letters, digits and underscores")
        if _controls(self.description) or _controls(self.fingerprint):
            found.append(f"{self.name}: description or fingerprint has a control character; remove it")
        for text in (*self.argv, *self.environment.values()):
            if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
                found.append(f"{self.name}: {text!r} has a NUL or an undecodable byte, which no process can be given")
        return found


def _controls(text: str) -> bool:
    return any(ord(character) < 32 or ord(character) == 127 for character in text)


def refuse(definition: ServiceDefinition, allowed_controls: str, manager: str) -> None:
    """Raise DefinitionError with all faults at once, counting control characters that `manager` cannot carry."""
    found = definition.faults()
    items = [(f"argv[{i}]", item) for i, item in enumerate(definition.argv)]
    items += [(f"env {key}", value) for key, value in definition.environment.items()]
    for where, text in items:
        bad = sorted({c for c in text if (ord(c) < 32 or ord(c) == 127) and c not in allowed_controls})
        if bad and "\0" not in bad:
            found.append(
                f"{definition.name}: {where}: {manager} cannot carry {', '.join(map(repr, bad))} in a value; "
                "write the value without it, or put it in a file and pass the file's path"
            )
    if found:
        raise DefinitionError("\n".join(found))
