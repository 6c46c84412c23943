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
  - A good result is kept for the engine's fingerprint and this boot, so that a second deployment need not repeat it.
options:
  python:
    description: The engine's interpreter.
    type: path
    required: true
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
  bytes:
    description: Bytes to move.
    type: int
    default: 67108864
  fingerprint:
    description: Fingerprint of the engine's environment.
    type: str
  state_dir:
    description: Directory on the target that keeps the last good result.
    type: path
    required: true
  timeout_s:
    description: Time limit in seconds.
    type: int
    default: 90
  force:
    description: Probe even when a good result of this boot is kept.
    type: bool
    default: false
  seen:
    description: What M(pdlab.pdlab.box_facts) read in this run as C(kept.kv_probe). A good result in it is not asked for again.
    type: dict
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  check_mode:
    description: Nothing is started in check mode; a kept result is returned.
    support: full
  diff_mode:
    description: A probe changes nothing.
    support: none
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: KV memory moves between two GPUs
  pdlab.pdlab.kv_probe:
    python: /opt/pdlab/engine/bin/python
    memory: vram
    devices: [0, 4]
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
transport:
  description: What UCX says it used, when it says so.
  type: str
  returned: when probed
kept:
  description: Whether the result is a kept one of this boot.
  type: bool
  returned: always
"""

import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import kv_probe_result, nixl_probe
from ansible_collections.pdlab.pdlab.plugins.module_utils.carried_script import command
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched, with_pythonpath
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json


def probe(params: dict[str, Any]) -> dict[str, Any]:
    """Run the probe in the engine's Python; always returns its document."""
    arguments = ["--memory", params["memory"], "--bytes", str(params["bytes"])]
    if params["devices"]:
        arguments += ["--devices", ",".join(str(device) for device in params["devices"])]
    done = run_watched(
        command(params["python"], nixl_probe, *arguments),
        timeout_s=params["timeout_s"],
        env=with_pythonpath(params["pythonpath"]),
    )
    for line in reversed((done.stdout or "").strip().splitlines()):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and "ok" in document:
            return document
    tail = "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-10:])
    return {"ok": False, "why": f"the probe ended with exit status {done.rc} and no result: {tail}"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "pythonpath": {"type": "list", "elements": "path", "default": []},
            "memory": {"type": "str", "choices": ["dram", "vram"], "required": True},
            "devices": {"type": "list", "elements": "int", "default": kv_probe_result.DEFAULTS["devices"]},
            "bytes": {"type": "int", "default": kv_probe_result.DEFAULTS["bytes"]},
            "fingerprint": {"type": "str"},
            "state_dir": {"type": "path", "required": True},
            "timeout_s": {"type": "int", "default": 90},
            "force": {"type": "bool", "default": False},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
            "seen": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    params = module.params
    path = kv_probe_result.result_path(params["state_dir"])
    kept = kv_probe_result.read_kept(params["state_dir"])
    result = None if params["force"] else kv_probe_result.kept_result(kept, params)
    if result is not None:
        module.exit_json(changed=False, kept=True, **result)
    if module.check_mode:
        module.exit_json(changed=False, kept=False, ok=None, msg="nothing is probed in check mode")
    result = probe(params)
    if not result["ok"]:
        module.fail_json(
            msg=f"KV memory does not move over NIXL and UCX on this host: {result.get('why')}", kept=False, **result
        )
    try:
        os.makedirs(params["state_dir"], exist_ok=True)
        write_json(path, {"key": kv_probe_result.key_of(params, kept["boot"]), "result": result})
    except OSError as error:
        module.fail_json(msg=f"{path} cannot be written: {error}. Free space or make {params['state_dir']} writable.")
    module.exit_json(changed=False, kept=False, **result)


if __name__ == "__main__":
    main()
