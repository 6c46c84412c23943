# SPDX-License-Identifier: GPL-3.0-or-later
"""From one description of a server (see command_line.py) to its service, its ports and where it says that it is ready."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import (
    CUDA,
    ENGINE_ROLES,
    PREFILL,
    ROUTER,
    server_argv,
    server_environment,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import ALWAYS, PREFIX, ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import log_file, under

# A decode server forgets a prefill's old endpoints only after missing it for two heartbeats of 5 s (sglang
# disaggregation/common/conn.py): a prefill that comes back sooner costs requests of 300 s each.
RESTART_DELAY_S = {PREFILL: 15}
DEFAULT_RESTART_DELAY_S = 3
# How long a server may take to stop. Its drain has no end of its own (sglang managers/tokenizer_manager.py), and a
# request whose KV transfer hangs holds it for SGLANG_DISAGGREGATION_WAITING_TIMEOUT, 300 s. An idle prefill takes 20 s
# (measured, 0.5.23); the rest is for the answers that are being written.
STOP_TIMEOUT_S = 90
# Load nvidia-uvm and make its device files, which CUDA does by itself only as root.
MAKE_GPU_DEVICES = ("/usr/bin/nvidia-modprobe", "-c=0", "-u")
GPU_SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager")


@dataclass(frozen=True)
class Port:
    """A TCP port that a server binds: the option that names it, the number and the address."""

    option: str
    number: int
    address: str


def unit_of(server: Mapping[str, Any]) -> str:
    """Return the service's name."""
    return PREFIX + str(server["name"])


def work_dir(root: str) -> str:
    """Return the servers' working directory: one that is empty, because `python -m` imports from it first."""
    return under(root, "run")


def definition_of(
    server: Mapping[str, Any], root: str, fingerprint: str, user: str | None, stop_timeout_s: int
) -> ServiceDefinition:
    """Return the service definition of a server; see command_line.py for the keys of `server`."""
    engine = server["role"] in ENGINE_ROLES
    on_gpus = engine and server.get("device") == CUDA
    workers = [PREFIX + worker["name"] for worker in server.get("workers") or [] if worker.get("name")]
    return ServiceDefinition(
        name=unit_of(server),
        description=f"pdlab {server['role']} {server['name']} on port {server['port']}",
        argv=tuple(server_argv(server)),
        environment=server_environment(server),
        working_directory=work_dir(root),
        log_path=log_file(root, str(server["name"])),
        restart=ALWAYS,
        restart_delay_s=RESTART_DELAY_S.get(server["role"], DEFAULT_RESTART_DELAY_S),
        stop_timeout_s=stop_timeout_s,
        user=user,
        fingerprint=fingerprint,
        # The router is the last to come and the first to go: it finishes its requests while its workers still serve.
        after=(*(GPU_SERVICES if on_gpus else ()), *workers),
        writable=(str(server["home"]),) if user else (),
        mounts=(root, *([str(server["model_path"])] if engine else [])),
        least_absence_s=RESTART_DELAY_S.get(server["role"], 0),
        as_root=MAKE_GPU_DEVICES if on_gpus and user else (),
    )


def ports_of(server: Mapping[str, Any]) -> list[Port]:
    """Return the ports that the server binds. torch's store binds the NCCL port on every address."""
    found = [Port("port", int(server["port"]), str(server["address"]))]
    if server["role"] == ROUTER:
        found.append(Port("prometheus_port", int(server["prometheus_port"]), str(server["prometheus_host"])))
    if server["role"] == PREFILL:
        found.append(Port("bootstrap_port", int(server["bootstrap_port"]), str(server["address"])))
    if server["role"] in ENGINE_ROLES and server.get("nccl_port"):
        found.append(Port("nccl_port", int(server["nccl_port"]), "0.0.0.0"))
    return found


def reachable(address: str) -> str:
    """Return an address at which a server bound to `address` answers on its own host."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if not parsed.is_unspecified:
        return address
    return "127.0.0.1" if parsed.version == 4 else "::1"


def url_of(server: Mapping[str, Any]) -> str:
    """Return the server's base URL, as its own host reaches it."""
    host = reachable(str(server["address"]))
    return f"http://[{host}]:{server['port']}" if ":" in host else f"http://{host}:{server['port']}"


def ready_paths(role: str) -> tuple[str, str]:
    """Return the cheap question and the one to ask where the first is not known or not open.

    An engine's /ready says that it serves (new in sglang 0.5.23); its /health makes a token, and is open even with
    an API key. A router's /liveness says that it runs; whether it has found its workers is a question for later.
    """
    return ("/liveness", "/health") if role == ROUTER else ("/ready", "/health")
