# SPDX-License-Identifier: Apache-2.0
"""The document of `pdlab preflight --json`: every host's facts and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Verdict(_Model):
    """One rule held against one host."""

    id: str = Field(description="Named after the fault that it finds")
    severity: Literal["veto", "warn", "info"]
    ok: bool
    seen: str
    wanted: str
    why: str
    cure: str | None


class HostVerdicts(_Model):
    """What preflight found on one host. Facts that could not be read are null."""

    host: str
    facts: dict[str, Any]
    verdicts: list[Verdict]
    veto: bool


class Preflight(_Model):
    """All hosts; `ok` is false when any host has a veto."""

    ok: bool
    hosts: list[HostVerdicts]


def build_preflight(records: Iterable[Mapping[str, Any]]) -> Preflight:
    """From the records that preflight left in the run folder."""
    hosts = [HostVerdicts.model_validate(record) for record in records]
    return Preflight(ok=bool(hosts) and not any(host.veto for host in hosts), hosts=hosts)
