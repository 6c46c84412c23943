# SPDX-License-Identifier: GPL-3.0-or-later
"""Arms: topologies of the same GPUs that are measured against each other, declared beside each other in pd_arms.

An arm overrides a few of the inventory's variables; everything else is the same for all. Once an arm is asked for,
what would make a comparison unfair is a fault unless an arm says in `differs` that it is meant: other GPUs, another flag
of the engine, another variable of the environment. A plain deployment compares nothing. Pure: no I/O.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import shapes
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault, Faults, in_file_order, suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID, Check

ARMS = "pd_arms"
ARM = "pd_arm"
DIFFERS = "differs"
# What an arm may say differently. Model, engine, host, questions and sweep are what makes arms comparable.
OVERRIDES = ("pd_servers", "pd_router", "pd_server_args", "pd_server_env", "pd_oracle", "pd_engine_rules_off")
GPUS = "gpus"
_NONE = "not set"
# Flags that are the topology itself (sglang 0.5.23, server_args.py), beside those called disaggregation-*.
TOPOLOGY_FLAGS = (
    "dp-size",
    "data-parallel-size",
    "enable-dp-attention",
    "enable-dp-lm-head",
    "load-balance-method",
    "pp-size",
    "pipeline-parallel-size",
    "ep-size",
    "expert-parallel-size",
    "num-reserved-decode-tokens",
    "optimistic-prefill-attempts",
    "enable-pd-role-switch",
)
# What of a plan is measured, and not what it is asked.
_COMPARED = ("device", "model", "hosts", "servers", "router")
_OF_A_SERVER = ("name", "role", "host", "gpus", "port", "nccl_port", "bootstrap_port")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}\Z")

Plan = dict[str, Any]
# From variables and their origins to (plan, []) or (None, faults).
Resolver = Callable[[Mapping[str, Any], Mapping[str, str]], "tuple[Plan | None, list[Fault]]"]


def arms() -> Check:
    """{name: {variable: value, "differs": [names]}}; the variables themselves are checked with the rest of each arm."""
    names = shapes.list_of(shapes.text("chunked-prefill-size"), empty=True, what="flags, variables or `gpus`")

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping) or not value:
            cure = "write for example `pd: {}` and `colocated: {pd_servers: [...]}` below it"
            faults.add(
                key, "is empty" if isinstance(value, Mapping) else f"is {shapes.kind(value)}, not a mapping", cure
            )
            return INVALID
        kept: dict[str, Any] = {}
        for name, arm in value.items():
            where = f"{key}.{name}"
            if not isinstance(name, str) or not _NAME.match(name):
                cure = "use up to 32 lower-case letters, digits, '-' and '.', beginning with a letter or digit"
                faults.add(where, f"{name!r} cannot name an arm", cure)
                continue
            if arm is not None and not isinstance(arm, Mapping):
                faults.add(where, f"is {shapes.kind(arm)}, not a mapping", "write {} for the inventory as declared")
                continue
            kept[name] = _arm(arm or {}, where, names, faults)
        return kept

    return check


def _arm(arm: Mapping[str, Any], where: str, names: Check, faults: Faults) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for variable, value in arm.items():
        if variable == DIFFERS:
            differs = [] if value is None else names(faults, f"{where}.{DIFFERS}", value)
            kept[DIFFERS] = [] if differs is INVALID else [name for name in differs if name is not None]
        elif variable in OVERRIDES:
            kept[variable] = value
        elif str(variable).startswith("pd_"):
            cure = f"an arm may set {', '.join(OVERRIDES)}"
            faults.add(f"{where}.{variable}", "is the same for all arms, or they could not be compared", cure)
        else:
            faults.add(f"{where}.{variable}", "is an unknown key", suggestion(variable, (*OVERRIDES, DIFFERS)))
    return kept


def resolve_arms(
    variables: Mapping[str, Any], origins: Mapping[str, str] | None, resolve: Resolver
) -> tuple[Plan | None, list[Fault]]:
    """The plan of the arm that `pd_arm` names, or of the inventory as declared; every arm's faults in one list.

    `resolve` makes the plan of one arm's variables. The plan gets "arm", the picked arm's name (without pd_arm: that
    of the arm without any override, or null), and "arms", what each arm runs: see `summary`.
    """
    origins = origins or {}
    declared = {name: value for name, value in variables.items() if name not in (ARMS, ARM)}
    plan, found = resolve(declared, origins)
    faults = Faults(origins)
    checked = arms()(faults, ARMS, variables[ARMS]) if variables.get(ARMS) is not None else {}
    chosen = {} if checked is INVALID else checked
    plans: dict[str, Plan] = {}
    written: dict[str, Mapping[str, Any]] = {}
    for name, arm in chosen.items():
        overrides = {variable: value for variable, value in arm.items() if variable != DIFFERS}
        written[name] = {**declared, **overrides}
        own, wrong = resolve(written[name], _origins_of(name, origins)) if overrides else (plan, [])
        for fault in wrong:
            _note(fault, name, overrides, found, faults)
        if own is not None:
            plans[name] = own
    if len(plans) == len(chosen):
        settings = {name: {**_flags(plans[name]), **_environment(written[name])} for name in plans}
        if variables.get(ARM) is not None:
            _compare(plans, settings, {name: arm.get(DIFFERS, []) for name, arm in chosen.items()}, faults)
        _same_places(plans, faults)
    picked = _picked(variables.get(ARM), chosen, plans, checked is not INVALID, faults)
    wrong = [*found, *faults]
    if wrong or plan is None:
        return None, in_file_order(wrong)
    summaries = [summary(name, plans[name], arm.get(DIFFERS, [])) for name, arm in chosen.items()]
    return {**(plans[picked] if picked else plan), "arm": picked, "arms": summaries}, []


def summary(name: str, plan: Plan, differs: Sequence[str]) -> dict[str, Any]:
    """What one arm runs: {"name", "servers": [{"name", "role", "host", "gpus", and its ports}], "router": host or None,
    "differs", "fingerprint": of all that decides how fast it is}."""
    router = plan["router"]
    return {
        "name": name,
        "servers": [{key: server[key] for key in _OF_A_SERVER} for server in plan["servers"]],
        "router": router["host"] if router else None,
        "differs": list(differs),
        "fingerprint": fingerprint({key: plan[key] for key in _COMPARED}),
    }


def fingerprint(document: Any) -> str:
    """16 hexadecimal digits that change with any value of a document."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def others_on(plan: Mapping[str, Any], host: str) -> list[str]:
    """Services of other arms on a host that the plan's own arm does not have, the router first."""
    mine = {server["name"] for server in plan["servers"]}
    router = "router" if not plan["router"] and any(arm["router"] == host for arm in plan["arms"]) else None
    servers = [server["name"] for arm in plan["arms"] for server in arm["servers"] if server["host"] == host]
    return list(dict.fromkeys([*([router] if router else []), *(name for name in servers if name not in mine)]))


