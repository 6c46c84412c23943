# SPDX-License-Identifier: Apache-2.0
"""The document of `pdlab preflight --json`: every host's facts and verdicts; and the judging of recorded boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording
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


class BoxError(Exception):
    """A recording that cannot be taken for a host of the plan; the message says what to write."""


def boxes_of(written: Sequence[str], hosts: Sequence[str]) -> dict[str, Path]:
    """From `DIR`, or `HOST=DIR` for each host, to {host: folder}. Raises BoxError with every fault."""
    boxes: dict[str, Path] = {}
    faults = []
    for item in written:
        name, equals, folder = item.partition("=")
        if not equals:
            name, folder = (hosts[0] if len(hosts) == 1 else ""), item
        if not name:
            faults.append(
                f"--box {item}: the plan has {len(hosts)} hosts; write HOST={item} for each of {_list(hosts)}"
            )
        elif name not in hosts:
            faults.append(f"--box {item}: the plan has no host {name}, it has {_list(hosts)}")
        elif name in boxes:
            faults.append(f"--box {item}: {name} has a recording already, {boxes[name]}")
        else:
            boxes[name] = Path(folder)
    missing = [host for host in hosts if host not in boxes]
    if missing and not faults:
        faults.append(f"--box: no recording for {_list(missing)}; write HOST=DIR for each")
    if faults:
        raise BoxError("\n".join(faults))
    return boxes


def judge_recordings(plan: Mapping[str, Any], boxes: Mapping[str, Path]) -> list[dict[str, Any]]:
    """What preflight would keep of each host, had it looked at its recording. Raises BoxError."""
    records = []
    for host, folder in boxes.items():
        try:
            facts = read_facts(Recording(folder), preflight_rules.facts_options(plan, host))
        except ValueError as error:
            raise BoxError(str(error)) from error
        models = {server["model_path"] for server in plan["servers"] if server["host"] == host}
        for path in models:
            # A recording holds no models: one that is not there was not recorded.
            facts["paths"][path]["exists"] = facts["paths"][path]["exists"] or None
        records.append(preflight_rules.judged(facts, plan, host))
    return records


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
