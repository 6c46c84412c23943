# SPDX-License-Identifier: Apache-2.0
"""What ran, as the `stack` of llm-d's benchmark report 0.2: one component a server. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import program_arguments

from pdlab.evidence.legs import Leg
from pdlab.loose import as_integer, as_list, as_mapping, as_rows, as_text
from pdlab.secret_values import HIDDEN, is_secret, without_secrets

UNKNOWN = "unknown"
# Our words for roles, and the schema's.
ROLES = {"prefill": "prefill", "decode": "decode", "colocated": "replica"}
ENGINE, ROUTERS = "sglang", ("sglang-router", "smg")

# The engine's flags (sglang 0.5.23), and the schema's words. Not given is not the same as 1: it stays out.
PARALLEL = {
    ("--data-parallel-size", "--dp-size", "--dp"): "dp",
    ("--expert-parallel-size", "--ep-size", "--ep"): "ep",
    ("--pipeline-parallel-size", "--pp-size"): "pp",
}

Document = dict[str, Any]


def stack(leg: Leg) -> list[Document]:
    """Every server and the router, as started where a record says so, otherwise as planned."""
    plan = as_mapping(leg.contents.plan)
    planned = [*as_rows(plan.get("servers")), *as_rows([plan.get("router")])]
    records = leg.contents.host_records("server")
    started = [
        {**one, **{k: v for k, v in records.get(str(one.get("name")), {}).items() if v is not None}} for one in planned
    ]
    return [_component(leg, server) for server in started]


def arguments(argv: Sequence[str]) -> dict[str, Any]:
    """The options of a program as a mapping: null for a bare flag, a list for several values. Secrets are hidden.

    What stands before the program (numactl, Python itself) is left out.
    """
    items = program_arguments(without_secrets(argv))
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for item in items:
        if item.startswith("--"):
            name, separator, value = item.partition("=")
            current = found.setdefault(name, [])
            current += [value] if separator else []
        elif current is not None:
            current.append(item)
    return {name: values[0] if len(values) == 1 else values or None for name, values in found.items()}


def client_version(leg: Leg) -> str:
    """The version of sglang, whose client measures; "unknown" when no record says it."""
    return _package(leg, None, (ENGINE,))[1]


def _component(leg: Leg, server: Mapping[str, Any]) -> Document:
    argv = [str(item) for item in as_list(server.get("argv"))]
    environment = {str(key): str(value) for key, value in as_mapping(server.get("environment")).items()}
    return {
        "metadata": {
            "label": str(server.get("name")),
            "cfg_id": hashlib.sha256(json.dumps([argv, environment], sort_keys=True).encode()).hexdigest()[:32],
        },
        "standardized": _standardized(leg, server),
        "native": {
            "args": arguments(argv) or None,
            "envars": {key: HIDDEN if is_secret(key) else value for key, value in environment.items()} or None,
        },
    }


def _standardized(leg: Leg, server: Mapping[str, Any]) -> Document:
    """An inference engine needs an accelerator in the schema: on CPUs, or when its name is not known, a generic part."""
    role, host = str(server.get("role")), as_text(server.get("host"))
    if role not in ROLES:
        tool, version = _package(leg, host, ROUTERS)
        return {"kind": "generic", "tool": tool, "tool_version": version, "kind_draft": role}
    common = {
        "tool": ENGINE,
        "tool_version": _package(leg, host, (ENGINE,))[1],
        "role": ROLES[role],
        "replicas": 1,
        "model": {
            "name": as_text(as_mapping(as_mapping(leg.contents.plan).get("model")).get("served_name")) or UNKNOWN
        },
    }
    gpus = as_list(server.get("gpus"))
    name = _gpu_name(leg, host, gpus)
    if name is None:
        return {"kind": "generic", **common}
    parallelism = {"tp": as_integer(server.get("tp")) or 1}
    asked = arguments([str(item) for item in as_list(server.get("argv"))])
    for flags, key in PARALLEL.items():
        given = next((str(asked[flag]) for flag in flags if asked.get(flag)), "")
        if given.isdigit():
            parallelism[key] = int(given)
    accelerator = {"model": name, "count": len(gpus), "parallelism": parallelism}
    return {"kind": "inference_engine", **common, "accelerator": accelerator}


def _gpu_name(leg: Leg, host: str | None, gpus: list[Any]) -> str | None:
    """The one name of a server's GPUs, as preflight read it; None when it is not known or not one."""
    facts = as_mapping(leg.contents.host_records("preflight").get(host or "", {}).get("facts"))
    rows = as_rows(as_mapping(facts.get("gpu")).get("gpus"))
    names = {as_text(row.get("name")) for row in rows if row.get("index") in gpus}
    found = next(iter(names)) if gpus and len(names) == 1 else None
    return found or None


def _package(leg: Leg, host: str | None, names: Sequence[str]) -> tuple[str, str]:
    """The first of some packages that a host's engine has, with its version; "unknown" when no record says it."""
    engines = [engine for engine in leg.report.engines if host is None or engine.host == host] or leg.report.engines
    found = ((name, one.packages[name]) for one in engines for name in names if name in one.packages)
    return next(found, (names[0], UNKNOWN))
