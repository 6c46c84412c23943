#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: box_state
short_description: What pdlab has on a host, whatever state it is in
version_added: 0.1.0
description:
  - Reads the engine's environment, its overlay, the model's files and every service of pdlab that belongs to O(root),
    whether an inventory still names it or not.
  - Never fails for what is missing, half made or damaged; it says so. Changes nothing.
options:
  root:
    description: Directory under which pdlab keeps everything on the target.
    type: path
    required: true
  model_path:
    description: Directory of the model.
    type: path
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
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
- name: What is there
  pdlab.pdlab.box_state:
    root: /opt/pdlab
    model_path: /srv/models/DeepSeek-V4-Flash-NVFP4
"""

RETURN = r"""
engine:
  description: >-
    C(state) (absent, incomplete, complete or existing), C(fingerprint), C(python_version), C(packages), the hashes of
    lock, local distributions and overlay, and C(leftovers) of builds that did not end.
  type: dict
  returned: always
overlay:
  description: C(patches) that are applied, and C(faults), a line for each file that is not what they made it.
  type: dict
  returned: always
model:
  description: C(path), C(state) (absent or present), C(fingerprint), C(files) and C(bytes); null without O(model_path).
  type: dict
  returned: always
services:
  description: Each service by name, with C(manager), C(state) and the text of its C(definition).
  type: dict
  returned: always
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import overlay as overlays
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import fingerprint, inventory
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import services_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import engine_dir
from ansible_collections.pdlab.pdlab.plugins.module_utils.venv_state import read_venv

STAMPED = ("fingerprint", "python_version", "lock_sha256", "distributions_sha256", "overlay_sha256", "existing")


def engine_of(state: dict[str, Any], path: str) -> dict[str, Any]:
    """What the engine's environment is."""
    stamp = state["stamp"]
    if "existing" in stamp:
        kind, packages = "existing", stamp.get("packages") or {}
    else:
        packages = state["packages"]
        whole = state["interpreter"] and packages == stamp.get("packages")
        kind = "complete" if stamp and whole else "incomplete" if state["exists"] else "absent"
    beside = [name for name in (path + ".new", path + ".old") if os.path.lexists(name)]
    return {"state": kind, "packages": packages, "leftovers": beside, **{key: stamp.get(key) for key in STAMPED}}


def model_of(path: str | None) -> dict[str, Any] | None:
    """What lies in the model's folder."""
    if not path:
        return None
    if not os.path.isdir(path):
        return {"path": path, "state": "absent", "fingerprint": None, "files": 0, "bytes": 0}
    files = inventory(path)
    return {
        "path": path,
        "state": "present",
        "fingerprint": fingerprint(files),
        "files": len(files),
        "bytes": sum(entry["size"] or 0 for entry in files.values()),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "model_path": {"type": "path"},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    path = engine_dir(root)
    try:
        venv = read_venv(path)
        services = services_of(root)
        model = model_of(module.params["model_path"])
    except OSError as error:
        module.fail_json(
            msg=f"what is below {root} cannot be read: {error}. Run as the user that deployed, or as root."
        )
    module.exit_json(
        changed=False,
        engine=engine_of(venv, path),
        overlay={"patches": overlays.summary(venv["overlay"]), "faults": venv["overlay_faults"]},
        model=model,
        services=services,
    )


if __name__ == "__main__":
    main()
