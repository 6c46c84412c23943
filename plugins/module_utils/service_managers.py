# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice between systemd and supervisor; the interface that both keep is in service_manager.py."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import init_system
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import PREFIX
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    SUPERVISOR,
    SYSTEMD,
    ServiceError,
    ServiceManager,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_manager import SupervisorManager
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_manager import SystemdManager
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import under

AUTO = "auto"
MANAGERS = (AUTO, SYSTEMD, SUPERVISOR)


def chosen_kind(manager: str) -> str:
    """Return SYSTEMD or SUPERVISOR for AUTO, SYSTEMD or SUPERVISOR.

    Raises ServiceError when systemd is asked for and cannot be used here.
    """
    usable = init_system.can_use_systemd()
    if manager == AUTO:
        return SYSTEMD if usable else SUPERVISOR
    if manager == SYSTEMD and not init_system.booted_with_systemd():
        raise ServiceError(
            "pd_service_manager is systemd, but PID 1 of this host is not systemd; use supervisor or auto"
        )
    if manager == SYSTEMD and not usable:
        raise ServiceError("pd_service_manager is systemd, which needs root (become: true); or use supervisor or auto")
    if manager not in MANAGERS:
        raise ServiceError(f"pd_service_manager: {manager!r} is none of {', '.join(MANAGERS)}")
    return manager


def choose(manager: str, root: str, supervisord: str | None = None) -> ServiceManager:
    """Return the service manager for a target whose pdlab directory is `root`.

    `supervisord` is the program to start when none runs; default `root`/supervisor/venv/bin/supervisord.
    """
    if chosen_kind(manager) == SYSTEMD:
        return SystemdManager(root)
    return SupervisorManager(root, supervisord or under(root, "supervisor", "venv", "bin", "supervisord"))


def services_of(root: str) -> dict[str, dict[str, Any]]:
    """Every service of pdlab that works below `root`, under whichever manager: {name: {manager, state, definition}}.

    systemd's units are those of the whole host; one that works below another root is another deployment's. Raises
    OSError when a definition cannot be read.
    """
    return {
        name: {"manager": manager.kind, "state": manager.status(name).state, "definition": text}
        for manager, name, text in _defined(root)
    }


def servers_defined(root: str) -> list[str]:
    """Names of the servers that have a service below `root`, whether it runs or not. Raises OSError as above."""
    return sorted({name[len(PREFIX) :] for _manager, name, _text in _defined(root) if name.startswith(PREFIX)})


def _defined(root: str) -> Iterator[tuple[ServiceManager, str, str]]:
    """Each service's manager, name and definition; no manager is asked anything."""
    managers: list[ServiceManager] = [SystemdManager(root)] if chosen_kind(AUTO) == SYSTEMD else []
    if os.path.isdir(under(root, "supervisor")):
        managers.append(choose(SUPERVISOR, root))
    for manager in managers:
        for name in manager.services():
            text = manager.read(name) or ""
            if manager.kind == SUPERVISOR or works_below(text, root):
                yield manager, name, text


def works_below(unit: str, root: str) -> bool:
    """Tell whether a systemd unit's working directory is `root` or lies below it."""
    escaped = re.escape(root.rstrip("/").replace("%", "%%"))
    return re.search(rf"^WorkingDirectory={escaped}(/|$)", unit, re.MULTILINE) is not None
