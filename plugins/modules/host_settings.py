#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: host_settings
short_description: Packages and settings of the operating system, with the old values remembered
version_added: 0.1.0
description:
  - Reads the present value of everything that is asked for, and changes what differs. A setting that is not asked for
    is not touched.
  - Before the first change of a value its old one is noted in C(state/host.json) below O(root). Later changes do not
    overwrite that note. O(state=restored) puts the old values back and forgets them.
  - What the kernel would forget at a reboot is set again at boot by files of pdlab's own (C(/etc/sysctl.d/pdlab.conf),
    C(/etc/tmpfiles.d/pdlab.conf), C(pdlab-host.service)). O(state=restored) removes them.
  - Without root, or where a container may not change a value, it warns, says what was not done, and goes on.
  - The kernel command line, the firmware, ACS and drivers are never touched.
options:
  root:
    description: pdlab's root directory on the target.
    type: path
    required: true
  state:
    description: >-
      V(present) makes the host what is asked for. V(restored) puts back every value that was changed, and needs none
      of the other options.
    type: str
    choices: [present, restored]
    default: present
  commands:
    description: Commands that must be on C(PATH), and the Debian package that brings each.
    type: dict
  install:
    description: Install missing packages with C(apt-get). Otherwise a warning names them.
    type: bool
    default: true
  timeout_s:
    description: Time limit of the installation in seconds, the wait for the package manager's lock included.
    type: int
    default: 600
  gpus:
    description: Indices of the GPUs that C(settings.gpu_persistence) is about.
    type: list
    elements: int
    default: []
  force:
    description: With O(state=restored), put back a value that somebody has changed since, too.
    type: bool
    default: false
  settings:
    description: The settings. Each one is left as it is unless it is given.
    type: dict
    suboptions:
      limits:
        description: >-
          Limits of login sessions, in C(/etc/security/limits.d/pdlab.conf). Services of systemd have limits of their
          own. They hold from the next login on.
        type: dict
        suboptions:
          user:
            description: A user, C(@) and a group, or V(*) for all, root included.
            type: str
            default: "*"
          memlock_gib:
            description: Memory that may be locked, V(unlimited) or a whole number of GiB.
            type: str
          nofile:
            description: Hard limit of open files. More than C(fs.nr_open) is refused.
            type: int
      shm_gib:
        description: Least size of C(/dev/shm) in GiB. A larger one is left as it is.
        type: int
      cpu_governor:
        description: CPU frequency governor of all CPUs.
        type: str
      gpu_persistence:
        description: Persistence mode of O(gpus).
        type: bool
      numa_balancing:
        description: Automatic NUMA balancing of the kernel.
        type: bool
      transparent_hugepages:
        description: Transparent huge pages for anonymous memory.
        type: str
        choices: [always, madvise, never]
      swap:
        description: V(false) switches all swap off. V(true) is refused.
        type: bool
      hugepages:
        description: Huge pages to reserve.
        type: list
        elements: dict
        suboptions:
          node:
            description: NUMA node.
            type: int
            required: true
          size_mib:
            description: Size of a page in MiB.
            type: int
            choices: [2, 1024]
            default: 2
          count:
            description: How many.
            type: int
            required: true
      sysctl:
        description: Kernel parameters by name. Only those that pdlab knows a reason for are taken.
        type: dict
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  action:
    description: Keeps the result in the run folder.
    support: full
  check_mode:
    description: Says what would be changed and touches nothing.
    support: full
  diff_mode:
    description: Shows the values, and pdlab's own files, before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: numactl is there
  pdlab.pdlab.host_settings:
    root: /opt/pdlab
    commands:
      numactl: numactl

- name: Settings of a GPU box
  pdlab.pdlab.host_settings:
    root: /opt/pdlab
    gpus: [0, 1, 2, 3, 4, 5, 6, 7]
    settings:
      numa_balancing: false
      cpu_governor: performance
      gpu_persistence: true
      shm_gib: 64

- name: All of it as it was before
  pdlab.pdlab.host_settings:
    root: /opt/pdlab
    state: restored
