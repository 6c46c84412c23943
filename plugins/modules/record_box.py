#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: record_box
short_description: A recording of a box, on which preflight's rules run without it
version_added: 0.1.0
description:
  - Reads what M(pdlab.pdlab.box_facts) reads, and returns the files and answers themselves. Changes nothing and writes
    nothing on the target.
  - Host and user names, addresses, UUIDs, MACs, serial numbers and command lines are replaced, the same one by the same
    stand-in everywhere.
options: {}
attributes:
  check_mode:
    description: Nothing is changed in any mode.
    support: full
  diff_mode:
    description: Nothing is changed, so there is no difference to show.
    support: none
seealso:
  - module: pdlab.pdlab.box_facts
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Record the box
  pdlab.pdlab.record_box:
  register: box
"""

RETURN = r"""
recording:
  description: The text of each file of the recording, by its path in it.
  returned: always
  type: dict
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recorder import record


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, recording=record(time.time()))


if __name__ == "__main__":
    main()
