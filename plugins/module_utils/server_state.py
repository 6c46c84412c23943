# SPDX-License-Identifier: GPL-3.0-or-later
"""What a described server is now, and what would have to be done for it to be as described. Reads, changes nothing."""

from __future__ import annotations

import os
import platform
import pwd
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import live_environment, processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.live_process import difference
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import definition_of, unit_of, url_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import DefinitionError, ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_life import Life, digest, read_life
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    RUNNING,
    STARTING,
    ServiceManager,
    ServiceStatus,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import choose
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import log_file
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import read_text


@dataclass(frozen=True)
class Plan:
    """What is wanted and what is there. `reasons`: why it must be started anew; `shared`: what its host lacks."""

    definition: ServiceDefinition
    text: str
    before: str | None
    status: ServiceStatus
    life: Life | None
    reasons: list[str]
    shared: list[str]


class ServerState:
    """One server of one host; `params` are the options of pd_server, all of them."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.root: str = params["root"]
        self.unit = unit_of(params)
        self.log = log_file(self.root, params["name"])
        self.manager: ServiceManager = choose(params["manager"], self.root, params["supervisord"])

    def definition(self) -> ServiceDefinition:
        """Return the service definition of this description. Raises DefinitionError."""
        user = self.params["user"]
        try:
            server = {**self.params, "home": self.params["home"] or home_of(user)}
        except KeyError as error:
            raise DefinitionError(f"user: there is no user {user!r} on this host; create it or name another") from error
        return definition_of(server, self.root, self.params["engine_fingerprint"], user, self.params["stop_timeout_s"])

    def plan(self) -> Plan:
        """Look. Raises DefinitionError, ServiceError, OSError."""
        definition = self.definition()
        text = self.manager.render(definition)
        status = self.manager.status(self.unit)
        before = self.manager.read(self.unit)
        life = read_life(self.root, self.unit)
        reasons = self._reasons(definition, text, before, status, life)
        return Plan(definition, text, before, status, life, reasons, self.manager.shared_faults())

    def _reasons(
        self, definition: ServiceDefinition, text: str, before: str | None, status: ServiceStatus, life: Life | None
    ) -> list[str]:
        """Return why the server has to be started anew; empty when it runs as described."""
        if self.params["state"] == "restarted":
            return ["a restart was asked for"]
        found = []
        if before is None:
            found.append("it has no service definition")
        elif before != text:
            found.append("its service definition differs")
        elif life is None or life.definition != digest(text):
            found.append("it was not started since its service definition was written")
        if status.state not in (RUNNING, STARTING):
            found.append(f"it does not run ({status.detail or status.state})")
        elif status.pid is not None and not found:
            other = difference(status.pid, definition)
            if other:
                found.append(other)
        if not found and not status.enabled:
            found.append("it would not be started at boot")
        return found

    # --- what is told ---

    def planned(self, plan: Plan) -> dict[str, Any]:
        """Return what every answer about a server that is to run holds."""
        return {
            **self.result(plan.status, plan.reasons + plan.shared),
            "changed": bool(plan.reasons or plan.shared),
            "argv": list(plan.definition.argv),
            "environment": dict(plan.definition.environment),
            "definition": plan.text,
            "url": url_of(self.params),
            "seconds_to_ready": plan.life.seconds_to_ready if plan.life and not plan.reasons else None,
            "binding": None,
            "live_gpus": None,
            "live_environment": None,
            "diff": [self.diff(plan.before, plan.text), *self.shared_diff()],
        }

    def live_environment(self, definition: ServiceDefinition) -> dict[str, Any] | None:
        """Hold the environment of every live process of the server against its definition; None when none runs."""
        pid = self.manager.status(self.unit).pid
        return live_environment.check(processes.process_tree(pid), definition.environment) if pid is not None else None

    def diff(self, before: str | None, after: str | None) -> dict[str, str]:
        """Return Ansible's diff of the service definition."""
        return diff_of(self.manager.path(self.unit), before, after)

    def shared_now(self) -> dict[str, str]:
        """Return what is there now of the files that all services share, by path."""
        found = {path: read_text(path) for path in self.manager.shared_files()}
        return {path: text for path, text in found.items() if text is not None}

    def shared_diff(self) -> list[dict[str, str]]:
        """Return Ansible's diff of each shared file that is not as wanted."""
        now = self.shared_now()
        wanted = self.manager.shared_files()
        return [diff_of(path, now.get(path), text) for path, text in wanted.items() if now.get(path) != text]

    def observed(self, status: ServiceStatus) -> dict[str, Any]:
        """Return what the service manager and /proc say now."""
        pids = processes.process_tree(status.pid) if status.pid else []
        return {"state": status.state, "pid": status.pid, "pids": pids}

    def result(self, status: ServiceStatus, reasons: list[str]) -> dict[str, Any]:
        """Return what every answer holds."""
        life = read_life(self.root, self.unit)
        return {
            "name": self.params["name"],
            "role": self.params["role"],
            "host": self.params["host"] or platform.node(),
            "manager": self.manager.kind,
            "unit": self.unit,
            "reasons": reasons,
            "definition_path": self.manager.path(self.unit),
            "log": self.log,
            "log_offset": life.log.offset if life else 0,
            "log_inode": life.log.inode if life else 0,
            **self.observed(status),
        }


def home_of(user: str | None) -> str:
    """Return the home directory of the user that the server runs as. Raises KeyError for an unknown user."""
    return pwd.getpwnam(user).pw_dir if user else pwd.getpwuid(os.geteuid()).pw_dir


def diff_of(path: str, before: str | None, after: str | None) -> dict[str, str]:
    """Return Ansible's diff of one file."""
    return {"before": before or "", "after": after or "", "before_header": path, "after_header": path}
