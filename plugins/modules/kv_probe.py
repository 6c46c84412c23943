#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: kv_probe
short_description: Prove that NIXL over UCX really moves registered memory on this host
version_added: 0.1.0
description:
  - Starts two processes with a NIXL agent and a UCX backend each, registers memory of the kind that the KV cache will
    have, writes from one to the other and compares the bytes on the target.
  - Between GPUs the path is judged, too. KV memory that takes TCP and host memory leaves every server healthy and every
    request complete, and multiplies the time to the first token; so UCX has to write through C(cuda_ipc), and at no
    less than a tenth of the speed of a plain copy between the same GPUs.
  - With several ranks in a role there are several ways. O(pairs) names the others. Each is tried once the first is good,
    those without a GPU in common at the same time, and judged by the path; a tenth of the speed is enough there, since
    they may share a link.
  - A good result is kept for the engine's fingerprint and this boot, so that a second deployment need not repeat it.
options:
  pythonpath:
    description: Folders that stand in front of the interpreter's own, for an engine that pdlab did not build.
    type: list
    elements: path
    default: []
  memory:
    description: Memory kind, V(dram) for a CPU engine and V(vram) for GPUs.
    type: str
    choices: [dram, vram]
    required: true
  devices:
    description: For V(vram), the two GPUs to write between. The same GPU twice is allowed.
    type: list
    elements: int
    default: []
  pairs:
    description:
      - For V(vram), further pairs of GPUs, from a prefill rank to the decode rank that it writes to. Each gets the same
        O(environments).
    type: list
    elements: list
    default: []
  bytes:
    description: Bytes to move.
    type: int
    default: 67108864
  environments:
    description:
      - Environments of a prefill and of a decode server; the two processes get what decides over the path, variables
        whose names begin with C(UCX_), C(NIXL_) or C(CUDA_).
    type: list
    elements: dict
    default: []
  timeout_s:
    description: Time limit in seconds.
    type: int
    default: 90
attributes:
  check_mode:
    description: Nothing is started in check mode; a kept result is returned.
    support: full
  diff_mode:
    description: A probe changes nothing.
    support: none
extends_documentation_fragment:
  - pdlab.pdlab.kept_probe
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: KV memory moves between two GPUs
  pdlab.pdlab.kv_probe:
    python: /opt/pdlab/engine/bin/python
    memory: vram
    devices: [0, 4]
    pairs: [[1, 5], [2, 6], [3, 7]]
    state_dir: /opt/pdlab/state
"""

RETURN = r"""
ok:
  description: Whether the bytes arrived. Null when nothing was probed in check mode.
  type: bool
  returned: always
gib_s:
  description: GiB per second of the write.
  type: float
  returned: when probed
copy_gib_s:
  description: GiB per second of a plain copy of the same bytes between the same memories.
  type: float
  returned: when probed
transport:
  description: What UCX says it used, when it says so.
  type: str
  returned: when probed
pairs:
  description: One entry for each of O(pairs).
  returned: when O(pairs) were tried
  type: list
  elements: dict
  contains:
    devices: {description: The two GPUs., type: list}
    ok: {description: Whether the bytes arrived over a good path., type: bool}
    gib_s: {description: "GiB per second, beside the other pairs of its round.", type: float}
    copy_gib_s: {description: The same of a plain copy., type: float}
    transport: {description: What UCX says it used., type: str}
    why: {description: "What is wrong, or null.", type: str}
kept:
  description: Whether the result is a kept one of this boot.
  type: bool
  returned: always
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import nixl_probe
from ansible_collections.pdlab.pdlab.plugins.module_utils.carried_script import run_for_document
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import KV, OPTIONS
from ansible_collections.pdlab.pdlab.plugins.module_utils.kv_path import (
    LEAST_SHARE,
    LEAST_SHARE_BESIDE_OTHERS,
    path_fault,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.rank_pairs import rounds

OF_A_PAIR = ("ok", "gib_s", "copy_gib_s", "transport", "why")


def probe(params: dict[str, Any]) -> dict[str, Any]:
    """Try the first way alone, then the others; always returns the first one's document, with `pairs` of the others."""
    document = one_way(params, params["devices"], LEAST_SHARE)
    if not document["ok"] or not params["pairs"]:
        return document
    document["pairs"] = []
    for group in rounds(params["pairs"]):
        with ThreadPoolExecutor(len(group)) as pool:
            found = list(pool.map(lambda pair: one_way(params, pair, LEAST_SHARE_BESIDE_OTHERS), group))
        document["pairs"] += [
            {"devices": list(pair), **{key: one.get(key) for key in OF_A_PAIR}}
            for pair, one in zip(group, found)  # noqa: B905 (strict= needs 3.10)
        ]
    bad = next((pair for pair in document["pairs"] if not pair["ok"]), None)
    if bad:
        source, target = bad["devices"]
        document.update(ok=False, why=f"from GPU {source} to GPU {target}: {bad['why']}")
    return document


def one_way(params: dict[str, Any], devices: Sequence[int], least_share: float) -> dict[str, Any]:
    """Run the probe in the engine's Python between two GPUs, and judge the path; always returns its document."""
    arguments = ["--memory", params["memory"], "--bytes", str(params["bytes"])]
    if devices:
        arguments += ["--devices", ",".join(str(device) for device in devices)]
    for index, environment in enumerate(KV.relevant(params["environments"][:2])):
        arguments += [("--initiator-env", "--target-env")[index], json.dumps(environment)]
    of_engine = dict(params["environments"][0]) if params["environments"] else {}
    if params["pythonpath"]:
        of_engine["PYTHONPATH"] = os.pathsep.join(params["pythonpath"])
    document = run_for_document(params["python"], nixl_probe, arguments, params["timeout_s"], of_engine)
    if not document["ok"]:
        return {**document, "why": f"KV memory does not move over NIXL and UCX on this host: {document['why']}"}
    fault = path_fault(document, least_share)
    return {**document, "ok": fault is None, "why": fault}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **OPTIONS,
            "pythonpath": {"type": "list", "elements": "path", "default": []},
            "memory": {"type": "str", "choices": ["dram", "vram"], "required": True},
            "devices": {"type": "list", "elements": "int", "default": KV.defaults["devices"]},
            "pairs": {"type": "list", "elements": "list", "default": KV.defaults["pairs"]},
            "bytes": {"type": "int", "default": KV.defaults["bytes"]},
            "environments": {"type": "list", "elements": "dict", "default": KV.defaults["environments"]},
            "timeout_s": {"type": "int", "default": 90},
        },
        supports_check_mode=True,
    )
    KV.run(module, probe)


if __name__ == "__main__":
    main()
