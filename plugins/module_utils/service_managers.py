# SPDX-License-Identifier: GPL-3.0-or-later
"""One interface to whatever keeps services running on a target, and the choice between systemd and supervisor."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import under

AUTO = "auto"
SYSTEMD = "systemd"
SUPERVISOR = "supervisor"
MANAGERS = (AUTO, SYSTEMD, SUPERVISOR)

RUNNING = "running"
STARTING = "starting"
STOPPED = "stopped"
FAILED = "failed"
ABSENT = "absent"


class ServiceError(Exception):
    """A service manager refused or failed; the text says what was tried, what it said and what to do."""


@dataclass(frozen=True)
class ServiceStatus:
    """What a manager says of a service.

    `state` is RUNNING, STARTING (its process is being started, or waits to be started again), STOPPED, FAILED or
    ABSENT (no definition). `pid` is the main process while there is one. `exit_code` is that of the last life
    that ended, negative for a signal, None when none did. `started_at` is in seconds since the epoch.
    """

    state: str
    pid: int | None = None
    exit_code: int | None = None
    started_at: float | None = None
    enabled: bool = True
    detail: str = ""


class ServiceManager(ABC):
    """Keeps services running. Names are those of ServiceDefinition.name, prefix included.

    read, status and services never start or change anything. All may raise ServiceError; those that wait also
    raise processes.ControllerGone.
    """

    kind: str

    @abstractmethod
    def path(self, name: str) -> str:
        """Return the file that holds the definition."""

    @abstractmethod
    def render(self, definition: ServiceDefinition) -> str:
        """Return the definition in this manager's language. Raises DefinitionError."""

    @abstractmethod
    def read(self, name: str) -> str | None:
        """Return the definition that is there now, or None."""

    @abstractmethod
    def write(self, definition: ServiceDefinition) -> bool:
        """Write the definition; return whether that changed it. Takes effect at the next start or restart."""

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Remove a stopped service's definition; return whether there was one."""

    @abstractmethod
    def start(self, name: str) -> None:
        """Start, or start again when it runs, with the definition that was written last; a server also at boot.

        Returns when the start was issued; the process may die at once.
        """

    @abstractmethod
    def stop(self, name: str, timeout_s: float) -> bool:
        """Stop and wait until it has stopped; return whether anything ran.

        `timeout_s` is how long the service may take by its definition; a few seconds more are granted for the
        manager to kill it. Raises ServiceError when it still runs then.
        """

    @abstractmethod
    def status(self, name: str) -> ServiceStatus:
        """Return the present state."""

    @abstractmethod
    def services(self) -> list[str]:
        """Return the names of all pdlab services that have a definition, sorted."""


def booted_with_systemd() -> bool:
    """Tell whether PID 1 is systemd (the test of sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def chosen_kind(manager: str) -> str:
    """Return SYSTEMD or SUPERVISOR for AUTO, SYSTEMD or SUPERVISOR.

    Raises ServiceError when systemd is asked for and cannot be used here.
    """
    usable = booted_with_systemd() and os.geteuid() == 0
    if manager == AUTO:
        return SYSTEMD if usable else SUPERVISOR
    if manager == SYSTEMD and not booted_with_systemd():
        raise ServiceError("pd_service_manager is systemd, but PID 1 of this host is not systemd; use supervisor or auto")
    if manager == SYSTEMD and not usable:
        raise ServiceError("pd_service_manager is systemd, which needs root (become: true); or use supervisor or auto")
    if manager not in MANAGERS:
        raise ServiceError(f"pd_service_manager: {manager!r} is none of {', '.join(MANAGERS)}")
    return manager


def choose(manager: str, root: str, supervisord: str | None = None) -> ServiceManager:
    """Return the service manager for a target whose pdlab directory is `root`.

    `supervisord` is the program to start when none runs; default `root`/supervisor/venv/bin/supervisord.
    """
    from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_manager import SupervisorManager
    from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_manager import SystemdManager

    if chosen_kind(manager) == SYSTEMD:
        return SystemdManager()
    return SupervisorManager(root, supervisord or under(root, "supervisor", "venv", "bin", "supervisord"))
