# SPDX-License-Identifier: GPL-3.0-or-later
"""From one description of a server to its argv and environment. Pure: no I/O, no shell.

Both doors use this: the modules pd_server and pd_servers on the target, and the topology rules for `pdlab plan`.
Flags are those of sglang 0.5.x (`python -m sglang.launch_server --help`) and sglang-router 0.3.x.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import server_roles
from ansible_collections.pdlab.pdlab.plugins.module_utils.collectives import always_set

PREFILL = server_roles.PREFILL
DECODE = server_roles.DECODE
COLOCATED = server_roles.COLOCATED
ROUTER = server_roles.ROUTER
ENGINE_ROLES = server_roles.ENGINE_ROLES
CUDA = "cuda"

# The router's own defaults leave it useless for up to a minute after a prefill's restart, while its /readiness says
# 200, and repeat a request on servers that may be dead. Measured in docs/decisions/0004-router.md.
ROUTER_FLAGS = {
    "health-check-endpoint": "/ready",
    "health-check-interval-secs": 2,
    "health-success-threshold": 1,
    "cb-timeout-duration-secs": 10,
    "disable-retries": True,
    "worker-startup-check-interval": 1,
}

# `python -m sglang_router.launch_router`, without the engine: the router's unused mini load balancer tries to import
# sglang for its traces, and torch with it. That is 5 s of CPU and 14 s on two busy cores instead of 0.5 and 2, at
# every start of a router. It goes on without when there is none, which is what the first statement says
# (sglang_router/mini_lb.py, 0.3.2).
ROUTER_PROGRAM = 'import sys; sys.modules["sglang"] = None; from sglang_router.launch_router import main; main()'

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def flag_arguments(args: Mapping[str, Any]) -> list[str]:
    """Turn `{"attention-backend": "fa3", "enable-metrics": True, "cuda-graph-bs": [1, 2]}` into argv items.

    True gives the bare flag; False and None leave it out; a list gives one flag with several values;
    a mapping gives its JSON. Leading dashes in a key are allowed and ignored. Order is kept.
    """
    argv: list[str] = []
    for key, value in args.items():
        flag = "--" + key.lstrip("-").replace("_", "-")
        if value is None or value is False:
            continue
        argv.append(flag)
        if value is True:
            continue
        if isinstance(value, Mapping):
            argv.append(json.dumps(value, ensure_ascii=False))
        elif isinstance(value, (list, tuple)):
            argv.extend(str(item) for item in value)
        else:
            argv.append(str(value))
    return argv


def numactl_prefix(numa_node: int | None) -> list[str]:
    """`numactl` in front of the server, binding CPUs and memory to one node; nothing when no node is named."""
    if numa_node is None:
        return []
    return ["numactl", f"--cpunodebind={numa_node}", f"--membind={numa_node}"]


def engine_argv(server: Mapping[str, Any]) -> list[str]:
    """The command line of an SGLang server, numactl first.

    `server` has: role, python, model_path, served_name, device, address, port, nccl_port, gpus (list of int),
    tp, numa_node, args; bootstrap_port and transfer_backend for prefill and decode.
    What `args` names replaces the derived flag of the same name.
    """
    derived: dict[str, Any] = {
        "model-path": server["model_path"],
        "served-model-name": server["served_name"],
        "host": server["address"],
        "port": server["port"],
        "nccl-port": server.get("nccl_port"),
        "device": server["device"],
        "tp-size": server.get("tp") or 1,
        "base-gpu-id": min(server["gpus"]) if server.get("gpus") else None,
        "enable-metrics": True,
    }
    if server["role"] in (PREFILL, DECODE):
        derived["disaggregation-mode"] = server["role"]
        derived["disaggregation-transfer-backend"] = server.get("transfer_backend") or "nixl"
    if server["role"] == PREFILL:
        derived["disaggregation-bootstrap-port"] = server["bootstrap_port"]
    derived.update({key.lstrip("-").replace("_", "-"): value for key, value in (server.get("args") or {}).items()})
    return [
        *numactl_prefix(server.get("numa_node")),
        server["python"],
        "-m",
        "sglang.launch_server",
        *flag_arguments(derived),
    ]


def router_argv(router: Mapping[str, Any]) -> list[str]:
    """The command line of the router.

    `router` has: python, address, port, prometheus_host, prometheus_port, policy, args and
    workers: [{role, url, bootstrap_port}]. A prefill is always given with its bootstrap port: without one the
    router sends null and decode falls back to its own port.
    """
    workers: Sequence[Mapping[str, Any]] = router["workers"]
    argv = [router["python"], "-c", ROUTER_PROGRAM]
    colocated = [worker["url"] for worker in workers if worker["role"] == COLOCATED]
    if colocated:
        argv += ["--worker-urls", *colocated]
    else:
        argv.append("--pd-disaggregation")
        for worker in workers:
            if worker["role"] == PREFILL:
                argv += ["--prefill", worker["url"], str(worker["bootstrap_port"])]
        for worker in workers:
            if worker["role"] == DECODE:
                argv += ["--decode", worker["url"]]
    derived: dict[str, Any] = {
        **ROUTER_FLAGS,
        "host": router["address"],
        "port": router["port"],
        "prometheus-host": router["prometheus_host"],
        "prometheus-port": router["prometheus_port"],
        "policy": router["policy"],
    }
    derived.update({key.lstrip("-").replace("_", "-"): value for key, value in (router.get("args") or {}).items()})
    return argv + flag_arguments(derived)


def program_arguments(argv: Sequence[str]) -> list[str]:
    """What a command line gives to the program that its Python runs (`-m NAME` or `-c CODE`).

    What stands before (numactl, Python itself) is left out. All of `argv` when no Python runs anything there.
    """
    for place, item in enumerate(argv[1:], start=1):
        if item in ("-m", "-c") and posixpath.basename(argv[place - 1]).startswith("python"):
            return list(argv[place + 2 :])
    return list(argv)


def server_argv(server: Mapping[str, Any]) -> list[str]:
    """The command line of any server that pdlab runs, by its role."""
    return router_argv(server) if server["role"] == ROUTER else engine_argv(server)


def server_environment(server: Mapping[str, Any]) -> dict[str, str]:
    """The whole environment of a server's process; nothing is inherited from whoever starts it.

    What every engine server gets stands with its reasons in collectives.py; `env` holds what a profile and the
    inventory add, and wins.
    """
    python = server["python"]
    environment = {
        "PATH": posixpath.dirname(python) + ":" + SYSTEM_PATH,
        "HOME": server["home"],
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    if server["role"] in ENGINE_ROLES:
        environment.update(always_set(server))
    if server.get("user"):
        # The engine's folder is root's, and /tmp goes with the service: what is compiled is kept at home.
        environment["PYTHONPYCACHEPREFIX"] = posixpath.join(server["home"], ".cache", "pycache")
        environment["TORCHINDUCTOR_CACHE_DIR"] = posixpath.join(server["home"], ".cache", "torchinductor")
    environment.update({key: _text(value) for key, value in (server.get("env") or {}).items()})
    return environment


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (Mapping, list)):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
