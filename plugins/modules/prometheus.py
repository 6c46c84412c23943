#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: prometheus
short_description: A Prometheus for this deployment, from Debian's package, under a unit of pdlab's own
version_added: 0.1.0
description:
  - Installs the package C(prometheus) where the program is missing, and runs it as C(pdlab_prometheus.service) with the
    package's account, with files and data below O(root).
  - Debian's own C(prometheus.service), C(/etc/prometheus) and C(/etc/default/prometheus) are left as they are. When
    this module installs the package, that service is neither started nor enabled.
  - It is restarted only when its command line changed, and told to read its files again when those changed. A new list
    of targets needs neither.
  - Without systemd, without root, or without the program and C(apt-get), it warns, says what was not done, and goes on.
options:
  root:
    description: pdlab's root directory on the target. The files are in C(monitoring) below it.
    type: path
    required: true
  state:
    description: >-
      V(idle) takes away the targets, so that nothing is asked while no server runs. V(absent) stops Prometheus and
      removes its unit and its files. What it measured stays, in C(monitoring/data), and so does the package.
    type: str
    choices: [present, idle, absent]
    default: present
  plan:
    description: What runs where, as M(pdlab.pdlab.topology) returns it. The files are made from it.
    type: dict
  rules:
    description: Alert rules, a file on the controller.
    type: path
  files:
    description: Internal. The files by their names, made from O(plan) and O(rules) on the controller.
    type: dict
  address:
    description: Address to listen on. Prometheus asks nobody for a password.
    type: str
    default: 127.0.0.1
  port:
    description: Port to listen on.
    type: int
    default: 9090
  retention_days:
    description: How long it keeps what it measured, in days.
    type: int
    default: 15
  timeout_s:
    description: Time limit of the installation in seconds, the wait for the package manager's lock included.
    type: int
    default: 600
  wait_s:
    description: Time limit for Prometheus to be ready, and to have read its files, in seconds.
    type: int
    default: 60
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  action:
    description: Makes the files from the plan; keeps the result in the run folder.
    support: full
  check_mode:
    description: Says what would be done and touches nothing.
    support: full
  diff_mode:
    description: Shows the unit, and every file, before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: Prometheus watches what is deployed
  pdlab.pdlab.prometheus:
    root: /opt/pdlab
    plan: "{{ pdlab_topology.plan }}"
    rules: roles/observability/files/pdlab-rules.yml
    retention_days: 30

- name: No Prometheus any more
  pdlab.pdlab.prometheus:
    root: /opt/pdlab
    state: absent
"""

RETURN = r"""
actions:
  description: What was done, or would be, in order.
  type: list
  returned: always
  sample: [install prometheus, write pdlab-targets.json, start pdlab_prometheus.service]
url:
  description: Where it answers, null when it does not run.
  type: str
  returned: always
version:
  description: Version of the program, null when there is none.
  type: str
  returned: when state is present
data:
  description: The folder of what it measured, null when there is none.
  type: path
  returned: always
unit:
  description: The unit that runs it.
  type: str
  returned: always
service:
  description: What the unit does now (running, starting, stopped, failed or absent), and the PID of its main process.
  type: dict
  returned: when state is present
  sample: {state: running, pid: 4711}
skipped_why:
  description: Why nothing was done, null when all was done.
  type: str
  returned: always
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.prometheus_host import Desired, PrometheusHost
from ansible_collections.pdlab.pdlab.plugins.module_utils.prometheus_service import UNIT

ARGUMENTS = {
    "root": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "idle", "absent"], "default": "present"},
    "plan": {"type": "dict"},
    "rules": {"type": "path"},
    "files": {"type": "dict"},
    "address": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 9090},
    "retention_days": {"type": "int", "default": 15},
    "timeout_s": {"type": "int", "default": 600},
    "wait_s": {"type": "int", "default": 60},
    "run_dir": {"type": "path"},
    "record": {"type": "str"},
}


def standing(host: PrometheusHost) -> dict[str, object]:
    """The unit's state as it is returned."""
    state, pid = host.standing()
    return {"state": state, "pid": pid}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    host = PrometheusHost(Machine(), given["root"], given["timeout_s"], given["wait_s"])
    result = {"changed": False, "actions": [], "url": None, "data": host.data(), "skipped_why": None, "diff": []}
    result["unit"] = UNIT
    try:
        if given["state"] == "present":
            wanted = Desired(given["files"] or {}, given["address"], given["port"], given["retention_days"])
            why = host.obstacle()
            if why is not None:
                module.warn(f"no Prometheus on this host: {why}")
                module.exit_json(**{**result, "skipped_why": why, "version": None, "service": standing(host)})
            steps = host.plan_present(wanted)
            result["url"] = wanted.url
        else:
            steps = host.plan_idle() if given["state"] == "idle" else host.plan_absent()
        result.update(changed=bool(steps), actions=[step.what for step in steps])
        result["diff"] = [step.diff for step in steps if step.diff]
        began = time.time()
        if not module.check_mode:
            for step in steps:
                step.make()
            if given["state"] == "present" and steps:
                host.check(wanted, began if any(step.reads_again for step in steps) else 0)
        if given["state"] == "present":
            result.update(version=host.version(), service=standing(host))
    except SettingError as error:
        module.fail_json(msg=f"Prometheus: {error}", **result)
    except OSError as error:
        module.fail_json(msg=f"Prometheus: {error.filename}: {error.strerror}; make it writable for root", **result)
    module.exit_json(**{**result, "data": host.data()})


if __name__ == "__main__":
    main()
