#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: engine_flag_table
short_description: The flags that the installed engine knows, kept for as long as the engine is the same
version_added: 0.1.0
description:
  - Asks the installed SGLang's own argument parser for every flag it knows, with types and choices, and keeps the
    table on the target under the engine's fingerprint. M(pdlab.pdlab.pd_server) checks command lines against it
    before it stops anything.
options:
  python:
    description: The engine's interpreter.
    type: path
    required: true
  fingerprint:
    description: Fingerprint of the engine's environment, as returned by M(pdlab.pdlab.locked_venv).
    type: str
  state_dir:
    description: Directory that keeps the table.
    type: path
    required: true
  timeout_s:
    description: Time limit in seconds. Importing the engine takes a while on a small machine.
    type: int
    default: 300
attributes:
  check_mode:
    description: Reports whether a table would be made and touches nothing.
    support: full
  diff_mode:
    description: There is nothing to show but the table's path.
    support: none
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: The engine's flags are known
  pdlab.pdlab.engine_flag_table:
    python: /opt/pdlab/engine/bin/python
    fingerprint: "{{ engine.fingerprint }}"
    state_dir: /opt/pdlab/state
"""

RETURN = r"""
flag_table:
  description: Path of the table on the target.
  type: str
  returned: always
version:
  description: The engine's version.
  type: str
  returned: when the table exists
flags:
  description: Number of flags in the table.
  type: int
  returned: when the table exists
"""

import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import flag_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.carried_script import command
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched


def read_table(path: str) -> dict[str, Any] | None:
    """The table at `path`, or None when there is none or it is damaged."""
    try:
        with open(path, encoding="utf-8") as stream:
            table = json.load(stream)
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) and table.get("flags") else None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "fingerprint": {"type": "str"},
            "state_dir": {"type": "path", "required": True},
            "timeout_s": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    params = module.params
    path = os.path.join(params["state_dir"], f"flags-{params['fingerprint'] or 'unknown'}.json")
    table = read_table(path)
    changed = table is None
    if table is None and not module.check_mode:
        fresh = path + ".new"
        try:
            os.makedirs(params["state_dir"], exist_ok=True)
            done = run_watched(command(params["python"], flag_table, fresh), timeout_s=params["timeout_s"])
        except OSError as error:
            module.fail_json(msg=f"the engine's flags cannot be listed: {error}. Deploy the engine first.")
        table = read_table(fresh)
        if table is None:
            tail = "\n".join(line[:300] for line in (done.stderr or done.stdout or "").strip().splitlines()[-15:])
            module.fail_json(
                msg=f"the engine at {params['python']} cannot list its flags (exit status {done.rc}): {tail}\n"
                f"What to do: if {params['state_dir']} is writable and not full, run `pdlab rebuild`; if it stays, the "
                "lock does not make a working engine."
            )
        os.replace(fresh, path)
    known = table or {}
    module.exit_json(changed=changed, flag_table=path, version=known.get("version"), flags=len(known.get("flags", [])))


if __name__ == "__main__":
    main()
