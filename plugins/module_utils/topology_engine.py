# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tables of collectives and engine rules make of an inventory: variables and flags added, faults, verdicts.

The one hook of both tables in the topology. It decides by what the inventory declares; what it cannot decide, the
action plug-in engine_rules decides with what the target shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import collectives, engine_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils import topology_rules as rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import (
    Case,
    plain_quantization,
    with_peers,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rule_table import RULES
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults, suggestion

Draft = dict[str, Any]


def equip(
    drafts: Sequence[Draft],
    given: Mapping[str, Any],
    device: str | None,
    hosts: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, str | None],
    faults: Faults,
) -> dict[str, Any]:
    """Add to the drafts what the tables set, note what they refuse; return the plan's `collectives` and `engine_rules`.

    `hosts`: the plan's hosts with their addresses. `versions`: sglang's version by host, None where it is unknown.
    Drafts that are not whole (no role, no host) are left out: their own faults are noted already.
    """
    profile = collectives.profile_of(given.get("pd_collectives"), device)
    whole = [draft for draft in drafts if draft.get("role") and draft.get("host") and device]
    fleet = len({draft["host"] for draft in whole}) > 1
    pairs = [(draft, _case(draft, given, str(device), hosts, versions, profile, fleet)) for draft in whole]
    for draft, case in pairs:
        draft["env"] = {**collectives.settings(case), **draft["env"]}
    off = _switched_off(given, faults)
    verdicts, added = engine_rules.judge(with_peers([case for _draft, case in pairs]), RULES, off)
    for draft, case in pairs:
        draft["args"] = {**added.get(case.name, {}), **draft["args"]}
    by_name = {case.name: draft for draft, case in pairs}
    for verdict in engine_rules.of_effect(verdicts, engine_rules.REFUSE):
        _refuse(verdict, by_name[verdict.server], given, faults)
    return {
        "collectives": {
            "profile": profile,
            "declared": given.get("pd_collectives") is not None,
            "offers": [offer for _draft, case in pairs for offer in collectives.offers(case)],
        },
        "engine_rules": {
            "sglang": {host: versions.get(host) for host in dict.fromkeys(draft["host"] for draft in whole)},
            "compute_capability": given.get("pd_compute_capability"),
            "off": off,
            "verdicts": [verdict.as_dict() for verdict in verdicts],
        },
    }


def cases_of(
    plan: Mapping[str, Any],
    capabilities: Mapping[str, str | None],
    versions: Mapping[str, str | None],
    model: Mapping[str, Any],
) -> list[Case]:
    """The plan's servers as cases, with what the targets show: compute capability and sglang's version by server."""
    declared = plan["model"]
    quantization = plain_quantization(model.get("quantization") or declared.get("quantization"))
    architecture = model.get("architecture") or declared.get("architecture")
    fleet = len({server["host"] for server in plan["servers"]}) > 1
    return with_peers(
        [
            Case(
                name=server["name"],
                role=server["role"],
                device=server["device"],
                address=server["address"],
                tp=server["tp"],
                numa_node=server["numa_node"],
                args=server["args"],
                env=server["env"],
                fleet=fleet,
                profile=plan["collectives"]["profile"],
                version=versions.get(server["name"]),
                capability=capabilities.get(server["name"]),
                quantization=quantization,
                architecture=architecture,
            )
            for server in plan["servers"]
        ]
    )


def _case(
    draft: Mapping[str, Any],
    given: Mapping[str, Any],
    device: str,
    hosts: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, str | None],
    profile: str,
    fleet: bool,
) -> Case:
    model = given.get("pd_model", {})
    return Case(
        name=rules.label_of(draft),
        role=draft["role"],
        device=device,
        address=hosts.get(draft["host"], {}).get("address"),
        tp=draft.get("tp") or rules.default_tp(draft),
        numa_node=draft["numa_node"] if isinstance(draft.get("numa_node"), int) else None,
        args=draft["args"],
        env=draft["env"],
        fleet=fleet,
        profile=profile,
        version=versions.get(draft["host"]),
        capability=given.get("pd_compute_capability"),
        quantization=plain_quantization(model.get("quantization")),
        architecture=model.get("architecture"),
    )


def _switched_off(given: Mapping[str, Any], faults: Faults) -> list[str]:
    known = [rule.id for rule in RULES]
    off = [str(name) for name in given.get("pd_engine_rules_off") or [] if name is not None]
    for index, name in enumerate(off):
        if name not in known:
            faults.add(f"pd_engine_rules_off[{index}]", f"there is no engine rule {name!r}", suggestion(name, known))
    return [name for name in off if name in known]


def _refuse(verdict: engine_rules.Verdict, draft: Draft, given: Mapping[str, Any], faults: Faults) -> None:
    """Note a refusal where the inventory wrote what caused it: at the server, or in what holds for all servers."""
    kind, name = verdict.rule.place
    own = (given["pd_servers"][draft["index"]] or {}).get(kind) or {}
    common = given.get("pd_server_args" if kind == "args" else "pd_server_env") or {}
    if name and name in common and name not in own:
        key = f"pd_server_{kind}.{name}"
    else:
        key = f"{rules.key_of(draft)}.{kind}" + (f".{name}" if name else "")
    faults.add(key, f"{verdict.seen}: {verdict.rule.why}", f"{verdict.rule.cure} (rule {verdict.rule.id})")
