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

import os
import pwd
import subprocess
import sys
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    engine_log,
    live_environment,
    live_gpus,
    numa_binding,
    processes,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import CUDA, ENGINE_ROLES
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flag_table import FlagTableError, ensure_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import deprecations, flag_faults, table_for
from ansible_collections.pdlab.pdlab.plugins.module_utils.log_rotation import rotate
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import ARGUMENTS, needed_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import (
    ports_of,
    ready_paths,
    url_of,
    work_dir,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_state import ServerState, diff_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_wait import (
    BETWEEN_LIVES_S,
    Probe,
    Readiness,
    await_ready,
    ending,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import DefinitionError, ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_life import (
    Life,
    digest,
    forget_life,
    now,
    write_life,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    ABSENT,
    FAILED,
    RUNNING,
    STARTING,
    ServiceError,
    ServiceStatus,
)

# A process that began this much later than its start was ordered is not the first one of this start.
LATER_LIFE_S = 2.5
# What a service manager may take beyond the delay that it was told.
AGAIN_S = 3.0


def path_faults(params: dict[str, Any]) -> list[str]:
    """Return a sentence for each path that is named and not there."""
    found = []
    if not os.access(params["python"], os.X_OK):
        found.append(f"python: {params['python']} is missing or cannot be run; install the engine first")
    if params["role"] in ENGINE_ROLES and not os.path.exists(params["model_path"]):
        found.append(
            f"model_path: {params['model_path']} does not exist on this host; correct the path or fetch the model"
        )
    if params["user"] and not found:
        try:
            found = account_faults(params, pwd.getpwnam(params["user"]))
        except KeyError:
            found.append(f"user: there is no account {params['user']!r} on this host; make it, or name another")
    return found


def account_faults(params: dict[str, Any], account: pwd.struct_passwd) -> list[str]:
    """Return a sentence for each path that the account cannot use as a server must."""
    wanted = [("python", params["python"], "-x", "run", "chmod a+rx, and a+x on the folders above it")]
    if params["role"] in ENGINE_ROLES:
        cure = f"chmod a+rX -R, and a+x on the folders above it, or give it to {account.pw_name}"
        # Every model has one; reading it takes entering the folder, too.
        wanted.append(("model_path", os.path.join(params["model_path"], "config.json"), "-r", "read", cure))
    wanted.append(("home", params["home"] or account.pw_dir, "-w", "write to", f"chown {account.pw_name}"))
    return [
        f"{option}: {account.pw_name} cannot {what} {path}; {cure}"
        for option, path, test, what, cure in wanted
        if not allowed(account, test, path)
    ]


def allowed(account: pwd.struct_passwd, test: str, path: str) -> bool:
    """Ask the kernel, as that account, what test(1) asks of a path: -r, -w or -x."""
    if os.geteuid() == account.pw_uid:
        return subprocess.run(["test", test, path], check=False).returncode == 0
    if os.geteuid() != 0:
        return True  # whoever cannot become it cannot ask; the service manager will refuse
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    done = subprocess.run(
        ["test", test, path], user=account.pw_uid, group=account.pw_gid, extra_groups=groups, cwd="/", check=False
    )
    return done.returncode == 0


class Server(ServerState):
    """One run of the module: reads the state, plans, and applies."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module.params)
        self.module = module

    # --- stopped, absent ---

    def put_down(self) -> None:
        """Reach the state stopped or absent, and exit."""
        status = self.manager.status(self.unit)
        before = self.manager.read(self.unit)
        remove = self.params["state"] == "absent"
        runs = status.state in (RUNNING, STARTING) or status.pid is not None
        reasons = ["it runs"] if runs else []
        if status.state == FAILED:
            reasons.append("it has failed")
        if remove and before is not None:
            reasons.append("its definition is there")
        # The last one takes with it what it shared with the others.
        shared = self.shared_now() if remove and not set(self.manager.sharers()) - {self.unit} else {}
        reasons += [f"{path} is there, and no service is" for path in shared]
        result = self.result(status, reasons)
        result["changed"] = bool(reasons)
        result["diff"] = [self.diff(before, None if remove else before)]
        result["diff"] += [diff_of(path, text, None) for path, text in shared.items()]
        if not reasons or self.module.check_mode:
            self.module.exit_json(**result)
        if status.state != ABSENT:
            self.manager.stop(self.unit, self.params["stop_timeout_s"])
        if remove:
            self.manager.remove(self.unit)
            forget_life(self.root, self.unit)
        if shared:
            self.manager.remove_shared()
        self.module.exit_json(**{**result, **self.observed(self.manager.status(self.unit))})

    # --- checked ---

    def look(self) -> None:
        """Fail with all faults of the description, or exit unchanged."""
        self.fail_on(needed_options(self.params))
        try:
            definition = self.definition()
            self.manager.render(definition)
        except DefinitionError as error:
            self.fail_on(str(error).splitlines())
        self.fail_on(path_faults(self.params) + self.flag_check(definition))
        self.module.exit_json(**{**self.result(self.manager.status(self.unit), []), "changed": False})

    # --- started, restarted ---

    def bring_up(self) -> None:
        """Reach the state started or restarted, wait if asked to, and exit."""
        self.fail_on(needed_options(self.params))
        try:
            plan = self.plan()
        except DefinitionError as error:
            self.fail_on(str(error).splitlines())
        definition, life = plan.definition, plan.life
        result = self.planned(plan)
        if plan.reasons:
            self.check_before_start(definition)
        if self.module.check_mode:
            self.module.exit_json(**result)
        if plan.shared:
            self.manager.write_shared()
            for doubt in self.manager.shared_doubts():
                self.module.warn(doubt)
        if plan.reasons:
            life = self.start(definition, plan.text, plan.status)
            result.update(log_offset=life.log.offset, log_inode=life.log.inode)
        elif life is not None and life.seconds_to_ready is not None:
            self.check_environment(definition, result)
        if self.params["wait"]:
            life = life or Life(digest(plan.text), now(), engine_log.mark(self.log))
            self.wait(definition, life, result, bool(plan.reasons))
        self.module.exit_json(**{**result, **self.observed(self.manager.status(self.unit))})

    def check_before_start(self, definition: ServiceDefinition) -> None:
        """Fail with every reason why the server could not be started, before anything is stopped."""
        missing = path_faults(self.params)
        if self.module.check_mode:
            # What an earlier task of the same play would have made is not there yet.
            for fault in missing:
                self.module.warn(f"{self.params['name']}: {fault}")
            missing = []
        faults = missing + self.flag_check(definition) + self.port_faults()
        if self.params["numa_node"] is not None:
            refusal = numa_binding.trial(self.params["numa_node"])
            if refusal and self.module.check_mode:
                self.module.warn(f"{self.params['name']}: {refusal}")
            elif refusal:
                faults.append(f"numa_node: {refusal}")
        self.fail_on(faults)

    def flag_check(self, definition: ServiceDefinition) -> list[str]:
        """Return the faults of the flags, held against what the parsers of the installed engine and router know."""
        path, python = self.params["flag_table"], self.params["python"]
        if not path:
            return []
        if not os.path.exists(path) and not os.access(python, os.X_OK):
            return []
        if self.module.check_mode and not os.path.exists(path):
            self.module.warn(f"{self.params['name']}: its flags are not checked; the engine has not listed them yet")
            return []
        try:
            table = ensure_table(python, path, definition.environment)
        except FlagTableError as error:
            return [str(error)]
        own = table_for(self.params["role"], table)
        for sentence in deprecations(definition.argv, own, self.params["name"]) if own else []:
            self.module.warn(sentence)
        lines = {self.params["name"]: (self.params["role"], definition.argv)}
        lines.update({peer["name"]: (peer["role"], peer["argv"]) for peer in self.params["peers"]})
        tables = {name: table_for(role, table) for name, (role, _) in lines.items()}
        return [fault for name, known in tables.items() if known for fault in flag_faults(lines[name][1], known, name)]

    def port_faults(self) -> list[str]:
        """Return a sentence for each port that another process holds."""
        ports = ports_of(self.params)
        held = processes.listeners(port.number for port in ports)
        if not held:
            return []
        own = set(self.manager.processes_of(self.unit))
        return [
            f"{port.option}: {listener.describe()}; stop that process or choose another port"
            for port in ports
            for listener in held
            if listener.port == port.number
            and listener.pid not in own
            and processes.overlaps(port.address, listener.address)
        ]

    def start(self, definition: ServiceDefinition, text: str, status: ServiceStatus) -> Life:
        """Stop what runs, write the definition and start; return the new life."""
        forget_life(self.root, self.unit)
        if status.state != ABSENT and (status.pid is not None or status.state in (RUNNING, STARTING)):
            self.manager.stop(self.unit, self.params["stop_timeout_s"])
        for folder in (work_dir(self.root), os.path.dirname(self.log)):
            os.makedirs(folder, mode=0o755, exist_ok=True)
        rotate(self.log)
        self.manager.write(definition)
        life = Life(digest(text), now(), engine_log.mark(self.log))
        self.manager.start(self.unit)
        life = replace(life, launched=now())
        write_life(self.root, self.unit, life)
        return life

    def wait(self, definition: ServiceDefinition, life: Life, result: dict[str, Any], fresh: bool) -> None:
        """Wait until ready and complete the result; fail with the log's error lines otherwise."""
        outcome = self.earlier_death(definition, life, fresh) or await_ready(
            self.manager,
            self.unit,
            Probe(url_of(self.params), ready_paths(self.params["role"])),
            self.params["timeout_s"],
            # One that was ready and has died is given the time that its manager lets pass before it starts it again.
            BETWEEN_LIVES_S + (0 if life.seconds_to_ready is None else definition.restart_delay_s + AGAIN_S),
        )
        if not outcome.ready:
            self.explain(outcome, life, result)
        assert outcome.pid is not None
        tree = processes.process_tree(outcome.pid)
        if self.params["port"] not in processes.listening_ports(tree):
            owner = "; ".join(x.describe() for x in processes.listeners([self.params["port"]])) or "nobody holds it now"
            self.module.fail_json(
                msg=f"{self.params['name']}: {result['url']} answers, but not from this server (PID {outcome.pid}): {owner}",
                **result,
            )
        if life.seconds_to_ready is None:
            life = replace(life, seconds_to_ready=round(now() - life.started, 3))
            write_life(self.root, self.unit, life)
        result["seconds_to_ready"] = life.seconds_to_ready
        self.check_environment(definition, result)
        if self.params["gpus"] and self.params["device"] == CUDA:
            self.check_gpus(tree, result)
        if self.params["numa_node"] is not None:
            result["binding"] = numa_binding.check(tree, self.params["numa_node"])
            if not result["binding"]["ok"]:
                self.module.fail_json(
                    msg=f"{self.params['name']} runs, but is not bound to NUMA {result['binding']['wanted']}: "
                    + "; ".join(result["binding"]["seen"]),
                    **result,
                )

    def check_environment(self, definition: ServiceDefinition, result: dict[str, Any]) -> None:
        """Hold the environment of every live process of the server against its definition; fail when it differs."""
        found = self.live_environment(definition)
        if found is None:
            return
        result["live_environment"] = found
        if found["ok"]:
            return
        lines = "\n".join(f"- {line}" for line in live_environment.sentences(found))
        self.module.fail_json(
            msg=f"{self.params['name']} runs, but its processes do not have the environment that was asked for:\n{lines}\n"
            "What sets such a variable is the engine, or a library in it: remove it from env, or correct its value.",
            **result,
        )

    def check_gpus(self, tree: list[int], result: dict[str, Any]) -> None:
        """Fail when the processes compute on other GPUs than the server's own."""
        result["live_gpus"] = live_gpus.check(tree, self.params["gpus"])
        if result["live_gpus"]["ok"] is False:
            self.module.fail_json(
                msg=f"{self.params['name']} runs, but on other GPUs: {live_gpus.sentence(result['live_gpus'])}. Look for "
                "what renumbers GPUs (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER) in its environment.",
                **result,
            )

    def earlier_death(self, definition: ServiceDefinition, life: Life, fresh: bool) -> Readiness | None:
        """Tell whether the process that this start made has already ended, though another may run by now."""
        if fresh or life.seconds_to_ready is not None:
            return None
        status = self.manager.status(self.unit)
        began = processes.started_since_boot_s(status.pid) if status.pid else None
        if began is None or began <= (life.launched or life.started) + LATER_LIFE_S + definition.least_absence_s:
            return None
        return Readiness(False, True, f"it restarts in a loop; {ending(None, status)}")

    def explain(self, outcome: Readiness, life: Life, result: dict[str, Any]) -> None:
        """Fail, saying why the server is not ready. One that died is stopped: nothing restarts behind one's back."""
        lines = engine_log.error_lines(self.log, life.log, self.params["error_lines"])
        if outcome.died:
            self.manager.stop(self.unit, self.params["stop_timeout_s"])
            msg = f"{self.params['name']} died before it was ready: {outcome.seen}. It is stopped now."
        else:
            msg = (
                f"{self.params['name']} is not ready after {self.params['timeout_s']} s and still runs; "
                f"last seen {outcome.seen}."
            )
        shown = "\n".join(["From " + self.log + ":", *lines]) if lines else f"{self.log} has no line of this start."
        result.update(self.observed(self.manager.status(self.unit)))
        self.module.fail_json(msg=f"{msg}\n{shown}", error_lines=lines, **result)

    # --- what is told ---

    def fail_on(self, faults: list[str]) -> None:
        """Fail with all faults at once, if there are any."""
        if faults:
            listed = "\n".join(f"- {fault}" for fault in faults)
            self.module.fail_json(
                msg=f"server {self.params['name']}: nothing was touched, because:\n{listed}", faults=faults
            )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        server = Server(module)
        if module.params["state"] == "checked":
            server.look()
        elif module.params["state"] in ("stopped", "absent"):
            server.put_down()
        else:
            server.bring_up()
    except processes.ControllerGone:
        sys.exit("the controller is gone; the service is left as it is")
    except ServiceError as error:
        module.fail_json(msg=f"server {module.params['name']}: {error}")
    except OSError as error:
        module.fail_json(
            msg=f"server {module.params['name']}: {error}; is {module.params['root']} writable and not full?"
        )


if __name__ == "__main__":
    main()
