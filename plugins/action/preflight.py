# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a box, judge it, keep both; fail when something forbids a deployment."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules as rules
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction


class ActionModule(RecordedAction):
    """Options: plan, run_dir, record, timeout_s. Returns facts and verdicts; never changes anything."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        self.record = f"preflight-{(task_vars or {}).get('inventory_hostname')}"
        result: dict[str, Any] = super().run(tmp, task_vars)
        return result

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        plan, host = arguments.get("plan"), str(task_vars["inventory_hostname"])
        if not isinstance(plan, dict) or host not in plan.get("hosts", {}):
            raise AnsibleActionFail("`plan` must be the plan that pdlab.pdlab.topology returns, with this host in it")
        engine = task_vars.get("pd_engine")
        python = self._templar.template(engine).get("python") if isinstance(engine, dict) else None
        limit = {"timeout_s": arguments["timeout_s"]} if arguments.get("timeout_s") is not None else {}
        looked = self._execute_module(
            module_name="pdlab.pdlab.box_facts",
            module_args={**rules.facts_options(plan, host, [python] if python else []), **limit},
            task_vars=task_vars,
        )
        if looked.get("failed") or "facts" not in looked:
            return dict(looked)
        judged = rules.judged(looked["facts"], plan, host)
        forbidding, doubtful = rules.vetoes(judged["verdicts"]), rules.warnings(judged["verdicts"])
        result: dict[str, Any] = {
            "changed": False,
            **judged,
            "warnings": [f"{host}: {rules.line(verdict)}" for verdict in doubtful],
        }
        if forbidding:
            count = "1 veto" if len(forbidding) == 1 else f"{len(forbidding)} vetoes"
            lines = [f"{host} cannot be deployed to ({count}):", *(rules.line(verdict) for verdict in forbidding)]
            result.update(failed=True, msg="\n".join(lines))
        return result
