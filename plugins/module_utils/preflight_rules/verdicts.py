# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of all rules, and verdicts from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import place
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules import (
    disk,
    engine,
    gpu,
    host,
    links,
    memory,
    model,
    numa,
    ports,
    probes,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import VETO, WARN, Rule, View, text_of

# A concern each, in the order in which verdicts are listed.
GROUPS: dict[str, tuple[Rule, ...]] = {
    "The engine": engine.RULES,
    "Disk": disk.RULES,
    "Model": model.RULES,
    "Ports": ports.RULES,
    "GPUs": gpu.RULES,
    "Links between GPUs": links.RULES,
    "What was tried": probes.RULES,
    "NUMA": numa.RULES,
    "Memory and limits": memory.RULES,
    "The host": host.RULES,
}
RULES: tuple[Rule, ...] = tuple(rule for rules in GROUPS.values() for rule in rules)


def judge(facts: Mapping[str, Any], plan: Mapping[str, Any], host_name: str) -> list[dict[str, Any]]:
    """The verdicts on one host, in the table's order: {"id", "severity", "ok", "seen", "wanted", "why", "cure"}.

    Rules that do not concern this host are left out. `cure` is None when all is well. What is unknown is not ok, and
    its `seen` begins with "unknown: ".
    """
    view = View(facts, plan, host_name)
    return [_verdict(rule, view) for rule in RULES if rule.applies(view)]


def judged(facts: Mapping[str, Any], plan: Mapping[str, Any], host_name: str) -> dict[str, Any]:
    """What preflight keeps of one host: {"host", "facts", "verdicts", "veto"}.

    Servers whose NUMA node is left to the box are placed first; where that fails, a rule says why.
    """
    found = judge(facts, place(plan, {host_name: facts}), host_name)
    return {"host": host_name, "facts": facts, "verdicts": found, "veto": bool(vetoes(found))}


def vetoes(verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The verdicts that forbid a deployment."""
    return [verdict for verdict in verdicts if verdict["severity"] == VETO and not verdict["ok"]]


def warnings(verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The verdicts that should be read before a deployment."""
    return [verdict for verdict in verdicts if verdict["severity"] == WARN and not verdict["ok"]]


def line(verdict: Mapping[str, Any]) -> str:
    """A verdict that is not well, on one line."""
    return f"{verdict['id']}: {verdict['seen']}; wanted: {verdict['wanted']}; {verdict['cure']}"


def _verdict(rule: Rule, view: View) -> dict[str, Any]:
    ok, seen = rule.check(view)
    return {
        "id": rule.id,
        "severity": rule.severity_when_unknown if ok is None else rule.severity,
        "ok": bool(ok),
        "seen": "unknown: " + seen if ok is None else seen,
        "wanted": text_of(rule.wanted, view),
        "why": rule.why,
        "cure": None if ok else text_of(rule.cure, view),
    }
