# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge this host's servers by the engine rules with what the host really has; fail before any is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils import collectives, engine_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import one_capability, plain_quantization
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rule_table import RULES
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rules import Verdict
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_engine import cases_of
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction

OPTIONS: dict[str, dict[str, Any]] = {
    "plan": {"type": "dict", "required": True},
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "sglang": {"type": "str", "default": ""},
    "quantization": {"type": "str", "default": ""},
    "architecture": {"type": "str", "default": ""},
}


class ActionModule(RecordedAction):
    """Options: plan, gpus, sglang, quantization, architecture, run_dir, record. Touches no host."""

    _requires_connection = False

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        _spec, options = self.validate_argument_spec(OPTIONS)
        plan, host = options["plan"], str(task_vars["inventory_hostname"])
        if "engine_rules" not in plan or host not in plan.get("hosts", {}):
            raise AnsibleActionFail("`plan` must be the plan that pdlab.pdlab.topology returns, with this host in it")
        return judged(plan, host, options)

    def validate_argument_spec(self, argument_spec: dict[str, Any]) -> Any:
        """As ansible-core's, without the options that RecordedAction takes for itself."""
        kept = {"run_dir": {"type": "str"}, "record": {"type": "str"}}
        return super().validate_argument_spec({**argument_spec, **kept})


def judged(plan: Mapping[str, Any], host: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The task's result for one host. `found`: gpus as box_facts lists them, sglang, quantization, architecture."""
    rules, model = plan["engine_rules"], plan["model"]
    mine = [server for server in plan["servers"] if server["host"] == host]
    by_index = {gpu.get("index"): gpu.get("compute_capability") for gpu in found["gpus"]}
    seen = {server["name"]: one_capability(by_index.get(gpu) for gpu in server["gpus"]) for server in mine}
    architecture = found["architecture"] or model.get("architecture")
    quantization = plain_quantization(found["quantization"] or model.get("quantization"))
    version = found["sglang"] or rules["sglang"].get(host)
    cases = cases_of(
        plan,
        {name: capability or rules["compute_capability"] for name, capability in seen.items()},
        {server["name"]: version if server["host"] == host else None for server in plan["servers"]},
        {"architecture": architecture, "quantization": quantization},
    )
    verdicts, _added = engine_rules.judge(cases, RULES, rules["off"])
    names = [server["name"] for server in mine]
    verdicts = [verdict for verdict in verdicts if verdict.server in names]
    faults = _declarations(plan, seen, found) + [_missing(verdict) for verdict in _holding(verdicts, "correct")]
    faults += [verdict.line() for verdict in _holding(verdicts, "refuse")]
    warnings = [verdict.line() for verdict in _holding(verdicts, "warn")]
    open_rules = sorted({f"{v.rule.id} ({', '.join(v.needs)})" for v in verdicts if v.state == engine_rules.UNDECIDED})
    if open_rules:
        warnings.append(
            f"{host}: engine rules that could not be decided, and what they wait for: {', '.join(open_rules)}; run "
            "preflight before deploy, or declare pd_compute_capability, pd_model.quantization and pd_model.architecture"
        )
    result: dict[str, Any] = {
        "changed": False,
        "host": host,
        "sglang": version,
        "compute_capability": seen,
        "quantization": quantization,
        "architecture": architecture,
        "profile": plan["collectives"]["profile"],
        "environment": {case.name: collectives.explained(case) for case in cases if case.name in names},
        "verdicts": [verdict.as_dict() for verdict in verdicts],
        "warnings": warnings,
    }
    if faults:
        listed = "\n".join(f"- {fault}" for fault in faults)
        result.update(failed=True, faults=faults, msg=f"{host}: nothing was started, because:\n{listed}")
    return result


def _holding(verdicts: list[Verdict], effect: str) -> list[Verdict]:
    return engine_rules.of_effect(verdicts, effect)


def _missing(verdict: Verdict) -> str:
    """A correction that the plan does not have, since the inventory did not say what it hangs on."""
    flags = ", ".join(f"{name}: {value}" for name, value in verdict.rule.flags.items())
    return (
        f"{verdict.server}: {verdict.seen}: {verdict.rule.why}; write `{flags}` into pd_server_args, or declare "
        f"pd_compute_capability, pd_model.quantization and pd_model.architecture (rule {verdict.rule.id})"
    )


def _declarations(plan: Mapping[str, Any], seen: Mapping[str, str | None], found: Mapping[str, Any]) -> list[str]:
    """What the inventory declares and the host does not have."""
    declared = plan["engine_rules"]["compute_capability"]
    faults = [
        f"pd_compute_capability is {declared}, and the GPUs of {name} have {capability}; correct it, or remove it"
        for name, capability in seen.items()
        if declared and capability and capability != declared
    ]
    for key, value in (
        ("quantization", plain_quantization(found["quantization"] or None)),
        ("architecture", found["architecture"]),
    ):
        said = plan["model"].get(key)
        said = plain_quantization(said) if key == "quantization" else said
        if said and value and said != value:
            faults.append(f"pd_model.{key} is {said}, and the checkpoint's is {value}; correct it, or remove it")
    return faults
