# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at a box, judge it, keep both; fail when something forbids a deployment."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils import preflight_rules as rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import place
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction

# Two sockets of which each is four nodes (AMD's NPS4).
MOST_NODES = 8


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
        looked = self._execute_module(
            module_name="pdlab.pdlab.box_facts",
            module_args=facts_arguments(plan, host, [python] if python else [], arguments.get("timeout_s")),
            task_vars=task_vars,
        )
        if looked.get("failed") or "facts" not in looked:
            return dict(looked)
        plan = place(plan, {host: looked["facts"]})
        verdicts = rules.judge(looked["facts"], plan, host)
        forbidding, doubtful = rules.vetoes(verdicts), rules.warnings(verdicts)
        result: dict[str, Any] = {
            "changed": False,
            "host": host,
            "facts": looked["facts"],
            "verdicts": verdicts,
            "veto": bool(forbidding),
            "warnings": [f"{host}: {rules.line(verdict)}" for verdict in doubtful],
        }
        if forbidding:
            count = "1 veto" if len(forbidding) == 1 else f"{len(forbidding)} vetoes"
            lines = [f"{host} cannot be deployed to ({count}):", *(rules.line(verdict) for verdict in forbidding)]
            result.update(failed=True, msg="\n".join(lines))
        return result


def facts_arguments(plan: dict[str, Any], host: str, pythons: list[str], timeout_s: float | None) -> dict[str, Any]:
    """What box_facts is asked about one host of a plan."""
    servers = [server for server in plan["servers"] if server["host"] == host]
    local_model = plan["model"]["source"] == "local" and bool(servers)
    return {
        "ports": sorted(rules.wanted_ports(plan, host)),
        "paths": rules.wanted_paths(plan, host),
        "root": plan["hosts"][host]["root"],
        "numa_nodes": sorted({0, *_nodes(servers)}),
        "pythons": pythons,
        "engine": plan["hosts"][host]["engine_python"],
        "checkpoint": servers[0]["model_path"] if local_model else None,
        **({"timeout_s": timeout_s} if timeout_s is not None else {}),
    }


def _nodes(servers: list[dict[str, Any]]) -> set[int]:
    """The NUMA nodes whose binding is to be tried: all that there may be while a server waits for its GPUs' own."""
    if any(server["numa_pending"] for server in servers):
        return set(range(MOST_NODES))
    return {server["numa_node"] for server in servers if server["numa_node"] is not None}
