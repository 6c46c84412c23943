# SPDX-License-Identifier: Apache-2.0
"""A shipped inventory with layers over it, as `pdlab plan -i NAME -e @LAYER ...` resolves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import flag_faults, load_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import PER_HOST

CHECKOUT = Path(__file__).resolve().parents[3]
EVIDENCE = CHECKOUT / "docs" / "evidence"
WORKLOADS = CHECKOUT / "roles" / "benchmark" / "vars" / "workloads.yml"
# As flag_table.py printed them on a machine with the engine of that version, without a router's.
FLAGS = load_table(str(CHECKOUT / "tests" / "unit" / "data" / "flags-sglang-0.5.17.json.gz"))


def resolved(inventory: str, layers: Sequence[Path], **more: Any) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The plan of an inventory with these layers, each value replaced whole as -e does. Its engine is an existing one."""
    variables: dict[str, Any] = {}
    for file in (CHECKOUT / "inventory" / inventory / "group_vars" / "pdlab.yml", *layers):
        found = yaml.safe_load(file.read_text())
        variables |= {key: value for key, value in found.items() if key.startswith("pd_")}
    variables |= more
    own = {key: value for key, value in variables.items() if key in PER_HOST}
    shared = {key: value for key, value in variables.items() if key not in PER_HOST}
    presets = next(iter(yaml.safe_load(WORKLOADS.read_text()).values()))
    version = own["pd_engine"]["existing"]["sglang"]
    hosts = [HostVars("gpubox", local=True, home="/root", variables=own)]
    return resolve(shared, hosts, presets, engine_versions={"gpubox": version})


def unknown_flags(plan: Mapping[str, Any]) -> list[str]:
    """What the engine of version 0.5.17 would not take, of every server of a plan and of its reference."""
    servers = [*plan["servers"], *([plan["reference"]] if plan["reference"] else [])]
    return [fault for server in servers for fault in flag_faults(server["argv"], FLAGS, server["name"])]
