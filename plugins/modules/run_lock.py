#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: run_lock
short_description: Hold a host for one pdlab run
version_added: 0.1.0
description:
  - Two runs on one host would restart each other's servers and measure each other's load. The second one is refused,
    with the first one's PID.
  - A holder that died does not stand in the way. One on the target itself, or on the controller, is looked up among
    the processes there; one on any other machine counts as alive until its lease ends.
  - The lock is pdlab's own bookkeeping, so taking it is not reported as a change.
options:
  root:
    description: pdlab's root directory on the target. The lock is C(state/run.lock) below it.
    type: path
    required: true
  holder:
    description:
      - Who holds the host, as M(pdlab.pdlab.stage) returns it.
      - Left out, it is whoever plays the playbook. The action plug-in sees to that.
    type: dict
    suboptions:
      controller:
        description: Host name of the controller.
        type: str
        required: true
      machine_id:
        description: The controller's C(/etc/machine-id), empty where there is none.
        type: str
        default: ""
      pid:
        description: PID of the run on the controller.
        type: int
        required: true
      pid_started:
        description: When that process started, in seconds since the epoch.
        type: float
      run:
        description: Name of the run.
        type: str
  state:
    description: Whether the host is held. C(absent) lets go of a lock of the same holder and of no other.
    type: str
    choices: [present, absent]
    default: present
  lease_s:
    description: How long a holder on another machine is believed to be alive after it was last seen, in seconds.
    type: int
    default: 7200
  force:
    description:
      - Another run's hold is left as it is, and is no failure; there is a warning that names it. Nor is it a failure that
        the lock cannot be written.
    type: bool
    default: false
  make:
    description: Whether to make the lock's folder. Without, a host that has none is not held, and by nobody else either.
    type: bool
    default: true
  anyway:
    description: How one goes on all the same, as the end of a refusal.
    type: str
  gone:
    description: Internal. A holder of which the controller knows that it is gone.
    type: dict
  known:
    description:
      - What this module said of the same O(root) earlier in the run. The host is then not asked again.
      - Used by the action plug-in alone.
    type: dict
attributes:
  action:
    description: Asks the controller whether a holder there is still alive.
    support: full
  check_mode:
    description: Reports who holds the host; takes nothing and refuses nothing.
    support: full
  diff_mode:
    description: The lock is no part of the host's state.
    support: none
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Hold the host for this run
  pdlab.pdlab.run_lock:
    root: /opt/pdlab
    holder: "{{ pdlab_run.holder }}"

- name: Let go of it
  pdlab.pdlab.run_lock:
    root: /opt/pdlab
    holder: "{{ pdlab_run.holder }}"
    state: absent

- name: Hold the host unless it holds nothing of pdlab's
  pdlab.pdlab.run_lock:
    root: /opt/pdlab
    make: false
    force: "{{ down_force | default(false) }}"
    anyway: stop the servers under it with -e down_force=true
"""

RETURN = r"""
path:
  description: The lock file.
  returned: always
  type: str
held:
  description: Whether this holder holds the host now.
  returned: always
  type: bool
held_by:
  description: The holder that is in the way, null when none is.
  returned: always
  type: dict
systemd:
  description: Whether systemd keeps services here for this user, which decides what V(auto) means as a service manager.
  returned: when state is present
  type: bool
took_over:
  description: The holder that had died and whose lock was taken over, null when there was none.
  returned: always
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import host_lock


def hold(module: AnsibleModule, path: str) -> None:
    """Take the host, and say whose hold was left as it is."""
    options = module.params
    result = host_lock.hold(options, module.check_mode)
    other = result["held_by"]
    if options["force"] and other:
        module.warn(
            f"another pdlab run (PID {other['pid']} on {other['controller']}) holds this host; going on all the same"
        )
    elif options["force"] and not result["held"] and not module.check_mode and os.path.isdir(os.path.dirname(path)):
        module.warn(f"the lock {path} cannot be written: this host is not held; going on all the same")
    module.exit_json(changed=False, **result)


def let_go(module: AnsibleModule, path: str) -> None:
    """Remove the lock when it is this holder's."""
    before = host_lock.read_lock(path)
    mine = before is not None and host_lock.same_holder(before["holder"], module.params["holder"])
    if mine and not module.check_mode:
        os.unlink(path)
    other = before["holder"] if before is not None and not mine else None
    module.exit_json(changed=False, path=path, held=mine and module.check_mode, held_by=other, took_over=None)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "holder": host_lock.HOLDER_OPTION,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "lease_s": {"type": "int", "default": host_lock.LEASE_S},
            "force": {"type": "bool", "default": False},
            "make": {"type": "bool", "default": True},
            "anyway": {"type": "str"},
            "gone": {"type": "dict"},
            "known": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    if not module.params["holder"]:
        module.fail_json(msg="holder is missing, and no action plug-in of a controller has said who that is")
    path = host_lock.lock_path(module.params["root"])
    directory = os.path.dirname(path)
    try:
        if module.params["state"] == "absent":
            if not os.path.isdir(directory):
                module.exit_json(changed=False, path=path, held=False, held_by=None, took_over=None)
            with host_lock.guarded(directory):
                let_go(module, path)
        hold(module, path)
    except host_lock.HeldError as error:
        module.fail_json(msg=str(error), changed=False, **error.result)
    except host_lock.LockFileError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=host_lock.unwritable(path, error))


if __name__ == "__main__":
    main()
