# SPDX-License-Identifier: GPL-3.0-or-later
"""One interface to whatever keeps services running on a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import ServiceDefinition

SYSTEMD = "systemd"
SUPERVISOR = "supervisor"

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
    that ended, negative for a signal, None when none did. `started_at` is in seconds since the epoch. `held_back`:
    what comes before the process is still under way, by its own definition (ServiceDefinition.least_absence_s).
    """

    state: str
    pid: int | None = None
    exit_code: int | None = None
    started_at: float | None = None
    enabled: bool = True
    detail: str = ""
    held_back: bool = False


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

    def processes_of(self, name: str) -> list[int]:
        """Return the PIDs that belong to the service now, the main process first."""
        pid = self.status(name).pid
        return processes.process_tree(pid) if pid else []

    @abstractmethod
    def services(self) -> list[str]:
        """Return the names of all pdlab services that have a definition, sorted."""

    def sharers(self) -> list[str]:
        """Return the names of those services for which the shared files are there, sorted."""
        return self.services()

    @abstractmethod
    def shared_files(self) -> dict[str, str]:
        """Return what all services of this host share beside their own definitions, as {path: wanted text}."""

    @abstractmethod
    def shared_faults(self) -> list[str]:
        """Return a sentence for each thing that the services share and that is not as wanted."""

    @abstractmethod
    def write_shared(self) -> None:
        """Bring what the services share into the wanted state. Touches no service."""

    def shared_doubts(self) -> list[str]:
        """Return a sentence for each thing that the services share and that this host does not let work."""
        return []

    @abstractmethod
    def remove_shared(self) -> None:
        """Remove what the services share; to be called when none is left."""
