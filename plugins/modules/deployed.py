#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: deployed
short_description: Which engine and which model are on this host
version_added: 0.1.0
description:
  - Reads the fingerprints of the engine's environment and of the model's files, as the deployment left them.
options:
  root:
    description: Directory under which pdlab keeps everything on the target.
    type: path
    required: true
  model_path:
    description: Directory of the model.
    type: path
    required: true
attributes:
  check_mode:
    description: Changes nothing anyway.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Which engine and which model
  pdlab.pdlab.deployed:
    root: /opt/pdlab
    model_path: /srv/models/DeepSeek-V4-Flash-NVFP4
"""

RETURN = r"""
engine_fingerprint:
  description: Hash over the engine's lock, local distributions and Python version.
  type: str
  returned: always
model_fingerprint:
  description: Hash over the model's files.
  type: str
  returned: always
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import (
    fingerprint,
    inventory,
    remembered,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import VENV_STAMP, engine_dir


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "model_path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    stamp = os.path.join(engine_dir(module.params["root"]), VENV_STAMP)
    try:
        with open(stamp, encoding="utf-8") as stream:
            engine = json.load(stream)["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        module.fail_json(msg=f"no engine is deployed here ({stamp}: {error}). Run `pdlab deploy` first.")
    model_path = module.params["model_path"]
    if not os.path.isdir(model_path):
        module.fail_json(msg=f"no model is deployed here ({model_path} does not exist). Run `pdlab deploy` first.")
    files = inventory(model_path, remembered(module.params["root"], model_path)["files"])
    module.exit_json(changed=False, engine_fingerprint=engine, model_fingerprint=fingerprint(files))


if __name__ == "__main__":
    main()
