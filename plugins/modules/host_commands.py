#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: host_commands
short_description: Commands that must be there, installed by the distribution's packages when they are not
version_added: 0.1.0
description:
  - Looks for each command on C(PATH). What is missing is installed with C(apt-get) when this runs as root on Debian or
    Ubuntu; otherwise a warning names the package to install. Looking costs no package manager call.
options:
  commands:
    description: Command names and the package that brings each.
    type: dict
    required: true
  install:
    description: Install what is missing.
    type: bool
    default: true
  timeout_s:
    description: Time limit of the installation in seconds, the wait for the package manager's lock included.
    type: int
    default: 600
attributes:
  check_mode:
    description: Says what would be installed and touches nothing.
    support: full
  diff_mode:
    description: Shows the commands before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: numactl is there
  pdlab.pdlab.host_commands:
    commands:
      numactl: numactl
"""

RETURN = r"""
commands:
  description: Path of each command, null for one that is missing.
  type: dict
  returned: always
missing:
  description: Packages that are still missing.
  type: list
  returned: always
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched

SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_PATH])


def locate(commands: dict[str, str]) -> dict[str, str | None]:
    """Path of each command, None for one that is missing."""
    return {command: shutil.which(command, path=SEARCH_PATH) for command in commands}


def as_text(found: dict[str, str | None]) -> str:
    """Commands and where they are, for a diff."""
    return "".join(f"{command}: {path or 'missing'}\n" for command, path in sorted(found.items()))


def install(module: AnsibleModule, packages: list[str]) -> None:
    """apt-get install, with one update when the package lists do not know a package yet."""
    wait = f"DPkg::Lock::Timeout={module.params['timeout_s']}"
    base = ["apt-get", "-q", "-y", "-o", wait]
    environment = {"PATH": SEARCH_PATH, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    argv = [*base, "install", "--no-install-recommends", *packages]
    done = run_watched(argv, timeout_s=module.params["timeout_s"], env=environment)
    if done.rc != 0:
        run_watched([*base, "update"], timeout_s=module.params["timeout_s"], env=environment)
        done = run_watched(argv, timeout_s=module.params["timeout_s"], env=environment)
    if done.rc != 0:
        tail = "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-8:])
        module.fail_json(msg=f"apt-get could not install {' '.join(packages)}: {tail}")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "commands": {"type": "dict", "required": True},
            "install": {"type": "bool", "default": True},
            "timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    wanted = module.params["commands"]
    before = found = locate(wanted)
    packages = sorted({wanted[command] for command, path in found.items() if path is None})
    able = module.params["install"] and os.geteuid() == 0 and shutil.which("apt-get", path=SEARCH_PATH) is not None
    changed = bool(packages) and able
    if packages and not able:
        module.warn(
            f"not installed, for want of root or of apt-get: {' '.join(packages)}. "
            f"Install by hand: sudo apt-get install {' '.join(packages)}"
        )
    if changed and not module.check_mode:
        install(module, packages)
        found = locate(wanted)
        packages = sorted({wanted[command] for command, path in found.items() if path is None})
    module.exit_json(
        changed=changed,
        commands=found,
        missing=packages,
        diff={"before": as_text(before), "after": as_text(found)},
    )


if __name__ == "__main__":
    main()