"""

RETURN = r"""
commands:
  description: Path of each command, null for one that is missing.
  type: dict
  returned: when state is present
missing:
  description: Packages that are still missing.
  type: list
  returned: when state is present
changes:
  description: What was changed, C(setting), C(before) and C(after) each.
  type: list
  returned: when state is present
skipped_settings:
  description: What was asked for and not done, C(setting), C(why) and C(cure) each.
  type: list
  returned: when state is present
put_back:
  description: What was put back, C(setting), C(was), C(set) and C(now) each.
  type: list
  returned: when state is restored
already_back:
  description: What had its old value already.
  type: list
  returned: when state is restored
gone:
  description: What is no longer there.
  type: list
  returned: when state is restored
left_alone:
  description: What somebody changed since pdlab did. It stays as it is, and remembered.
  type: list
  returned: when state is restored
packages:
  description: Packages that pdlab installed. They stay.
  type: list
  returned: when state is restored
memory:
  description: The file that holds the old values.
  type: str
  returned: always
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.host import change, packages, values
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.asked import asked_values
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.memory import Memory, memory_path

LIMITS = {"user": {"type": "str", "default": "*"}, "memlock_gib": {"type": "str"}, "nofile": {"type": "int"}}
HUGEPAGES = {
    "node": {"type": "int", "required": True},
    "size_mib": {"type": "int", "choices": [2, 1024], "default": 2},
    "count": {"type": "int", "required": True},
}
SETTINGS = {
    "limits": {"type": "dict", "options": LIMITS},
    "shm_gib": {"type": "int"},
    "cpu_governor": {"type": "str"},
    "gpu_persistence": {"type": "bool"},
    "numa_balancing": {"type": "bool"},
    "transparent_hugepages": {"type": "str", "choices": ["always", "madvise", "never"]},
    "swap": {"type": "bool"},
    "hugepages": {"type": "list", "elements": "dict", "options": HUGEPAGES},
    "sysctl": {"type": "dict"},
}
ARGUMENTS = {
    "root": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "restored"], "default": "present"},
    "commands": {"type": "dict"},
    "install": {"type": "bool", "default": True},
    "timeout_s": {"type": "int", "default": 600},
    "gpus": {"type": "list", "elements": "int", "default": []},
    "force": {"type": "bool", "default": False},
    "settings": {"type": "dict", "options": SETTINGS},
    "run_dir": {"type": "path"},
    "record": {"type": "str"},
}


def present(module: AnsibleModule, machine: Machine, memory: Memory) -> None:
    """Make the host what is asked for, or say in check mode what that would be."""
    settings = module.params["settings"] or {}
    asked = asked_values(machine, settings, module.params["gpus"])
    if asked.faults:
        fail(module, memory, "the settings of this host cannot be made:", asked.faults)
    other = change.foreign_memory(machine, memory)
    if settings and other is not None:
        msg = f"another pdlab has changed settings of this host, and remembers the old values in {other}"
        fail(module, memory, f"{msg}; undo them there first (pdlab undo), or use its pd_root", [])
    plan = change.plan_asked(machine, memory, asked)
    wanted = module.params["commands"] or {}
    before = found = packages.locate(machine, wanted)
    missing = packages.missing_packages(wanted, found)
    able = module.params["install"] and machine.is_root and machine.which("apt-get") is not None
    diff = [
        {"before": packages.found_as_text(before), "after": packages.found_as_text(found)},
        *plan_diff(plan),
    ]
    for warning in [*plan.warnings, *map(str, plan.skipped)]:
        module.warn(warning)
    if missing and not able:
        by_hand = f"sudo apt-get install {' '.join(missing)}"
        module.warn(f"not installed, for want of root or of apt-get: {' '.join(missing)}. Install by hand: {by_hand}")
    errors: list[str] = []
    if not module.check_mode:
        if missing and able:
            packages.install(machine, missing, module.params["timeout_s"])
            plan.memory.packages = sorted({*memory.packages, *missing})
            found = packages.locate(machine, wanted)
            diff[0]["after"] = packages.found_as_text(found)
        if plan.changed or plan.memory.packages != memory.packages:
            errors = change.apply(machine, memory, plan, asked)
    result = {
        "changed": plan.changed or bool(missing and able),
        "commands": found,
        "missing": packages.missing_packages(wanted, found),
        "changes": [made.as_dict() for made in plan.changes],
        "skipped_settings": [vars(skipped) for skipped in plan.skipped],
        "diff": diff,
    }
    if errors:
        fail(module, memory, "not everything could be set:", errors, **result)
    module.exit_json(**result, memory=memory.path)


