#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: pd_kv_counters
short_description: Read the KV-transfer counters of the workers, and say whether KV cache moved
version_added: 0.1.0
description:
  - Reads C(/metrics) of every worker. With O(before), fails unless bytes moved since then and no transfer failed.
  - "Bytes come from C(sglang:kv_transfer_total_mb) (prefill counts it, a MB is 1024 * 1024 bytes), failures from
    C(sglang:num_transfer_failed_reqs_total) and C(sglang:num_bootstrap_failed_reqs_total) of all workers."
  - With tensor parallelism the engine reports for the first rank of each group only, unless it was started with
    C(--enable-metrics-for-all-schedulers).
  - Never changes anything. In check mode it is skipped.
options:
  workers:
    description:
      - The servers as the plan has them. Used of each are C(name), C(role) and C(url).
    type: list
    elements: dict
    required: true
  before:
    description:
      - The RV(after) of an earlier call. Without it the counters are only read, and C(bytes) counts since the
        servers started.
    type: dict
  timeout_s:
    description: Time limit of one request, in seconds.
    type: float
    default: 10
  api_key:
    description: Key that the servers ask for, when they do.
    type: str
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
author:
  - the pdlab authors
attributes:
  check_mode:
    description: Skipped in check mode.
    support: none
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: Counters before the questions
  pdlab.pdlab.pd_kv_counters:
    workers: "{{ pd_plan.servers }}"
  register: pd_counters

- name: The KV cache moved
  pdlab.pdlab.pd_kv_counters:
    workers: "{{ pd_plan.servers }}"
    before: "{{ pd_counters.after }}"
    run_dir: "{{ pdlab_run_dir }}"
"""

RETURN = r"""
ok:
  description:
    - Whether bytes moved and nothing failed; without O(before), whether the counters could be read.
  returned: always
  type: bool
applicable:
  description: False when no worker has the role prefill, so that there is no KV transfer.
  returned: always
  type: bool
bytes:
  description: KV bytes sent since O(before).
  returned: always
  type: int
requests:
  description: Transfers completed since O(before).
  returned: always
  type: int
failed_requests:
  description: Requests whose bootstrap or transfer failed since O(before). In the run folder it is called C(failed).
  returned: always
  type: int
metrics:
  description: The metric each number comes from.
  returned: always
  type: dict
before:
  description: The counters of each worker then; empty when there was no O(before).
  returned: always
  type: dict
after:
  description: The counters of each worker now.
  returned: always
  type: dict
why:
  description: What is wrong, or what to know about the numbers; null when there is nothing to say.
  returned: always
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import kv_metrics
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import DECODE, PREFILL

METRICS = {
    "bytes": kv_metrics.BYTES_METRIC,
    "requests": kv_metrics.REQUESTS_METRIC,
    "failed": " + ".join(kv_metrics.FAILURE_METRICS),
}


def judge(before: dict[str, Any] | None, after: kv_metrics.Snapshot, faults: list[str]) -> dict[str, Any]:
    """Make the result of what was read."""
    moved = kv_metrics.movement(before or {}, after)
    why = list(faults)
    if before is not None:
        if moved.failed:
            why.append(
                f"{moved.failed} KV transfers failed; look for KVTransferError in the logs of prefill and decode."
            )
        if moved.bytes <= 0 and not faults:
            why.append(
                "No KV cache moved: the requests did not go through prefill and decode. Check the router's workers "
                "and the disaggregation mode of each server."
            )
    ok = not why
    if moved.restarted and before is not None:
        why.append(f"Restarted since the first reading, so counted from 0: {', '.join(moved.restarted)}.")
    return {
        "ok": ok,
        "applicable": True,
        "bytes": moved.bytes,
        "requests": moved.requests,
        "failed_requests": moved.failed,
        "metrics": METRICS,
        "before": before or {},
        "after": after,
        "why": " ".join(why) or None,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "workers": {"type": "list", "elements": "dict", "required": True},
            "before": {"type": "dict"},
            "timeout_s": {"type": "float", "default": 10.0},
            "api_key": {"type": "str", "no_log": True},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        supports_check_mode=True,
    )
    options = module.params
    faults = [
        f"workers[{index}]: {key} missing; give the servers as the plan has them"
        for index, worker in enumerate(options["workers"])
        for key in ("name", "role", "url")
        if not worker.get(key)
    ]
    if faults:
        module.fail_json(msg="\n".join(faults), ok=False, why="\n".join(faults))
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Not read in check mode.")
    workers = [worker for worker in options["workers"] if worker["role"] in (PREFILL, DECODE)]
    if not any(worker["role"] == PREFILL for worker in workers):
        result = judge(None, {}, [])
        result.update(applicable=False, why="Not applicable: no server has the role prefill.")
        module.exit_json(changed=False, **result)
    after, unread = kv_metrics.read(workers, options["timeout_s"], options["api_key"])
    result = judge(options["before"], after, unread)
    if not result["ok"]:
        module.fail_json(msg=result["why"], **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
