#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: pd_ready
short_description: Wait until a prefill/decode deployment is ready, proven by a real generation
version_added: 0.1.0
description:
  - Takes six steps in order, from the host it runs on, and stops at the first that fails. A healthy deployment
    passes in less than a second.
  - The servers answer C(/ready) (C(/health) on an engine that has no C(/ready)).
  - Every prefill is fully registered on its bootstrap port, and what is registered there is this prefill. Two
    prefills with one bootstrap port overwrite each other and stay healthy all the while.
  - Every prefill rank accepts TCP connections at the address that it gives to decode, and where O(services) names the
    prefill's process, the port there is its own.
  - The servers agree with each other (page size, KV cache type, version, model) and are what the plan says. The
    engine itself notices a mismatch at the first request, and its decode server does not survive it.
  - The router is ready and lists every server with its role and bootstrap port.
  - A greedy generation through the router, longer than a page, gives text, and KV bytes have moved.
  - Without prefill and decode (colocated servers) or without a router, the steps that need them say so in C(seen)
    and have V(null) for C(ok).
  - Never changes anything. In check mode it is skipped.
notes:
  - "Run it where decode runs: the addresses that the router and decode use must be right there."
  - Ends by itself when the controller is gone.
options:
  servers:
    description:
      - The servers as the plan has them. Used of each are C(name), C(role) (V(prefill), V(decode) or V(colocated)),
        C(host), C(address), C(port), C(url), C(bootstrap_port), C(tp), C(model_path) and C(environment).
    type: list
    elements: dict
    required: true
  router:
    description:
      - The router as the plan has it. Used are C(url) and C(workers). Leave it out when there is none.
    type: dict
  services:
    description:
      - Processes to watch while waiting. When one ends, so does the waiting, with the last error lines of its log.
      - Only processes of the host that the module runs on. Results of M(pdlab.pdlab.pd_servers) can be given as they are.
      - Used of each are C(name), C(pid), C(log) (its log file), and C(log_offset) and C(log_inode), which say where in
        the log this start of the server begins (bytes; 0 when left out).
    type: list
    elements: dict
    default: []
  timeout_s:
    description: Time limit of the whole gate, in seconds.
    type: float
    default: 180
  poll_s:
    description: Time between two looks at a step that does not pass yet, in seconds.
    type: float
    default: 0.2
  generation_timeout_s:
    description: Time limit of the generation, in seconds. The first KV transfer after a start may be slow.
    type: float
    default: 120
  api_key:
    description: Key that the servers and the router ask for, when they do.
    type: str
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
author:
  - the pdlab authors
attributes:
  check_mode:
    description: Skipped in check mode, which must not send a request.
    support: none
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: The deployment is ready
  pdlab.pdlab.pd_ready:
    servers: "{{ pd_plan.servers }}"
    router: "{{ pd_plan.router }}"
    services:
      - {name: prefill-0, pid: 4711, log: /srv/pdlab/logs/prefill-0.log, log_offset: 0}
    run_dir: "{{ pdlab_run_dir }}"
"""

RETURN = r"""
ok:
  description: Whether every step that applies passed.
  returned: always
  type: bool
steps:
  description: The steps taken, in order. Those after a failed one are missing.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: One of V(servers), V(registration), V(ranks), V(agreement), V(router), V(generation).
      type: str
    name:
      description: The same for people.
      type: str
    ok:
      description: Whether it passed; null when it does not apply.
      type: bool
    seconds:
      description: Time it took.
      type: float
    seen:
      description: What was there.
      type: str
    why:
      description: Why it failed and what to do; null when it passed.
      type: str
why:
  description: The failed step and its reason; null when all passed.
  returned: always
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_log, processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import ENGINE_ROLES
from ansible_collections.pdlab.pdlab.plugins.module_utils.ready_gate import ReadyGate

ERROR_LINES = 12
SERVER_KEYS = ("name", "role", "address", "port", "url")


def server_faults(servers: list[dict[str, Any]]) -> list[str]:
    """What is missing in `servers`, all of it."""
    if not servers:
        return ["servers: the list is empty; name at least one server"]
    faults = []
    for index, server in enumerate(servers):
        where = f"servers[{index}]"
        missing = [key for key in SERVER_KEYS if server.get(key) in (None, "")]
        if missing:
            faults.append(f"{where}: {', '.join(missing)} missing; give the servers as the plan has them")
        if server.get("role") is not None and server["role"] not in ENGINE_ROLES:
            faults.append(f"{where}.role: {server['role']!r} is none of {', '.join(ENGINE_ROLES)}")
        if server.get("role") == "prefill" and not server.get("bootstrap_port"):
            faults.append(f"{where}.bootstrap_port: missing; every prefill has one")
    return faults


def stop_reason(services: list[dict[str, Any]]) -> str | None:
    """Why waiting is pointless: nobody waits for us, or a watched server's process has ended."""
    if processes.controller_gone():
        return "The controller is gone."
    for service in services:
        pid = service.get("pid")
        if not pid or processes.is_alive(pid):
            continue
        lines = []
        if service.get("log"):
            since = engine_log.LogMark(service.get("log_offset") or 0, service.get("log_inode") or 0)
            lines = engine_log.error_lines(service["log"], since, ERROR_LINES)
        said = "\n".join(lines) if lines else "It left no error line; read its log."
        where = f" (log: {service['log']})" if service.get("log") else ""
        return f"The process of {service['name']}, PID {pid}, has ended{where}.\n{said}"
    return None


def stranger(services: list[dict[str, Any]], name: str, port: int) -> str | None:
    """The process that listens on `port` when it is surely none of the named service's; None otherwise."""
    pid = next((service["pid"] for service in services if service["name"] == name and service.get("pid")), None)
    if pid is None:
        return None
    tree = processes.process_tree(pid)
    owners = [listener for listener in processes.listeners([port]) if listener.pid is not None]
    if not tree or not owners or any(listener.pid in tree for listener in owners):
        return None
    return f"PID {owners[0].pid} ({owners[0].command})"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "servers": {"type": "list", "elements": "dict", "required": True},
            "router": {"type": "dict"},
            "services": {"type": "list", "elements": "dict", "default": []},
            "timeout_s": {"type": "float", "default": 180.0},
            "poll_s": {"type": "float", "default": 0.2},
            "generation_timeout_s": {"type": "float", "default": 120.0},
            "api_key": {"type": "str", "no_log": True},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        supports_check_mode=True,
    )
    options = module.params
    faults = server_faults(options["servers"])
    faults += [
        f"services[{index}].name: missing; name the server whose process it is"
        for index, service in enumerate(options["services"])
        if not service.get("name")
    ]
    if options["router"] and not options["router"].get("url"):
        faults.append("router.url: missing; give the router as the plan has it")
    if faults:
        module.fail_json(msg="\n".join(faults), ok=False, steps=[], why="\n".join(faults))
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Not asked in check mode.")
    gate = ReadyGate(
        options["servers"],
        options["router"] or None,
        options["timeout_s"],
        options["poll_s"],
        options["generation_timeout_s"],
        options["api_key"],
        lambda: stop_reason(options["services"]),
        lambda name, port: stranger(options["services"], name, port),
    )
    result = gate.run()
    if not result["ok"]:
        module.fail_json(msg=result["why"], **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