def plan_diff(plan: change.Plan) -> list[dict[str, str]]:
    """The values before and after, then each of pdlab's own files."""
    parts: list[dict[str, str]] = []
    live = [made for made in plan.changes if not values.is_own_file(made.key)]
    if live:
        parts.append(
            {
                "before_header": "settings of this host",
                "after_header": "settings of this host",
                "before": change.state_as_text((made.key, made.now) for made in live),
                "after": change.state_as_text((made.key, made.new) for made in live),
            }
        )
    parts += [file_diff(made.key, made.now, made.new) for made in plan.changes if values.is_own_file(made.key)]
    return parts


def file_diff(path: str, before: str | None, after: str | None) -> dict[str, str]:
    """One file's texts for a diff."""
    return {"before_header": path, "after_header": path, "before": before or "", "after": after or ""}


def restored(module: AnsibleModule, machine: Machine, memory: Memory) -> None:
    """Put the old values back, or say in check mode which they are."""
    fates = change.plan_restored(machine, memory, module.params["force"])
    by_fate = {what: [fate for fate in fates if fate.what == what] for what in change.FATES}
    live = [fate for fate in by_fate[change.PUT_BACK] if not values.is_own_file(fate.key)]
    diff = [
        {
            "before_header": "settings of this host",
            "after_header": "settings of this host",
            "before": change.state_as_text((fate.key, fate.now) for fate in live),
            "after": change.state_as_text((fate.key, fate.was) for fate in live),
        },
        *(file_diff(fate.key, fate.now, fate.was) for fate in by_fate[change.PUT_BACK] if fate not in live),
    ]
    result: dict[str, Any] = {
        "changed": bool(by_fate[change.PUT_BACK]),
        **{what.replace(" ", "_"): [fate.as_dict() for fate in found] for what, found in by_fate.items()},
        "packages": memory.packages,
        "diff": diff,
    }
    if fates and not machine.is_root and not module.check_mode:
        fail(module, memory, "old values can be put back by root alone; become root (ansible_become: true)", [])
    for fate in by_fate[change.LEFT_ALONE]:
        words = fate.as_dict()
        module.warn(
            f"{words['setting']}: left alone, somebody changed it since pdlab did; it was {words['was']}, "
            f"pdlab set {words['set']}, it is {words['now']} (force puts {words['was']} back)"
        )
    if memory.packages:
        module.warn(
            f"packages stay, others may need them by now: {' '.join(memory.packages)}. "
            f"Remove by hand: sudo apt-get remove {' '.join(memory.packages)}"
        )
    if module.check_mode or not (memory.settings or memory.packages):
        module.exit_json(**result, memory=memory.path)
    memory.packages = []
    errors = change.restore(machine, memory, fates)
    if errors:
        fail(module, memory, "not everything could be put back:", errors, **result)
    module.exit_json(**result, memory=memory.path)


def fail(module: AnsibleModule, memory: Memory, msg: str, lines: list[str], **result: Any) -> None:
    """End with all that is wrong, a line each."""
    module.fail_json(msg="\n".join([msg, *lines]), memory=memory.path, **result)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    machine = Machine()
    path = memory_path(os.path.abspath(module.params["root"]))
    try:
        memory = Memory.load(machine, path)
        (restored if module.params["state"] == "restored" else present)(module, machine, memory)
    except SettingError as error:
        module.fail_json(msg=str(error), memory=path)
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename or path} cannot be written: {error.strerror or error}; make room for it, or make "
            "it writable for root. Without a memory nothing is changed.",
            memory=path,
        )


if __name__ == "__main__":
    main()
