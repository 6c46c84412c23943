# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolve the inventory's pd_* variables into the plan, or fail with all their faults. Controller only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.vars.hostvars import HostVarsVars
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import locked_version
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault, Faults, in_file_order
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import pending, place
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import part_of, resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars, split
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import KNOWN, PER_HOST
from ansible_collections.pdlab.pdlab.plugins.module_utils.workload_points import with_more, with_seeds

try:  # Where a value was written: private to ansible-core, so its absence only costs the line numbers.
    from ansible._internal._datatag._tags import Origin
except ImportError:  # pragma: no cover
    Origin = None

GROUP = "pdlab"
PREFIX = "pd_"
COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Where the playbooks keep what was seen of a box: preflight's result, or an earlier one of this action.
SEEN_IN = (("pdlab_box", "facts"), ("pdlab_topology", "box"))
LOCKS = os.path.join(COLLECTION, "roles", "engine", "files", "locks")
LOCK_NAMES = ("cpu", "cuda13")
WORKLOADS = os.path.join(COLLECTION, "roles", "benchmark", "vars", "workloads.yml")


class ActionModule(ActionBase):
    """Options: workloads, look, seed_offset, more_points. Returns `plan` and `me`, what of it concerns this host.

    With `look` the box is asked where its GPUs lie, when the inventory leaves that to it and nobody has asked before;
    its facts are then returned as `box`. The inventory has been found right by then.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _spec, options = self.validate_argument_spec(
            {
                "workloads": {"type": "path", "default": WORKLOADS},
                "look": {"type": "bool", "default": False},
                "seed_offset": {"type": "int", "default": 0},
                "more_points": {"type": "list", "elements": "dict", "default": []},
            }
        )
        task_vars = task_vars or {}
        names = list(task_vars.get("groups", {}).get(GROUP, []))
        me = str(task_vars.get("inventory_hostname"))
        if me not in names:
            raise AnsibleActionFail(
                f"the host {me} is not in the inventory's group {GROUP}: "
                f"put it there, and let the play run on `hosts: {GROUP}`"
            )
        variables, hosts, origins, faults = self._read(names, task_vars["hostvars"])
        shared, differing = split(variables, origins)
        plan, found = resolve(
            shared,
            hosts,
            _presets(options["workloads"]),
            _first_origins(origins),
            {name: locked_engine(variables[name]) for name in names},
        )
        # A variable that cannot be read is missing, too: only the first reason helps.
        unread = {fault.key for fault in faults}
        faults += differing + [fault for fault in found if fault.key.split(" of ")[0] not in unread]
        if plan is None or faults:
            return {**result, **_refused(faults)}
        benchmark = with_seeds(plan["benchmark"], options["seed_offset"])
        plan["benchmark"] = with_more(benchmark, plain(options["more_points"]))
        if options["look"] and pending(plan, me):
            boxes = _seen(names, task_vars["hostvars"])
            if me not in boxes:
                looked = self._execute_module(module_name="pdlab.pdlab.box_facts", module_args={}, task_vars=task_vars)
                if looked.get("failed") or "facts" not in looked:
                    return {**result, **looked}
                boxes[me] = looked["facts"]
            placed = Faults(_first_origins(origins))
            plan = place(plan, boxes, placed)
            if len(placed):
                return {**result, **_refused(list(placed))}
            result["box"] = {key: boxes[me][key] for key in ("gpu", "numa")}
        return {**result, "changed": False, "plan": plan, "me": part_of(plan, me)}

    def _read(
        self, names: list[str], hostvars: Any
    ) -> tuple[dict[str, dict[str, Any]], list[HostVars], dict[str, dict[str, str]], list[Fault]]:
        """Every host's pd_* variables as plain values, their origins, and a fault for each that cannot be read."""
        variables: dict[str, dict[str, Any]] = {}
        origins: dict[str, dict[str, str]] = {}
        hosts: list[HostVars] = []
        faults: dict[Fault, None] = {}
        for name in names:
            raw = hostvars.raw_get(name)
            templated = HostVarsVars(raw, loader=self._loader, host=name)
            made_by_tasks = _made_by_tasks(hostvars, name)
            wanted = [key for key in raw if key.startswith(PREFIX) and (key in KNOWN or key not in made_by_tasks)]
            origins[name] = {path: line for key in wanted for path, line in _origins(str(key), key, raw[key])}
            variables[name] = {}
            for key in wanted:
                try:
                    variables[name][str(key)] = plain(templated[key])
                except AnsibleError as error:
                    problem = f"cannot be read: {' '.join(str(error).split())}"
                    fault = Fault(str(key), problem, "correct the expression", origins[name].get(str(key)))
                    faults[fault] = None
            local = _text(templated, "ansible_connection") == "local"
            hosts.append(
                HostVars(
                    name=name,
                    local=local,
                    ansible_host=_text(templated, "ansible_host"),
                    home=os.path.expanduser("~") if local else None,
                    variables={key: value for key, value in variables[name].items() if key in PER_HOST},
                    origins=origins[name],
                )
            )
        return variables, hosts, origins, list(faults)


