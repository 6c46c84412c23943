# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a box, judge it, keep both; fail when something forbids a deployment."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules as rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import COLLECTIVES, KV
from ansible_collections.pdlab.pdlab.plugins.module_utils.probe_options import probe_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import engine_dir
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.host_hold import when_gone
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.payloads import put_together
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction

LOOK = "pdlab.pdlab.box_facts"
PROBES = {"kv": KV, "collectives": COLLECTIVES}


class ActionModule(RecordedAction):
    """Options: plan, holder, run_dir, record, timeout_s, ahead. Returns facts and verdicts, and what of it later tasks use.

    Changes nothing but the hold on the host, which it takes for `holder` in the same step. Where GPUs are idle and the engine is there, KV memory and collectives are tried on them.
    """

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
        asked = {**rules.facts_options(plan, host, [python] if python else []), **limit}
        holder, began = arguments.get("holder"), time.time()
        with put_together(self, LOOK, arguments.get("ahead") or [], task_vars):
            looked = when_gone(
                lambda gone: self._execute_module(
                    module_name=LOOK,
                    module_args={**asked, **({"hold": {"holder": holder, **gone}} if holder else {})},
                    task_vars=task_vars,
                )
            )
        if looked.get("failed") or "facts" not in looked:
            return dict(looked)
        looked["facts"]["probes"] = self._tried(looked["facts"], plan, host, task_vars)
        judged = rules.judged(looked["facts"], plan, host)
        forbidding, doubtful = rules.vetoes(judged["verdicts"]), rules.warnings(judged["verdicts"])
        result: dict[str, Any] = {
            "changed": False,
            **judged,
            "lock": looked.get("lock"),
            "standing": {"at": began, "servers": looked["servers"]},
            "warnings": [f"{host}: {rules.line(verdict)}" for verdict in doubtful],
        }
        if forbidding:
            count = "1 veto" if len(forbidding) == 1 else f"{len(forbidding)} vetoes"
            lines = [f"{host} cannot be deployed to ({count}):", *(rules.line(verdict) for verdict in forbidding)]
            result.update(failed=True, msg="\n".join(lines))
        return result

    def document(self, result: dict[str, Any]) -> dict[str, Any]:
        # What a server is like has a record of its own, and who holds the host is nobody's result.
        kept = super().document(result)
        return {key: value for key, value in kept.items() if key not in ("lock", "standing")}

    def keeps(self, result: dict[str, Any]) -> bool:
        # A host that is another run's, or cannot be reached, was not judged.
        return "verdicts" in result

    def _tried(
        self, facts: dict[str, Any], plan: dict[str, Any], host: str, task_vars: dict[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """What the probes say of this host; a kept result of this boot is taken, and nothing is started in check mode."""
        kept = facts.get("kept") or {}
        engine = (kept.get("environments") or {}).get(engine_dir(plan["hosts"][host]["root"])) or {}
        fingerprint = engine.get("stamp", {}).get("fingerprint")
        obstacle = _obstacle(facts, plan, host)
        tried = {}
        for name, options in probe_options(plan, host).items():
            if options is None or plan["device"] != "cuda":
                continue
            options = {**options, "fingerprint": fingerprint}
            probe = PROBES[name]
            result = probe.result(kept[probe.name], options) if kept.get(probe.name) else None
            if result is None and obstacle is None and not self._task.check_mode:
                result = self._execute_module(
                    module_name=f"pdlab.pdlab.{probe.name}", module_args=options, task_vars=task_vars
                )
                result = self.document(result)
                result.setdefault("ok", False)
                result.setdefault("why", result.get("msg"))
            tried[name] = result or {"ok": None, "why": obstacle or "not tried in check mode"}
        return tried


def _obstacle(facts: dict[str, Any], plan: dict[str, Any], host: str) -> str | None:
    """Why nothing can be tried now, or None."""
    if not facts.get("engine"):
        return "not tried yet, the engine is not installed"
    missing = [name for name in ("torch", "nixl") if not facts["engine"].get(name)]
    if missing:
        return f"not tried, the engine has no {' and no '.join(missing)}"
    if not facts["gpu"]["gpus"]:
        return "not tried, there is no GPU"
    used = {gpu for server in plan["servers"] if server["host"] == host for gpu in server["gpus"]}
    busy = [gpu for gpu in facts["gpu"]["gpus"] if gpu["index"] in used and gpu["processes"]]
    return "not tried, servers run on these GPUs" if busy else None
