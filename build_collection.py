# SPDX-License-Identifier: Apache-2.0
"""Build hook: the wheel carries the Ansible collection and the inventories beside the Python package.

ansible-core finds `ansible_collections` anywhere on sys.path, so nothing has to be configured after
`pip install`. An editable install must not get a copy: it would hide later edits of the checkout.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COLLECTION = "ansible_collections/pdlab/pdlab"


class CollectionHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for name in ("roles", "plugins", "playbooks", "meta", "galaxy.yml"):
            build_data["force_include"][name] = f"{COLLECTION}/{name}"
        build_data["force_include"]["inventory"] = "pdlab/inventory"
        build_data["force_include"]["ansible.cfg"] = "pdlab/ansible.cfg"
        # For `pdlab bundle`.
        build_data["force_include"]["requirements.txt"] = "pdlab/requirements.txt"
