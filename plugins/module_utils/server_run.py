# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings one server of a host to its wanted state: looks, refuses, stops, starts, waits. Runs on the target."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    engine_log,
    live_environment,
    live_gpus,
    numa_binding,
    processes,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import CUDA
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flag_table import FlagTableError, ensure_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import deprecations, flag_faults, table_for
from ansible_collections.pdlab.pdlab.plugins.module_utils.log_rotation import rotate
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import needed_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_paths import path_faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import (
    ports_of,
    ready_paths,
    url_of,
    work_dir,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_state import Plan, ServerState, diff_of
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
)

# A process that began this much later than its start was ordered is not the first one of this start.
LATER_LIFE_S = 2.5
# What a service manager may take beyond the delay that it was told.
AGAIN_S = 3.0


class Refused(Exception):
    """A description cannot be carried out; nothing was touched. `faults`: a sentence for each reason."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class ServerFailed(Exception):
    """A server runs and must not be taken for right, or does not run. `result`: what is known of it."""

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class Server(ServerState):
    """One server. `warn` is told what forbids nothing.

    To bring one up: `prepare`, `halt`, `apply`, `wait`; each may raise ServiceError and OSError, and the last ControllerGone.
    """

    def __init__(self, params: dict[str, Any], check_mode: bool, warn: Callable[[str], None]) -> None:
        super().__init__(params)
        self.check_mode = check_mode
        self.warn = warn
        self.plan_made: Plan | None = None
        self.life: Life | None = None
        self.answer: dict[str, Any] = {}

    # --- stopped, absent ---

    def put_down(self) -> dict[str, Any]:
        """Reach the state stopped or absent; return the result."""
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
        if not reasons or self.check_mode:
            return result
        if status.state != ABSENT:
            self.manager.stop(self.unit, self.params["stop_timeout_s"])
        if remove:
            self.manager.remove(self.unit)
            forget_life(self.root, self.unit)
        if shared:
            self.manager.remove_shared()
        return {**result, **self.observed(self.manager.status(self.unit))}

    # --- checked ---

    def look(self) -> dict[str, Any]:
        """Hold the description against this host and its engine; return the result. Raises Refused."""
        refuse(needed_options(self.params))
        try:
            definition = self.definition()
            self.manager.render(definition)
        except DefinitionError as error:
            raise Refused(str(error).splitlines()) from error
        refuse(path_faults(self.params) + self.flag_check(definition))
        return {**self.result(self.manager.status(self.unit), []), "changed": False}

    # --- started, restarted ---

    def prepare(self) -> None:
        """Find out what is to be done, and whether it can be. Touches nothing. Raises Refused with every reason."""
        refuse(needed_options(self.params))
        try:
            plan = self.plan()
        except DefinitionError as error:
            raise Refused(str(error).splitlines()) from error
        self.plan_made, self.life = plan, plan.life
        self.answer = self.planned(plan)
        if plan.reasons:
            refuse(self.start_faults(plan.definition))

    @property
    def prepared(self) -> Plan:
        """What `prepare` found."""
        assert self.plan_made is not None, "prepare() comes first"
        return self.plan_made

    def halt(self) -> None:
        """Stop what runs and has to be started anew."""
        plan = self.prepared
        if plan.reasons:
            forget_life(self.root, self.unit)
            if plan.status.state != ABSENT and (
                plan.status.pid is not None or plan.status.state in (RUNNING, STARTING)
            ):
                self.manager.stop(self.unit, self.params["stop_timeout_s"])

    def apply(self) -> None:
        """Write and start what has to be. Raises ServerFailed where one that stays has another environment."""
        plan = self.prepared
        # Another server of this host may have written what they share since.
        if plan.shared and self.manager.shared_faults():
            self.manager.write_shared()
            for doubt in self.manager.shared_doubts():
                self.warn(doubt)
        if plan.reasons:
            self.life = self.start(plan.definition, plan.text)
            self.answer.update(log_offset=self.life.log.offset, log_inode=self.life.log.inode)
        elif self.life is not None and self.life.seconds_to_ready is not None:
            self.check_environment(plan.definition)

    def told(self) -> dict[str, Any]:
        """Return the result as it is now."""
        return {**self.answer, **self.observed(self.manager.status(self.unit))}

    def start_faults(self, definition: ServiceDefinition) -> list[str]:
        """Return every reason why the server could not be started."""
        missing = path_faults(self.params)
        if self.check_mode:
            # What an earlier task of the same play would have made is not there yet.
            for fault in missing:
                self.warn(f"{self.params['name']}: {fault}")
            missing = []
        faults = missing + self.flag_check(definition) + self.port_faults()
        if self.params["numa_node"] is not None:
            unbound = numa_binding.trial(self.params["numa_node"])
            if unbound and self.check_mode:
                self.warn(f"{self.params['name']}: {unbound}")
            elif unbound:
                faults.append(f"numa_node: {unbound}")
        return faults

    def flag_check(self, definition: ServiceDefinition) -> list[str]:
        """Return the faults of the flags, held against what the parsers of the installed engine and router know."""
        path, python = self.params["flag_table"], self.params["python"]
        if not path:
            return []
        if not os.path.exists(path) and not os.access(python, os.X_OK):
            return []
        if self.check_mode and not os.path.exists(path):
            self.warn(f"{self.params['name']}: its flags are not checked; the engine has not listed them yet")
            return []
        try:
            table = ensure_table(python, path, definition.environment)
        except FlagTableError as error:
            return [str(error)]
        own = table_for(self.params["role"], table)
        for sentence in deprecations(definition.argv, own, self.params["name"]) if own else []:
            self.warn(sentence)
        lines = {self.params["name"]: (self.params["role"], definition.argv)}
        lines.update({peer["name"]: (peer["role"], peer["argv"]) for peer in self.params["peers"]})
        found: list[str] = []
        for name, (role, argv) in lines.items():
            known = table_for(role, table)
            found += flag_faults(argv, known, name) if known else []
        return found

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

    def start(self, definition: ServiceDefinition, text: str) -> Life:
        """Write the definition and start; return the new life."""
        for folder in (work_dir(self.root), os.path.dirname(self.log)):
            os.makedirs(folder, mode=0o755, exist_ok=True)
        rotate(self.log)
        self.manager.write(definition)
        life = Life(digest(text), now(), engine_log.mark(self.log))
        self.manager.start(self.unit)
        life = replace(life, launched=now())
        write_life(self.root, self.unit, life)
        return life

    def wait(self) -> None:
        """Wait until the server is ready and hold the live processes against the description.

        Raises ServerFailed, with the error lines of its log where it died or the time is over, and ControllerGone.
        """
        plan = self.prepared
        life = self.life or Life(digest(plan.text), now(), engine_log.mark(self.log))
        outcome = self.earlier_death(life) or await_ready(
            self.manager,
            self.unit,
            Probe(url_of(self.params), ready_paths(self.params["role"])),
            self.params["timeout_s"],
            # One that was ready and has died is given the time that its manager lets pass before it starts it again.
            BETWEEN_LIVES_S + (0 if life.seconds_to_ready is None else plan.definition.restart_delay_s + AGAIN_S),
        )
        if not outcome.ready:
            self.explain(outcome, life)
        assert outcome.pid is not None
        tree = processes.process_tree(outcome.pid)
        if self.params["port"] not in processes.listening_ports(tree):
            owner = "; ".join(x.describe() for x in processes.listeners([self.params["port"]])) or "nobody holds it now"
            self.fail(f"{self.answer['url']} answers, but not from this server (PID {outcome.pid}): {owner}", ": ")
        if life.seconds_to_ready is None:
            life = replace(life, seconds_to_ready=round(now() - life.started, 3))
            write_life(self.root, self.unit, life)
        self.life = life
        self.answer["seconds_to_ready"] = life.seconds_to_ready
        self.check_environment(plan.definition)
        if self.params["gpus"] and self.params["device"] == CUDA:
            self.check_gpus(tree)
        if self.params["numa_node"] is not None:
            binding = self.answer["binding"] = numa_binding.check(tree, self.params["numa_node"])
            if not binding["ok"]:
                self.fail(f"runs, but is not bound to NUMA {binding['wanted']}: " + "; ".join(binding["seen"]))

    def check_environment(self, definition: ServiceDefinition) -> None:
        """Hold the environment of every live process of the server against its definition. Raises ServerFailed."""
        found = self.live_environment(definition)
        if found is None:
            return
        self.answer["live_environment"] = found
        if found["ok"]:
            return
        lines = "\n".join(f"- {line}" for line in live_environment.sentences(found))
        self.fail(
            f"runs, but its processes do not have the environment that was asked for:\n{lines}\n"
            "What sets such a variable is the engine, or a library in it: remove it from env, or correct its value."
        )

    def check_gpus(self, tree: list[int]) -> None:
        """Raise ServerFailed when the processes compute on other GPUs than the server's own."""
        self.answer["live_gpus"] = live_gpus.check(tree, self.params["gpus"])
        if self.answer["live_gpus"]["ok"] is False:
            self.fail(
                f"runs, but on other GPUs: {live_gpus.sentence(self.answer['live_gpus'])}. Look for "
                "what renumbers GPUs (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER) in its environment."
            )

    def earlier_death(self, life: Life) -> Readiness | None:
        """Tell whether the process that this start made has already ended, though another may run by now."""
        plan = self.prepared
        if plan.reasons or life.seconds_to_ready is not None:
            return None
        status = self.manager.status(self.unit)
        began = processes.started_since_boot_s(status.pid) if status.pid else None
        latest = (life.launched or life.started) + LATER_LIFE_S + plan.definition.least_absence_s
        if began is None or began <= latest:
            return None
        return Readiness(False, True, f"it restarts in a loop; {ending(None, status)}")

    def explain(self, outcome: Readiness, life: Life) -> NoReturn:
        """Say why the server is not ready. One that died is stopped: nothing restarts behind one's back."""
        lines = engine_log.error_lines(self.log, life.log, self.params["error_lines"])
        if outcome.died:
            self.manager.stop(self.unit, self.params["stop_timeout_s"])
            said = f"died before it was ready: {outcome.seen}. It is stopped now."
        else:
            said = f"is not ready after {self.params['timeout_s']} s and still runs; last seen {outcome.seen}."
        shown = "\n".join(["From " + self.log + ":", *lines]) if lines else f"{self.log} has no line of this start."
        self.answer.update(self.observed(self.manager.status(self.unit)))
        self.answer["error_lines"] = lines
        self.fail(f"{said}\n{shown}")

    def fail(self, said: str, between: str = " ") -> NoReturn:
        """Raise ServerFailed with all that is known. `between` stands after the server's name."""
        raise ServerFailed(f"{self.params['name']}{between}{said}", self.answer)


def refuse(faults: list[str]) -> None:
    """Raise Refused if there are faults."""
    if faults:
        raise Refused(faults)


def refusal(faults: list[str], subject: str = "") -> str:
    """Return the message about a refusal. `subject` begins it."""
    listed = "\n".join(f"- {fault}" for fault in faults)
    return f"{subject}nothing was touched, because:\n{listed}"
