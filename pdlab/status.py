# SPDX-License-Identifier: Apache-2.0
"""What runs now, and whether it is what the inventory says.

The status playbook asks the deployment's own modules in check mode: a service that they would change is not what
the inventory says, and they say why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pdlab.loose import as_list, as_mapping
from pdlab.runner import COLLECTION, Outcome, TaskResult


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServiceState(_Model):
    """One server or router, or the Prometheus that the inventory asks for."""

    name: str
    role: str = Field(description="prefill, decode, colocated, router or prometheus")
    host: str
    state: str = Field(description="running, starting, stopped, failed or absent")
    pid: int | None
    url: str | None
    unit: str | None
    manager: str | None = Field(
        description="systemd or supervisor; nothing that supervisor keeps is there after a reboot"
    )
    as_declared: bool
    why: list[str] = Field(description="What differs from the inventory; empty when nothing does")


class PartState(_Model):
    """The engine's environment or the model on one host."""

    name: str
    host: str
    as_declared: bool
    why: list[str]


class Status(_Model):
    """The document of `pdlab status --json`."""

    ok: bool = Field(description="Everything runs and is what the inventory says")
    services: list[ServiceState]
    parts: list[PartState]


def build_status(outcome: Outcome) -> Status:
    """From the results of the status playbook."""
    services: list[ServiceState] = []
    parts: list[PartState] = []
    for entry in outcome.results:
        action = entry.action.removeprefix(f"{COLLECTION}.")
        if action == "pd_server":
            services += [_service(entry.host, result) for result in entry.each()]
        elif action == "pd_servers":
            services += [_service(entry.host, as_mapping(result)) for result in as_list(entry.result.get("servers"))]
        elif action == "prometheus":
            services.append(_prometheus(entry.host, entry.result))
        elif action in ("locked_venv", "existing_engine", "model_files"):
            name = {"locked_venv": "engine", "existing_engine": "engine", "model_files": "model"}[action]
            parts.append(_part(name, entry))
    ok = all(part.as_declared for part in parts) and all(
        service.as_declared and service.state == "running" for service in services
    )
    return Status(ok=ok, services=services, parts=parts)


def _service(host: str, result: Mapping[str, Any]) -> ServiceState:
    why = [str(reason) for reason in result.get("reasons") or []]
    if result.get("failed"):
        why = [str(result.get("msg"))]
    return ServiceState(
        name=str(result.get("name")),
        role=str(result.get("role")),
        host=host,
        state=str(result.get("state")),
        pid=result.get("pid"),
        url=result.get("url"),
        unit=result.get("unit"),
        manager=result.get("manager"),
        as_declared=not result.get("changed") and not result.get("failed"),
        why=why,
    )


def _prometheus(host: str, result: Mapping[str, Any]) -> ServiceState:
    """Where it was asked for and cannot be, the reason is what differs."""
    service = as_mapping(result.get("service"))
    actions = [str(action) for action in as_list(result.get("actions"))]
    why = [f"a deployment would: {', '.join(actions)}"] if actions else []
    if result.get("skipped_why") or result.get("failed"):
        why = [str(result.get("skipped_why") or result.get("msg"))]
    return ServiceState(
        name="prometheus",
        role="prometheus",
        host=host,
        state=str(service.get("state")),
        pid=service.get("pid"),
        url=result.get("url"),
        unit=result.get("unit"),
        manager="systemd",
        as_declared=not why,
        why=why,
    )


def _part(name: str, entry: TaskResult) -> PartState:
    result = entry.result
    good = not result.get("changed") and not result.get("failed")
    reason = result.get("reason") or result.get("msg")
    return PartState(name=name, host=entry.host, as_declared=good, why=[] if good or not reason else [str(reason)])
