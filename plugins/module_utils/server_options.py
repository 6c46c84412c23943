# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of pd_server, and which of them a server cannot do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import ENGINE_ROLES, PREFILL, ROUTER
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import STOP_TIMEOUT_S

ARGUMENTS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "host": {"type": "str"},
    "state": {"type": "str", "choices": ["started", "restarted", "stopped", "absent", "checked"], "default": "started"},
    "role": {"type": "str", "choices": ["prefill", "decode", "colocated", "router"]},
    "root": {"type": "path", "required": True},
    "python": {"type": "path"},
    "home": {"type": "path"},
    "model_path": {"type": "path"},
    "served_name": {"type": "str"},
    "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
    "address": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int"},
    "bootstrap_port": {"type": "int"},
    "nccl_port": {"type": "int"},
    "gpus": {"type": "list", "elements": "int", "default": []},
    "tp": {"type": "int", "default": 1},
    "numa_node": {"type": "int"},
    "transfer_backend": {"type": "str", "default": "nixl"},
    "args": {"type": "dict", "default": {}},
    "env": {"type": "dict", "default": {}},
    "workers": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str"},
            "role": {"type": "str", "choices": ["prefill", "decode", "colocated"], "required": True},
            "url": {"type": "str", "required": True},
            "bootstrap_port": {"type": "int"},
        },
    },
    "prometheus_host": {"type": "str", "default": "127.0.0.1"},
    "prometheus_port": {"type": "int", "default": 29001},
    "policy": {"type": "str", "default": "round_robin"},
    "manager": {"type": "str", "choices": ["auto", "systemd", "supervisor"], "default": "auto"},
    "supervisord": {"type": "path"},
    "flag_table": {"type": "path"},
    "peers": {"type": "list", "elements": "dict", "default": []},
    "engine_fingerprint": {"type": "str", "default": ""},
    "user": {"type": "str"},
    "wait": {"type": "bool", "default": True},
    "timeout_s": {"type": "int", "default": 600},
    "stop_timeout_s": {"type": "int", "default": STOP_TIMEOUT_S},
    "error_lines": {"type": "int", "default": 12},
    "seen": {"type": "dict"},
}


def needed_options(params: dict[str, Any]) -> list[str]:
    """Return a sentence for each option that this role cannot do without."""
    role = params["role"]
    if role is None:
        return ["role: missing; say prefill, decode, colocated or router"]
    names = ["python", "port"]
    if role in ENGINE_ROLES:
        names += ["model_path", "served_name"]
    if role == PREFILL:
        names.append("bootstrap_port")
    if role == ROUTER:
        names.append("workers")
    found = [f"{name}: missing; a {role} server needs it" for name in names if not params[name]]
    for index, worker in enumerate(params["workers"]):
        if worker["role"] == PREFILL and not worker["bootstrap_port"]:
            found.append(
                f"workers[{index}].bootstrap_port: missing; without it decode asks its own port for the prefill"
            )
    return found


# --- what the roles will ask for -------------------------------------------------------------------------------------

OF_EVERY_SERVER = ("name", "role", "python", "home", "user", "address", "port", "args", "env")
OF_AN_ENGINE = (
    "model_path",
    "served_name",
    "device",
    "bootstrap_port",
    "nccl_port",
    "gpus",
    "tp",
    "numa_node",
    "transfer_backend",
)
OF_A_ROUTER = ("prometheus_host", "prometheus_port", "policy", "workers")


# What pd_servers takes once for all of its servers.
OF_THEM_ALL = (
    "root",
    "manager",
    "supervisord",
    "engine_fingerprint",
    "flag_table",
    "peers",
    "wait",
    "timeout_s",
    "stop_timeout_s",
    "error_lines",
)


def options_of(part: Mapping[str, Any]) -> dict[str, Any]:
    """What pd_server takes of a server as the plan has it, which says much more."""
    keys = (*OF_EVERY_SERVER, *(OF_A_ROUTER if part.get("role") == ROUTER else OF_AN_ENGINE))
    return {key: part[key] for key in keys if part.get(key) is not None}


def options_of_host(plan: Mapping[str, Any], host: str) -> list[dict[str, Any]]:
    """The options with which the roles servers and router ask for each server of one host of a plan.

    Left out is what a host knows (engine_fingerprint) and what is nothing to a server that runs (flag_table, peers,
    wait, limits of time).
    """
    common = {"root": plan["hosts"][host]["root"], "manager": plan["hosts"][host]["service_manager"]}
    parts = [*plan["servers"], *([plan["router"]] if plan["router"] else [])]
    return [{**common, **options_of(part)} for part in parts if part["host"] == host]
