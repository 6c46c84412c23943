# SPDX-License-Identifier: Apache-2.0
"""Runs one job twice through the service managers' interface and prints what could be read of it as JSON."""

import json
import sys
import time

from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import choose

root, supervisord, manager, script = sys.argv[1:]
services = choose(manager, root, supervisord)
definition = ServiceDefinition(
    name="pdlab-job-x",
    description="a job",
    argv=("/bin/sh", "-c", script),
    environment={"PATH": "/bin:/usr/bin"},
    working_directory="/",
    log_path=root + "/job.log",
    restart="never",
)
seen = []
for _ in range(2):
    services.write(definition)
    services.start(definition.name)
    deadline = time.monotonic() + 30
    while services.status(definition.name).pid and time.monotonic() < deadline:
        time.sleep(0.05)
    status = services.status(definition.name)
    seen.append([status.state, status.exit_code])
listed = services.services()
services.stop(definition.name, 5)
services.remove(definition.name)
with open(root + "/job.log") as stream:
    log = stream.read()
print(json.dumps({"seen": seen, "listed": listed, "log": log, "after": services.status(definition.name).state}))
