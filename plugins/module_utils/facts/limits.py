# SPDX-License-Identifier: GPL-3.0-or-later
"""Resource limits that systemd gives a service that asks for none. Those of this process: Source.limits."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import UNLIMITED, Command, Source

_PROPERTIES = {"DefaultLimitMEMLOCK": "memlock_bytes", "DefaultLimitNOFILE": "nofile"}


def start_service_limits(source: Source) -> Command | None:
    """Ask systemd for the limits of its services; None where there is no systemd."""
    if not source.exists("/run/systemd/system"):
        return None
    return source.command(["systemctl", "show", *(f"--property={name}" for name in _PROPERTIES)])


def read_service_limits(started: Command | None, timeout_s: float) -> dict[str, Any] | None:
    """{"memlock_bytes", "nofile"} that a systemd service has by default; None where that is unknown."""
    said = started.result(timeout_s) if started is not None else None
    if said is None or said.rc != 0:
        return None
    pairs = dict(line.split("=", 1) for line in said.stdout.splitlines() if "=" in line)
    values = {key: pairs.get(name) for name, key in _PROPERTIES.items()}
    return {key: UNLIMITED if value == "infinity" else int(value) if value else None for key, value in values.items()}
