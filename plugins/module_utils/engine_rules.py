# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges servers by the table of engine_rule_table.py: what an engine of this version does with this model and chip.

Pure. A rule holds, does not hold, or cannot be decided because a fact is unknown; then it says which facts it waits
for. `pdlab plan` decides by what the inventory declares, the role collectives by what the target has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import Case, version_within, with_peers
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import ENGINE_ROLES

# What a rule does: says that a combination is known to be right; warns; adds flags that the inventory leaves open;
# refuses. None changes what the inventory has written.
ALLOW, WARN, CORRECT, REFUSE = "allow", "warn", "correct", "refuse"
ANY_DEVICE = "any"
# What became of it.
HOLDS, UNDECIDED, SWITCHED_OFF = "holds", "undecided", "off"

CAPABILITY, QUANTIZATION, ARCHITECTURE, VERSION = "compute capability", "quantization", "architecture", "engine version"


@dataclass(frozen=True)
class Rule:
    """A row. `when` says in words what `applies` decides; `seen` says what of the server made it hold.

    It concerns servers of `roles` on `device` (ANY_DEVICE: on either), sglang from `since` on and older than `before`, compute capabilities
    that begin with one of `chips`, and checkpoints of `quantizations` and `architectures`; an empty tuple is any.
    `place` is where the inventory wrote it, as ("args" or "env", name). `flags` are what a correction adds.
    `applies` returns None when it needs a fact that is unknown, which `needs` then names.
    """

    id: str
    effect: str
    when: str
    applies: Callable[[Case], bool | None]
    seen: Callable[[Case], str]
    why: str
    source: str
    cure: str = ""
    place: tuple[str, str] = ("args", "")
    roles: tuple[str, ...] = ENGINE_ROLES
    device: str = "cuda"
    since: str | None = None
    before: str | None = None
    chips: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What one rule says of one server. `needs` names the unknown facts of an undecided one."""

    server: str
    rule: Rule
    state: str
    seen: str
    needs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As the plan and the records hold it."""
        rule = self.rule
        return {
            "server": self.server,
            "rule": rule.id,
            "effect": rule.effect,
            "state": self.state,
            "seen": self.seen,
            "why": rule.why,
            "cure": rule.cure or None,
            "source": rule.source,
            "flags": dict(rule.flags) if self.state == HOLDS else {},
            "needs": list(self.needs),
        }

    def line(self) -> str:
        """One line for a person."""
        parts = [f"{self.server}: {self.seen}: {self.rule.why}", self.rule.cure, f"(rule {self.rule.id})"]
        return " ".join(part for part in [parts[0] + (";" if parts[1] else ""), *parts[1:]] if part)


def decide(rule: Rule, case: Case) -> tuple[bool | None, tuple[str, ...]]:
    """Tell whether a rule holds for a server: (True, ()), (False, ()), or (None, the facts that are missing)."""
    if case.role not in rule.roles or rule.device not in (case.device, ANY_DEVICE):
        return False, ()
    answers = {
        VERSION: version_within(case.version, rule.since, rule.before),
        CAPABILITY: _begins_with(case.capability, rule.chips),
        QUANTIZATION: _one_of(case.quantization, rule.quantizations),
        ARCHITECTURE: _one_of(case.architecture, rule.architectures),
    }
    own = rule.applies(case)
    if own is False or any(answer is False for answer in answers.values()):
        return False, ()
    missing = [name for name, answer in answers.items() if answer is None]
    if own is None:
        missing += [name for name in rule.needs if name not in missing]
    return (None, tuple(missing)) if missing else (True, ())


def judge(
    cases: Sequence[Case], table: Sequence[Rule], off: Iterable[str] = ()
) -> tuple[list[Verdict], dict[str, dict[str, Any]]]:
    """Judge servers that run together. Returns the verdicts, and by server the flags that corrections add.

    Corrections come first, so that the other rules see the flags that will be given. `off` names rules that the
    inventory has switched off: each still says what it would have done.
    """
    switched_off = set(off)
    verdicts: list[Verdict] = []
    added: dict[str, dict[str, Any]] = {}
    corrected = []
    for case in cases:
        for rule in table:
            if rule.effect != CORRECT:
                continue
            verdict = _verdict(rule, case, switched_off)
            if verdict is None:
                continue
            verdicts.append(verdict)
            if verdict.state == HOLDS:
                added.setdefault(case.name, {}).update(rule.flags)
                case = replace(case, args={**case.args, **rule.flags})
        corrected.append(case)
    for case in with_peers(corrected):
        found = [_verdict(rule, case, switched_off) for rule in table if rule.effect != CORRECT]
        verdicts += [verdict for verdict in found if verdict is not None]
    return verdicts, added


def of_effect(verdicts: Iterable[Verdict], effect: str) -> list[Verdict]:
    """The verdicts of one effect that hold."""
    return [verdict for verdict in verdicts if verdict.state == HOLDS and verdict.rule.effect == effect]


def _verdict(rule: Rule, case: Case, off: set[str]) -> Verdict | None:
    holds, missing = decide(rule, case)
    if holds is False:
        return None
    state = SWITCHED_OFF if rule.id in off else HOLDS if holds else UNDECIDED
    return Verdict(case.name, rule, state, rule.seen(case), missing)


def _begins_with(value: str | None, beginnings: tuple[str, ...]) -> bool | None:
    if not beginnings:
        return True
    return None if value is None else value.startswith(beginnings)


def _one_of(value: str | None, known: tuple[str, ...]) -> bool | None:
    if not known:
        return True
    return None if value is None else value in known
