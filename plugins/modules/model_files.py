#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: model_files
short_description: A model directory that is whole, and known by a fingerprint
version_added: 0.1.0
description:
  - With O(source=local) checks that a checkpoint is complete (config, tokenizer, every shard that the index names, no
    truncated shard) and changes nothing.
  - With O(source=canary) makes the small rehearsal model on the spot, unless the one that is there is intact and was
    made by the same maker.
options:
  source:
    description: Where the model comes from.
    type: str
    choices: [local, canary]
    required: true
  path:
    description: Directory of the model.
    type: path
    required: true
  python:
    description: The engine's interpreter, which makes the canary.
    type: path
  maker:
    description: Fingerprint of what makes the canary; a canary of another maker is made again.
    type: str
    default: ""
  timeout_s:
    description: Time limit in seconds for making the canary.
    type: int
    default: 300
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  check_mode:
    description: Says whether the canary would be made and touches nothing.
    support: full
  diff_mode:
    description: Shows the manifest's fingerprint before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: The checkpoint is whole
  pdlab.pdlab.model_files:
    source: local
    path: /srv/models/DeepSeek-V4-Flash-NVFP4

- name: The canary is there
  pdlab.pdlab.model_files:
    source: canary
    path: /opt/pdlab/models/canary
    python: /opt/pdlab/engine/bin/python
"""

RETURN = r"""
path:
  description: Directory of the model.
  type: str
  returned: always
fingerprint:
  description: Hash over the names, sizes and (for small files) contents of the model's files.
  type: str
  returned: when the model exists
files:
  description: Number of files.
  type: int
  returned: when the model exists
bytes:
  description: Size of all files together.
  type: int
  returned: when the model exists
reason:
  description: Why the canary was, or would be, made.
  type: str
  returned: when changed
"""

import json
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.checkpoint import checkpoint_faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import MANIFEST, fingerprint, inventory
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json


def read_manifest(path: str) -> dict[str, Any]:
    """What the canary consisted of when it was made; empty when there is none."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as stream:
            manifest = json.load(stream)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def reason_to_make(path: str, maker: str) -> str | None:
    """Why the canary must be made, or None when the one that is there is intact."""
    if not os.path.isdir(path) or not os.listdir(path):
        return "it does not exist"
    manifest = read_manifest(path)
    if not manifest:
        return "it has no manifest: it was never completed"
    if manifest.get("maker") != maker:
        return "its maker changed"
    return "a file changed" if manifest.get("files") != inventory(path) else None


def make_canary(module: AnsibleModule) -> None:
    """Run the maker in the engine's Python, then write the manifest."""
    params = module.params
    path = params["path"]
    if not params["python"]:
        module.fail_json(msg="python: the canary is made in the engine's Python; name its interpreter")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    done = run_watched(
        [params["python"], "-m", "pdlab_rehearsal.canary", path],
        timeout_s=params["timeout_s"],
    )
    if done.rc != 0:
        tail = "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-15:])
        how = f"not within {params['timeout_s']} s" if done.timed_out else f"exit status {done.rc}"
        module.fail_json(msg=f"the canary model could not be made ({how}): {tail}")
    write_json(os.path.join(path, MANIFEST), {"maker": params["maker"], "files": inventory(path)})


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "choices": ["local", "canary"], "required": True},
            "path": {"type": "path", "required": True},
            "python": {"type": "path"},
            "maker": {"type": "str", "default": ""},
            "timeout_s": {"type": "int", "default": 300},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    path = params["path"]
    result: dict[str, Any] = {"path": path, "source": params["source"], "changed": False}
    if params["source"] == "canary":
        reason = reason_to_make(path, params["maker"])
        if reason is not None:
            before = fingerprint(inventory(path)) if os.path.isdir(path) else None
            result.update(changed=True, reason=reason)
            if not module.check_mode:
                started = time.monotonic()
                make_canary(module)
                result["seconds"] = round(time.monotonic() - started, 2)
            after = "the same maker's canary" if module.check_mode else fingerprint(inventory(path))
            result["diff"] = {"before": f"fingerprint: {before}\n", "after": f"fingerprint: {after}\n"}
    if module.check_mode and not os.path.isdir(path) and params["source"] == "canary":
        module.exit_json(**result)
    faults = checkpoint_faults(path)
    if faults and not (module.check_mode and result["changed"]):
        module.fail_json(msg=f"the model at {path} is not whole:\n" + "\n".join(faults), faults=faults, **result)
    files = inventory(path)
    module.exit_json(
        **result,
        fingerprint=fingerprint(files),
        files=len(files),
        bytes=sum(entry["size"] for entry in files.values()),
    )


if __name__ == "__main__":
    main()
