# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that run as they are asked for, found in one look at a host: pd_servers then need not look again.

The host holds each description against what is there, by the same code as pd_server, and keeps the answer with the
options that it answers. It is taken only by a task with the same options, and only for a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import ARGUMENTS, needed_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_state import ServerState
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import DefinitionError
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import AUTO

# Longer ago, a server may have died and come back with another PID. A slow controller needs half of it to get there.
FRESH_S = 60.0
# Options that say how to start a server, how long to wait and what to tell: nothing to one that runs as described.
OF_A_START = ("flag_table", "peers", "wait", "timeout_s", "error_lines", "supervisord", "seen")


def look(asked: Iterable[Mapping[str, Any]], engine_fingerprint: str | None) -> dict[str, dict[str, Any]]:
    """{name: {"asked": options, "result": pd_server's result}} of those servers that need nothing. Runs on the target.

    `asked` are options of pd_server. Without an engine nothing is looked at. May raise processes.ControllerGone.
    """
    found: dict[str, dict[str, Any]] = {}
    for options in asked if engine_fingerprint else ():
        params = completed({**options, "engine_fingerprint": engine_fingerprint, "wait": False})
        result = _standing(params) if params else None
        if params and result:
            found[params["name"]] = {"asked": _deciding(params), "result": result}
    return found


def completed(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """All options of pd_server, from those that a task names; None when they are not valid."""
    validated = ArgumentSpecValidator(ARGUMENTS).validate(dict(options))
    return None if validated.error_messages else dict(validated.validated_parameters)


def result_for(options: Mapping[str, Any], seen: Mapping[str, Any], now: float) -> dict[str, Any] | None:
    """What pd_server would answer to a task with these options, when `look` has answered just that; else None.

    `seen`: {"at": when the look began, "servers": what it found}; `now` and "at" are one clock's. Runs anywhere.
    """
    found = (seen.get("servers") or {}).get(options.get("name"))
    if found is None or not 0 <= now - seen["at"] <= FRESH_S:
        return None
    params = completed(options)
    if params is None or (params["wait"] and found["result"]["seconds_to_ready"] is None):
        return None
    wanted = _deciding(params)
    if found["asked"]["manager"] == AUTO and wanted["manager"] == found["result"]["manager"]:
        wanted["manager"] = AUTO
    return dict(found["result"]) if wanted == found["asked"] else None


def _deciding(params: Mapping[str, Any]) -> dict[str, Any]:
    """Of all options those that tell whether a server runs as described."""
    return {key: value for key, value in params.items() if key not in OF_A_START}


def _standing(params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of pd_server for a server that is to run and needs nothing; None when it does, or may."""
    if params["state"] != "started" or needed_options(params):
        return None
    try:
        server = ServerState(params)
        plan = server.plan()
        if plan.reasons or plan.shared or plan.life is None:
            return None
        result = server.planned(plan)
        if plan.life.seconds_to_ready is not None:
            result["live_environment"] = server.live_environment(plan.definition)
            if result["live_environment"] is not None and not result["live_environment"]["ok"]:
                return None
        return {**result, **server.observed(server.manager.status(server.unit))}
    except (DefinitionError, ServiceError, OSError):
        return None
