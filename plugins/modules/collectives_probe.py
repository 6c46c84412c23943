#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: collectives_probe
short_description: Time an all-reduce among the GPUs of this host, and find out when one hangs
version_added: 0.1.0
description:
  - Starts a process for each GPU and times an all-reduce among the first 2, 3, 4, 8 … and all of them, in the engine's Python,
    with torch and NCCL as the engine has them and in the servers' environment.
  - An IOMMU that translates, or ACS that redirects, lets a collective hang for ever at full load and without an error.
    Here that is a failure after O(timeout_s), and the processes are ended.
  - A good result is kept for the engine's fingerprint and this boot, so that a second deployment need not repeat it.
options:
  backend:
    description: Backend of torch.distributed, V(nccl) for GPUs and V(gloo) for a CPU engine.
    type: str
    choices: [nccl, gloo]
    default: nccl
  devices:
    description: The GPUs, in the order in which groups of ranks are made of them.
    type: list
    elements: int
    required: true
  ranks:
    description: Numbers of ranks. When left out, 2, 3, 4, each doubling, and as many as there are O(devices).
    type: list
    elements: int
    default: []
  environment:
    description:
      - Environment of a server. The ranks get what decides over collectives, variables whose names begin with C(NCCL_),
        C(TORCH_NCCL_), C(GLOO_) or C(CUDA_).
    type: dict
    default: {}
  timeout_s:
    description: Time limit for each group of ranks, in seconds.
    type: int
    default: 60
attributes:
  check_mode:
    description: Nothing is started in check mode; a kept result is returned.
    support: full
  diff_mode:
    description: A probe changes nothing.
    support: none
seealso:
  - module: pdlab.pdlab.kv_probe
extends_documentation_fragment:
  - pdlab.pdlab.kept_probe
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Collectives work among eight GPUs
  pdlab.pdlab.collectives_probe:
    python: /opt/pdlab/engine/bin/python
    devices: [0, 1, 2, 3, 4, 5, 6, 7]
    state_dir: /opt/pdlab/state
"""

RETURN = r"""
ok:
  description: Whether every group of ranks reduced rightly and in time. Null when nothing was probed in check mode.
  type: bool
  returned: always
groups:
  description: One entry for each number of ranks.
  returned: when probed
  type: list
  elements: dict
  contains:
    ranks: {description: Number of ranks., type: int}
    devices: {description: Their GPUs., type: list}
    ok: {description: Whether it worked., type: bool}
    latency_us: {description: Microseconds of one all-reduce of 8 KiB., type: float}
    bus_gib_s: {description: "Of 64 MiB, GiB per second times 2(n-1)/n.", type: float}
    why: {description: "What is wrong, or null.", type: str}
library_version:
  description: Version of NCCL.
  returned: when probed
  type: str
kept:
  description: Whether the result is a kept one of this boot.
  type: bool
  returned: always
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import allreduce_probe
from ansible_collections.pdlab.pdlab.plugins.module_utils.carried_script import run_for_document
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import COLLECTIVES, OPTIONS
from ansible_collections.pdlab.pdlab.plugins.module_utils.probe_options import rank_counts


def probe(params: dict[str, Any]) -> dict[str, Any]:
    """Run the probe in the engine's Python; always returns its document."""
    count = len(params["devices"])
    ranks = sorted({number for number in params["ranks"] or rank_counts(count) if number <= count})
    arguments = ["--backend", params["backend"], "--ranks", ",".join(map(str, ranks))]
    arguments += ["--devices", ",".join(map(str, params["devices"])), "--timeout-s", str(params["timeout_s"])]
    limit_s = (params["timeout_s"] + 5) * len(ranks)
    arguments += ["--env", json.dumps(COLLECTIVES.relevant(params["environment"]))]
    document = run_for_document(params["python"], allreduce_probe, arguments, limit_s, params["environment"])
    if not document["ok"]:
        document["why"] = f"collectives do not work on this host: {document['why']}"
    return document


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "backend": {"type": "str", "choices": ["nccl", "gloo"], "default": "nccl"},
            "devices": {"type": "list", "elements": "int", "required": True},
            "ranks": {"type": "list", "elements": "int", "default": []},
            "environment": {"type": "dict", "default": {}},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    if len(set(module.params["devices"])) < max(2, len(module.params["devices"])):
        module.fail_json(msg=f"devices: {module.params['devices']}; collectives need two GPUs or more, each named once")
    COLLECTIVES.run(module, probe)


if __name__ == "__main__":
    main()