def _refused(faults: list[Fault]) -> dict[str, Any]:
    """The failure that lists all faults of an inventory."""
    faults = in_file_order(faults)
    lines = [str(fault) for fault in faults]
    count = "1 fault" if len(lines) == 1 else f"{len(lines)} faults"
    message = "\n".join([f"the inventory has {count}:", *lines])
    return {"failed": True, "msg": message, "faults": [fault.as_dict() for fault in faults]}


def _seen(names: list[str], hostvars: Any) -> dict[str, Any]:
    """What has been seen of each host in this run: {host: facts}."""
    found: dict[str, Any] = {}
    for name in names:
        for variable, key in SEEN_IN:
            facts = (hostvars.raw_get(name).get(variable) or {}).get(key)
            if isinstance(facts, Mapping) and {"gpu", "numa"} <= set(facts):
                found.setdefault(name, plain(facts))
    return found


def locked_engine(variables: Mapping[str, Any]) -> str | None:
    """The version of sglang that a host's lock pins, or that is declared of an existing engine; None where unknown."""
    written = variables.get("pd_engine")
    engine = written if isinstance(written, Mapping) else {}
    existing = engine.get("existing")
    if existing is not None:
        declared = existing.get("sglang") if isinstance(existing, Mapping) else None
        return declared if isinstance(declared, str) else None
    lock = str(engine.get("lock") or ("cpu" if variables.get("pd_device") == "cpu" else "cuda13"))
    path = os.path.join(LOCKS, f"{lock}.txt") if lock in LOCK_NAMES else os.path.expanduser(lock)
    try:
        with open(path, encoding="utf-8") as stream:
            return locked_version(stream.read())
    except (OSError, UnicodeDecodeError):
        return None


def plain(value: Any) -> Any:
    """A value of the inventory without Ansible's own types: what JSON knows, and text for all else."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {plain(key) if isinstance(key, str) else str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value)


def _text(variables: Any, name: str) -> str | None:
    try:
        return str(variables[name]) if name in variables and variables[name] is not None else None
    except AnsibleError:
        return None


def _made_by_tasks(hostvars: Any, host: str) -> Any:
    """Names that `register` and `set_fact` made: they are no part of the inventory."""
    manager = getattr(hostvars, "_variable_manager", None)
    return (getattr(manager, "_nonpersistent_fact_cache", None) or {}).get(host, {})


def _origins(path: str, key: Any, value: Any) -> Iterator[tuple[str, str]]:
    """Each key path below a raw (not yet templated) variable, with `file:line` where ansible-core knows it."""
    origin = _origin(key) or _origin(value)
    if origin:
        yield path, origin
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _origins(f"{path}.{name}", name, entry)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _origins(f"{path}[{index}]", None, entry)


def _origin(value: Any) -> str | None:
    tag = Origin.get_tag(value) if Origin is not None else None
    if tag is None:
        return None
    if not tag.path:
        return str(tag.description) if tag.description else None
    path, here = str(tag.path), os.getcwd() + os.sep
    path = path[len(here) :] if path.startswith(here) else path
    return f"{path}:{tag.line_num}" if tag.line_num else path


def _first_origins(origins: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Origins for variables that hold for all hosts: those of the first host that has each."""
    merged: dict[str, str] = {}
    for mine in origins.values():
        merged = {**mine, **merged}
    return merged


def _presets(path: str) -> dict[str, Any]:
    """The workloads of a YAML file: {name: {...}}, alone or below one variable's name."""
    try:
        with open(path, encoding="utf-8") as stream:
            loaded = yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, yaml.YAMLError) as error:
        raise AnsibleActionFail(f"the workloads cannot be read: {error}; name their file with `workloads`") from error
    if not isinstance(loaded, dict):
        raise AnsibleActionFail(f"{path} holds no workloads: write `name: {{points: [...]}}` entries")
    only = next(iter(loaded.values())) if len(loaded) == 1 else None
    return only if isinstance(only, dict) and "points" not in only else loaded
