#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: one SGLang server or router in the wanted state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_server
short_description: Keep one SGLang server or router in the wanted state
description:
  - From one description of a server this makes its command line, environment and service definition, compares them
    with what is there and with the process that runs, restarts only when that differs, and waits until the server
    itself says that it is ready. When it will not be, the message holds the last error lines of its log.
  - Flags, ports, paths and the NUMA binding are checked before anything is stopped, and all faults are listed at once.
  - Services are kept by systemd where it is PID 1 and the module runs as root, otherwise by supervisor.
version_added: 0.1.0
author: The pdlab authors
options:
  name:
    description: Name of the server, unique on its host. The service is called C(pdlab-NAME).
    type: str
    required: true
  host:
    description: Name of the host in the inventory, only repeated in the result.
    type: str
  state:
    description:
      - V(started) makes the server run with exactly this description, and restarts it only when it does not.
      - V(restarted) starts it anew in any case.
      - V(stopped) stops it and keeps its definition.
      - V(absent) stops it and removes its definition.
      - V(checked) holds the description, its paths and all flags against this host and its engine, and touches nothing
        but the table of flags.
    type: str
    choices: [started, restarted, stopped, absent, checked]
    default: started
  role:
    description: What the server does. Needed to start one.
    type: str
    choices: [prefill, decode, colocated, router]
  root:
    description: Directory of pdlab on the target.
    type: path
    required: true
  python:
    description: Python of the environment that holds the engine or the router. Needed to start.
    type: path
  home:
    description:
      - Value of E(HOME) for the server, where its caches lie. The default is the home of the user that it runs as.
    type: path
  model_path:
    description: Directory of the model. Needed by engine roles.
    type: path
  served_name:
    description: Name under which the model is served. Needed by engine roles.
    type: str
  device:
    description: Device that the engine runs on.
    type: str
    choices: [cuda, cpu]
    default: cuda
  address:
    description: Address to listen on.
    type: str
    default: 127.0.0.1
  port:
    description: Port of the HTTP server. Needed to start.
    type: int
  bootstrap_port:
    description: Port where a prefill server registers for decode servers. Needed by a prefill server.
    type: int
  nccl_port:
    description: Port for torch.distributed between the ranks of this server.
    type: int
  gpus:
    description: Indexes of the GPUs, all of them visible to the server; the lowest is its base GPU.
    type: list
    elements: int
    default: []
  tp:
    description: Tensor parallel size.
    type: int
    default: 1
  numa_node:
    description: NUMA node to bind CPUs and memory to, with numactl. No binding when left out.
    type: int
  transfer_backend:
    description: How a prefill server hands its KV cache to a decode server.
    type: str
    default: nixl
  args:
    description: Further flags by name, without the dashes; they replace derived flags of the same name.
    type: dict
    default: {}
  env:
    description: Further environment variables.
    type: dict
    default: {}
  workers:
    description: The servers behind a router. Needed by a router.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the server, for messages only.
        type: str
      role:
        description: What the server does.
        type: str
        choices: [prefill, decode, colocated]
        required: true
      url:
        description: Base URL at which the router, and a decode server for its prefill, reaches it.
        type: str
        required: true
      bootstrap_port:
        description: Bootstrap port of a prefill server.
        type: int
  prometheus_host:
    description: Address of the router's metrics.
    type: str
    default: 127.0.0.1
  prometheus_port:
    description: Port of the router's metrics.
    type: int
    default: 29001
  policy:
    description: The router's load-balancing policy.
    type: str
    default: round_robin
  manager:
    description: What keeps the service running. V(auto) takes systemd where it is PID 1 and this runs as root.
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  supervisord:
    description: The supervisord to start when none runs for this O(root). Default O(root)/supervisor/venv/bin/supervisord.
    type: path
  flag_table:
    description:
      - File of the table of flags that the installed engine and its router know. It is made by asking their own
        parsers when it is missing, so name it after the engine's fingerprint. Flags are not checked when left out.
    type: path
  peers:
    description:
      - The servers, and the router, that are started together with this one, as the plan has them. Used are C(name),
        C(role) and C(argv). Their flags are checked, too, before this one is touched.
    type: list
    elements: dict
    default: []
  engine_fingerprint:
    description: Names the content of the engine's environment, so that a new engine means a restart.
    type: str
    default: ''
  user:
    description:
      - Account to run the server as, when the module runs as root. It must be able to read the engine and the model,
        and O(home) must be its own (M(pdlab.pdlab.service_account) makes both). systemd then also holds the server to
        the little that it needs.
    type: str
  wait:
    description: Wait until the server is ready. Without, the module returns when the start was issued.
    type: bool
    default: true
  timeout_s:
    description: Seconds to wait until the server is ready.
    type: int
    default: 600
  stop_timeout_s:
    description: Seconds that the server gets to finish its requests before it is killed.
    type: int
    default: 90
  error_lines:
    description: How many lines of the server's log a failure shows at most.
    type: int
    default: 12
  seen:
    description:
      - What M(pdlab.pdlab.preflight) found on this host in the same run, as C(standing). A server that was seen to run
        with exactly these options a few seconds ago is not looked at again.
      - Used by the action plug-in alone.
    type: dict