def _origins_of(arm: str, origins: Mapping[str, str]) -> dict[str, str]:
    """Where an arm's variables were written: its own lines under the variables' usual paths."""
    prefix = f"{ARMS}.{arm}."
    own = {path[len(prefix) :]: line for path, line in origins.items() if path.startswith(prefix)}
    overridden = {_variable(path) for path in own}
    return {**{path: line for path, line in origins.items() if _variable(path) not in overridden}, **own}


def _variable(path: str) -> str:
    """The variable's name of a key path."""
    return re.split(r"[.\[ ]", path, maxsplit=1)[0]


def _note(fault: Fault, arm: str, overrides: Mapping[str, Any], known: Sequence[Fault], faults: Faults) -> None:
    """An arm's fault, at the arm's own key; what the inventory as declared has, too, is not said again."""
    if fault in known:
        return
    if _variable(fault.key) in overrides:
        faults.add(f"{ARMS}.{arm}.{fault.key}", fault.problem, fault.cure, fault.origin)
    else:
        faults.add(f"{fault.key} in arm {arm}", fault.problem, fault.cure, fault.origin)


def _picked(
    written: Any, chosen: Mapping[str, Any], plans: Mapping[str, Any], sound: bool, faults: Faults
) -> str | None:
    """The arm to deploy. Notes a `pd_arm` that names none."""
    if written is None:
        return next((name for name in plans if not set(chosen[name]) - {DIFFERS}), None)
    if not isinstance(written, str):
        faults.add(ARM, f"is {shapes.kind(written)}, not an arm's name", suggestion(str(written), chosen))
    elif written not in chosen:
        if sound and not chosen:
            faults.add(ARM, f"is {written!r}, and the inventory has no pd_arms", "declare the arms in pd_arms")
        elif sound:
            faults.add(ARM, f"there is no arm {written!r}", suggestion(written, chosen))
    else:
        return written if written in plans else None
    return None


