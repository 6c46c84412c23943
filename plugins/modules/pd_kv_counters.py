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
  - Where each server has one GPU with NVLink, what left the prefill GPUs over it is compared with the engine's count.
    It fails when most of the KV cache went another way; nothing else would show that, since all requests complete.
  - With O(root) the logs of this host's prefill servers are read, too. Where UCX says there which way it writes
    (C(UCX_PROTO_INFO=y) and C(UCX_LOG_LEVEL=info) in the servers' environment), and that is not C(cuda_ipc) between GPUs
    of one host, it fails. This finds what the probe before the deployment cannot see, a C(ucx.conf) that only the
    servers read for example.
  - Never changes anything. In check mode it is skipped.
options:
  workers:
    description:
      - The servers as the plan has them. Used of each are C(name), C(role) and C(url), and for NVLink
        C(host) and C(gpus).
    type: list
    elements: dict
    required: true
  links_before:
    description:
      - The RV(links) of an earlier call. Without it NVLink's counters are only read.
    type: dict
  before:
    description:
      - The RV(after) of an earlier call. Without it the counters are only read, and C(bytes) counts since the
        servers started.
    type: dict
  ask:
    description:
      - Requests to send between two readings of this call, for a model of which nothing else can be asked. O(before)
        means nothing then.
      - C(url) of the router, C(count) of prompts and C(tokens) of each, of random token IDs.
    type: dict
  root:
    description: Directory under which pdlab keeps everything on this host. Without it no log is read.
    type: path
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
    links_before: "{{ pd_counters.links }}"
    root: "{{ pdlab_root }}"
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
links:
  description: Bytes by GPU that NVLink has sent and received, as C(tx) and C(rx); empty where they say nothing.
  returned: always
  type: dict
nvlink:
  description:
    - C(bytes) that left the prefill GPUs over NVLink since O(links_before), their C(share) of RV(bytes), whether both
      counts agree within 5 % (C(agrees)), and C(went_another_way); null where they cannot be compared.
  returned: always
  type: dict
ucx:
  description:
    - By prefill server, how UCX says in its log that it writes GPU memory into another process, such as
      C(zero-copy cuda_ipc/cuda). Servers that say nothing are left out.
  returned: always
  type: dict
why:
  description: What is wrong, or what to know about the numbers; null when there is nothing to say.
  returned: always
  type: str
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    engine_log,
    http_json,
    kv_metrics,
    nvlink_counters,
    ucx_log,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import unit_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_life import read_life
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import log_file

SEED = 7
# Token IDs that every vocabulary has, past the special ones.
PLAIN_IDS = (5, 500)
ANSWER_TIMEOUT_S = 120.0
SETTLE_S = 5.0
METRICS = {
    "bytes": kv_metrics.BYTES_METRIC,
    "requests": kv_metrics.REQUESTS_METRIC,
    "failed": " + ".join(kv_metrics.FAILURE_METRICS),
}


def over_nvlink(compared: nvlink_counters.Comparison, kv_bytes: int) -> str:
    """What the two counts say of each other, as a sentence."""
    said = f"{compared.bytes / 2**20:,.1f} MiB left the prefill GPUs over NVLink, {100 * compared.share:.1f} % of it"
    if not compared.went_another_way:
        return said + "."
    return (
        f"Of {kv_bytes / 2**20:,.1f} MiB of KV cache only {said}: the rest went through the host, and the first token "
        "takes an order of magnitude longer. Remove UCX_TLS and PYTORCH_CUDA_ALLOC_CONF from pd_server_env, and see "
        "what UCX chose in prefill's log (UCX_PROTO_INFO=y, UCX_LOG_LEVEL=info)."
    )


def send(ask: dict[str, Any], timeout_s: float, api_key: str | None) -> list[str]:
    """Send prompts of random token IDs, one after the other; what went wrong, in words."""
    ids = random.Random(SEED)
    for number in range(1, int(ask["count"]) + 1):
        prompt = [ids.randrange(*PLAIN_IDS) for _ in range(int(ask["tokens"]))]
        body = {"input_ids": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": 2, "ignore_eos": True}}
        reply = http_json.post(str(ask["url"]).rstrip("/") + "/generate", body, timeout_s, api_key)
        if not reply.ok:
            return [f"Prompt {number} of {ask['count']}: {reply.describe()}; see the router's log."]
    return []


def settled(workers: list[dict[str, Any]], before: kv_metrics.Snapshot, wanted: int, options: Any) -> None:
    """Wait until prefill has counted every transfer, which may be a moment after the answer."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        now, unread = kv_metrics.read(workers, options["timeout_s"], options["api_key"])
        if unread or kv_metrics.movement(before, now).requests >= wanted:
            return
        time.sleep(0.2)


def ways(workers: list[dict[str, Any]], root: str | None) -> dict[str, list[str]]:
    """What UCX says in the logs of this host's prefill servers, since they were started: {server: ways}."""
    if not root or not ucx_log.applies(workers):
        return {}
    found = {}
    for worker in workers:
        life = read_life(root, unit_of(worker)) if worker["role"] == PREFILL else None
        if life:
            found[worker["name"]] = ucx_log.paths(engine_log.text_since(log_file(root, worker["name"]), life.log))
    return {name: said for name, said in found.items() if said}


def judge(
    before: dict[str, Any] | None,
    after: kv_metrics.Snapshot,
    faults: list[str],
    compare: Callable[[int], nvlink_counters.Comparison | None] = lambda _bytes: None,
    said: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Make the result of what was read; `compare` is given the KV bytes that moved, `said` is what UCX says by server."""
    moved = kv_metrics.movement(before or {}, after)
    why = list(faults)
    if before is not None:
        why += [fault for name, found in (said or {}).items() if (fault := ucx_log.detour(name, found))]
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
    nvlink = compare(moved.bytes) if before is not None else None
    if nvlink and nvlink.went_another_way:
        why.append(over_nvlink(nvlink, moved.bytes))
    ok = not why
    if nvlink and not nvlink.went_another_way:
        why.append(over_nvlink(nvlink, moved.bytes))
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
        "links": {},
        "nvlink": nvlink._asdict() if nvlink else None,
        "ucx": dict(said or {}),
        "why": " ".join(why) or None,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "workers": {"type": "list", "elements": "dict", "required": True},
            "before": {"type": "dict"},
            "links_before": {"type": "dict"},
            "ask": {"type": "dict"},
            "root": {"type": "path"},
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
    before, links_before, unsent = options["before"], options["links_before"], []
    if options["ask"]:
        links_before = nvlink_counters.read(workers)
        before, unread = kv_metrics.read(workers, options["timeout_s"], options["api_key"])
        unsent = unread or send(options["ask"], ANSWER_TIMEOUT_S, options["api_key"])
        if not unsent:
            settled(workers, before, int(options["ask"]["count"]), options)
    after, unread = kv_metrics.read(workers, options["timeout_s"], options["api_key"])
    links = nvlink_counters.read(workers)
    result = judge(
        before,
        after,
        unsent + unread,
        lambda moved: nvlink_counters.compare(workers, links_before, links, moved),
        ways(workers, options["root"]),
    )
    result["links"] = links or {}
    if not result["ok"]:
        module.fail_json(msg=result["why"], **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