attributes:
  check_mode:
    description: Says what would be done and touches nothing.
    support: full
  diff_mode:
    description: Shows the service definition before and after.
    support: full
"""

EXAMPLES = r"""
- name: Start a prefill server and do not wait, so that decode starts beside it
  pdlab.pdlab.pd_server:
    name: prefill-0
    role: prefill
    root: /srv/pdlab
    python: /srv/pdlab/engine/bin/python
    model_path: /srv/models/DeepSeek-V4-Flash
    served_name: deepseek-v4-flash
    port: 30000
    bootstrap_port: 8998
    nccl_port: 28500
    gpus: [0, 1, 2, 3]
    tp: 4
    numa_node: 0
    args:
      attention-backend: fa3
    wait: false

- name: Start the router and wait for it
  pdlab.pdlab.pd_server:
    name: router
    role: router
    root: /srv/pdlab
    python: /srv/pdlab/engine/bin/python
    port: 8000
    workers:
      - {role: prefill, url: "http://127.0.0.1:30000", bootstrap_port: 8998}
      - {role: decode, url: "http://127.0.0.1:30001"}

- name: Stop a server and remove its definition
  pdlab.pdlab.pd_server:
    name: prefill-0
    root: /srv/pdlab
    state: absent
"""

RETURN = r"""
name: {description: Name of the server., type: str, returned: always}
role: {description: Role of the server., type: str, returned: always}
host: {description: Name of the host., type: str, returned: always}
state:
  description: What the service manager says now, one of running, starting, stopped, failed, absent.
  type: str
  returned: always
manager: {description: systemd or supervisor., type: str, returned: always}
unit: {description: Name of the service., type: str, returned: always}
reasons: {description: Why something was changed, or would be., type: list, elements: str, returned: always}
pid: {description: PID of the main process., type: int, returned: always}
pids: {description: PIDs of the main process and its descendants., type: list, elements: int, returned: always}
argv: {description: The command line., type: list, elements: str, returned: when started or restarted}
environment: {description: The whole environment., type: dict, returned: when started or restarted}
definition: {description: Text of the service definition., type: str, returned: when started or restarted}
definition_path: {description: File of the service definition., type: str, returned: always}
log: {description: File of the server's output., type: str, returned: always}
log_offset: {description: Size in bytes of the log when the server was last started., type: int, returned: always}
log_inode:
  description: Inode of the log at that moment, 0 when there was none, so that a rotation since then can be told.
  type: int
  returned: always
url: {description: Base URL of the server., type: str, returned: when started or restarted}
seconds_to_ready:
  description: Seconds from the start of this life to when it was first seen ready, null before that.
  type: float
  returned: when started or restarted
binding:
  description: The NUMA binding of the live processes, as C(wanted), C(ok) and C(seen); null when none was asked for.
  type: dict
  returned: when started or restarted
live_gpus:
  description:
    - The GPUs on which the live processes compute, as C(wanted), C(ok), C(seen) (MiB by GPU) and C(unknown); null
      without GPUs, and when the server was seen ready before.
  type: dict
  returned: when started or restarted
live_environment:
  description:
    - The environment of the live processes against the one that was asked for, as C(ok), C(checked) (how many processes
      were compared), C(differences) and C(unknown); null when the server was not ready yet.
  type: dict
  returned: when started or restarted
error_lines: {description: The log lines that explain a failure., type: list, elements: str, returned: on failure}
"""

import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import ARGUMENTS
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_run import Refused, Server, ServerFailed, refusal
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError


def reach(server: Server) -> dict[str, Any]:
    """Bring the server to the state that it is to have; return the result."""
    if server.params["state"] == "checked":
        return server.look()
    if server.params["state"] in ("stopped", "absent"):
        return server.put_down()
    server.prepare()
    if server.check_mode:
        return server.answer
    server.halt()
    server.apply()
    if server.params["wait"]:
        server.wait()
    return server.told()


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    subject = f"server {module.params['name']}: "
    try:
        module.exit_json(**reach(Server(module.params, module.check_mode, module.warn)))
    except Refused as error:
        module.fail_json(msg=refusal(error.faults, subject), faults=error.faults)
    except ServerFailed as error:
        module.fail_json(msg=str(error), **error.result)
    except processes.ControllerGone:
        sys.exit("the controller is gone; the service is left as it is")
    except ServiceError as error:
        module.fail_json(msg=f"{subject}{error}")
    except OSError as error:
        module.fail_json(msg=f"{subject}{error}; is {module.params['root']} writable and not full?")


if __name__ == "__main__":
    main()