def _compare(
    plans: Mapping[str, Plan],
    settings: Mapping[str, Mapping[str, set[str]]],
    differs: Mapping[str, Sequence[str]],
    faults: Faults,
) -> None:
    """Note what sets an arm apart from the first one without being declared."""
    names = list(plans)
    for name in names[1:]:
        declared = {*differs[names[0]], *differs[name]}
        _same_gpus(names[0], plans[names[0]], name, plans[name], declared, faults)
        for setting, here, there in _unlike(settings[names[0]], settings[name]):
            if setting not in declared:
                problem = (
                    f"{setting} is {there} and {here} in {names[0]}: what is measured would not be the topology alone"
                )
                cure = f"write the same for both, or `{DIFFERS}: [{setting}]` to say that it is meant"
                faults.add(f"{ARMS}.{name}", problem, cure)


def _same_gpus(a: str, first: Plan, b: str, other: Plan, declared: set[str], faults: Faults) -> None:
    here, there = _gpus(first), _gpus(other)
    if here != there and GPUS not in declared:
        problem = f"uses {_gpu_words(there)}, and {a} uses {_gpu_words(here)}"
        cure = f"use the same GPUs, or write `{DIFFERS}: [{GPUS}]` to say that it is meant"
        faults.add(f"{ARMS}.{b}", problem, cure)


def _gpus(plan: Plan) -> set[tuple[str, int]]:
    return {(server["host"], gpu) for server in plan["servers"] for gpu in server["gpus"]}


def _gpu_words(gpus: set[tuple[str, int]]) -> str:
    hosts = sorted({host for host, _gpu in gpus})
    parts = [f"{', '.join(str(gpu) for name, gpu in sorted(gpus) if name == host)} of {host}" for host in hosts]
    return "GPU " + " and ".join(parts) if parts else "no GPU"


def _same_places(plans: Mapping[str, Plan], faults: Faults) -> None:
    """A server that keeps its name keeps its GPUs: otherwise it would start on one that another arm's still holds."""
    seen: dict[tuple[str, str], tuple[str, list[int]]] = {}
    for arm, plan in plans.items():
        for server in plan["servers"]:
            before = seen.setdefault((server["host"], server["name"]), (arm, server["gpus"]))
            if before[1] != server["gpus"]:
                problem = f"{server['name']} has GPU {_list(server['gpus'])} here and {_list(before[1])} in {before[0]}"
                faults.add(f"{ARMS}.{arm}.pd_servers", problem, "give it another name in one of them")


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _unlike(first: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> list[tuple[str, str, str]]:
    """(flag or variable, its values in the first arm, in the other) for each setting that is not the same in both."""
    pairs = [(name, first.get(name, {_NONE}), other.get(name, {_NONE})) for name in sorted(first.keys() | other.keys())]
    return [(name, _words(a), _words(b)) for name, a, b in pairs if a != b and not _of_topology(name)]


def _flags(plan: Plan) -> dict[str, set[str]]:
    """{--flag: the values that the arm's servers have}, those that an engine rule added, too."""
    return _values([server["args"] for server in plan["servers"]])


def _environment(variables: Mapping[str, Any]) -> dict[str, set[str]]:
    """{variable: its values} as the inventory writes them: what pdlab derives goes by the topology."""
    common = variables.get("pd_server_env") or {}
    return _values([{**common, **(server.get("env") or {})} for server in variables["pd_servers"]])


def _values(servers: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The values of each name over the servers; a server that lacks it counts as a value."""
    names = {name for one in servers for name, value in one.items() if _is_set(value)}
    return {
        name: {json.dumps(one[name], sort_keys=True) if _is_set(one.get(name)) else _NONE for one in servers}
        for name in names
    }


def _is_set(value: Any) -> bool:
    return value is not None and value is not False


def _of_topology(name: str) -> bool:
    return name.startswith("disaggregation-") or name in TOPOLOGY_FLAGS


def _words(values: set[str]) -> str:
    return " or ".join(sorted(values))
