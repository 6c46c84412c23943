#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: pd_servers
short_description: Keep the servers of one host running as described, started together
description:
  - What M(pdlab.pdlab.pd_server) does with O(pdlab.pdlab.pd_server#module:state=started), for several servers of a host
    at once. All are checked before one of them is touched, and all faults of all are listed. Then those that differ are
    stopped and started, one right after the other, so that they load side by side. Then all are waited for.
version_added: 0.1.0
author: The pdlab authors
options:
  servers:
    description:
      - The servers, each with the options of M(pdlab.pdlab.pd_server). Those options that stand below count for all, and
        not here. Descriptions of the plan that M(pdlab.pdlab.topology) returns may be handed in whole.
      - They are started in this order.
    type: list
    elements: dict
    required: true
  root: {description: As in M(pdlab.pdlab.pd_server)., type: path, required: true}
  manager:
    description: As in M(pdlab.pdlab.pd_server).
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  supervisord: {description: As in M(pdlab.pdlab.pd_server)., type: path}
  engine_fingerprint: {description: As in M(pdlab.pdlab.pd_server)., type: str, default: ""}
  flag_table: {description: As in M(pdlab.pdlab.pd_server)., type: path}
  peers:
    description: As in M(pdlab.pdlab.pd_server). The servers themselves need not be among them.
    type: list
    elements: dict
    default: []
  wait:
    description:
      - Whether to wait until every server is ready. The first that will not be ends the wait.
      - A router is not waited for; it is ready only when its servers are, and these may be another host's. It is told
        of those that are ready here, which it would otherwise find up to 5 s later.
    type: bool
    default: true
  timeout_s: {description: As in M(pdlab.pdlab.pd_server)., type: int, default: 600}
  stop_timeout_s: {description: As in M(pdlab.pdlab.pd_server)., type: int, default: 90}
  error_lines: {description: As in M(pdlab.pdlab.pd_server)., type: int, default: 12}
  seen:
    description:
      - What M(pdlab.pdlab.preflight) found running as described. Where it holds all of these servers, the host is not
        asked again.
    type: dict
  run_dir:
    description: Run folder on the controller that keeps the result of each server, as C(server-NAME).
    type: path
  record:
    description: Name under which the run folder keeps a failure that is no single server's.
    type: str
attributes:
  action: {description: Runs on the controller and calls the module of this name on the target., support: full}
  check_mode: {description: Can tell what it would do without doing it., support: full}
  diff_mode: {description: Shows the service definitions before and after., support: full}
seealso:
  - module: pdlab.pdlab.pd_server
"""

EXAMPLES = r"""
- name: Start what this host serves, and do not wait
  pdlab.pdlab.pd_servers:
    root: /srv/pdlab
    servers:
      - name: prefill-0
        role: prefill
        python: /srv/pdlab/engine/bin/python
        model_path: /srv/models/DeepSeek-V4-Flash
        served_name: deepseek-v4-flash
        port: 30000
        bootstrap_port: 8998
        gpus: [0]
      - name: decode-0
        role: decode
        python: /srv/pdlab/engine/bin/python
        model_path: /srv/models/DeepSeek-V4-Flash
        served_name: deepseek-v4-flash
        port: 30001
        gpus: [1]
    wait: false
"""

RETURN = r"""
servers:
  description: What M(pdlab.pdlab.pd_server) returns, for each server that was come to, in order.
  returned: when no description was refused
  type: list
  elements: dict
name: {description: The server that failed., type: str, returned: when one did}
faults: {description: Why nothing was touched., type: list, elements: str, returned: when descriptions were refused}
error_lines: {description: The log lines that explain a failure., type: list, elements: str, returned: on failure}
"""

import queue
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes, router_workers
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import ARGUMENTS, OF_THEM_ALL
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import ROUTER
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_run import Refused, Server, ServerFailed, refusal
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import url_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError

SPEC: dict[str, dict[str, Any]] = {
    "servers": {"type": "list", "elements": "dict", "required": True},
    **{key: ARGUMENTS[key] for key in OF_THEM_ALL},
}


def described(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all options of each server. Raises Refused with every fault of every server."""
    common = {key: params[key] for key in OF_THEM_ALL if params[key] is not None}
    found, faults = [], []
    for index, options in enumerate(params["servers"]):
        subject = options.get("name") or f"servers[{index}]"
        twice = sorted(set(options) & set(OF_THEM_ALL))
        faults += [f"{subject}: {key}: counts for all servers; say it beside servers" for key in twice]
        validated = ArgumentSpecValidator(ARGUMENTS).validate({**options, **common})
        faults += [f"{subject}: {message}" for message in validated.error_messages]
        found.append(dict(validated.validated_parameters))
    if faults:
        raise Refused(faults)
    return found


def prepare_all(servers: Sequence[Server]) -> None:
    """Look at all of them. Raises Refused with every fault of every server."""
    named = {peer["name"] for server in servers for peer in [server.params, *server.params["peers"]]}
    faults: list[str] = []
    for server in servers:
        try:
            server.prepare()
        except Refused as error:
            for fault in error.faults:
                # What is wrong with a flag says whose flag it is, which may be a peer's.
                says_whose = fault.partition(": ")[0] in named
                faults.append(fault if says_whose else f"{server.params['name']}: {fault}")
    if faults:
        # Each server holds the flags of all of them against the table.
        raise Refused(list(dict.fromkeys(faults)))


def wait_for_all(servers: Sequence[Server]) -> None:
    """Wait for all at once. Raises what the first raises that does; the others are left as they are."""
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def wait(server: Server) -> None:
        try:
            server.wait()
        except BaseException as error:  # whatever it is, it is this module's
            ended.put(error)
        else:
            ended.put(None)

    for server in servers:
        threading.Thread(target=wait, args=(server,), daemon=True).start()
    for _ in servers:
        error = ended.get()
        if error is not None:
            raise error


def reach(servers: Sequence[Server], wait: bool) -> None:
    """Check all, then start all, then wait for all but a router, which is told when the others are ready."""
    prepare_all(servers)
    if servers and servers[0].check_mode:
        return
    # The router comes last in a plan: it is the first to go, and finishes its requests while its workers still serve.
    for server in reversed(servers):
        server.halt()
    for server in servers:
        server.apply()
    if wait:
        routers = [server for server in servers if server.params["role"] == ROUTER]
        engines = [server for server in servers if server not in routers]
        wait_for_all(engines)
        ready = {server.params["name"] for server in engines}
        for router in routers:
            router_workers.introduce(url_of(router.params), router.params["workers"], ready)


def answer(servers: Sequence[Server], looked_again: bool) -> dict[str, Any]:
    """Return the result of all. `looked_again`: the processes are those of now."""
    results = [server.told() if looked_again else server.answer for server in servers if server.plan_made]
    diffs = [part for result in results for part in result["diff"]]
    return {
        "changed": any(result["changed"] for result in results),
        "servers": results,
        # What the servers of a host share is shown once.
        "diff": [part for index, part in enumerate(diffs) if part not in diffs[:index]],
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    servers: list[Server] = []
    try:
        servers += [Server(params, module.check_mode, module.warn) for params in described(module.params)]
        reach(servers, module.params["wait"])
        module.exit_json(**answer(servers, looked_again=not module.check_mode))
    except Refused as error:
        module.fail_json(msg=refusal(error.faults), faults=error.faults)
    except ServerFailed as error:
        told = {"name": error.result["name"], "error_lines": error.result.get("error_lines", [])}
        module.fail_json(msg=str(error), **told, **answer(servers, looked_again=True))
    except processes.ControllerGone:
        sys.exit("the controller is gone; the services are left as they are")
    except ServiceError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error}; is {module.params['root']} writable and not full?")


if __name__ == "__main__":
    main()
