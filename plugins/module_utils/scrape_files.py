# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that tell a Prometheus what to ask: the only writer of them, for a host of pdlab and for any other.

Pure: from the plan to texts. What changes with the deployment is in the list of targets alone, which Prometheus reads
again by itself when it changes (file_sd_config, Prometheus 2.42 documentation); the rest stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_monitoring import is_loopback

# Names of their own, so that they overwrite nobody's prometheus.yml wherever they are put.
CONFIG = "pdlab-prometheus.yml"
SCRAPE = "pdlab-scrape.yml"
TARGETS = "pdlab-targets.json"
RULES = "pdlab-rules.yml"
DASHBOARD = "pdlab-dashboard.json"

# The label `job`: what pdlab runs, and NVIDIA's exporter where somebody runs one beside it.
ENGINE_JOB, GPU_JOB = "pdlab", "pdlab-gpu"
_ANY = ("0.0.0.0", "::")
_HEAD = "# Written by pdlab; a change made here is overwritten.\n"


def arm_of(plan: Mapping[str, Any]) -> str:
    """The label `arm`: the plan's own, else pd where prefill and decode are apart, else colocated."""
    apart = any(server["role"] in ("prefill", "decode") for server in plan["servers"])
    return str(plan.get("arm") or ("pd" if apart else "colocated"))


def targets(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Whom to ask, as file_sd_config takes it: every server and the router, then the GPU exporters."""
    arm = arm_of(plan)
    found = [_part(server, server["address"], server["port"], arm) for server in plan["servers"]]
    router = plan["router"]
    if router:
        address = router["prometheus_host"]
        address = plan["hosts"][router["host"]]["address"] if address in _ANY else address
        found.append(_part(router, address, router["prometheus_port"], arm))
    port = plan["monitoring"]["gpu_exporter_port"]
    if port is not None:
        hosts = dict.fromkeys(server["host"] for server in plan["servers"])
        found += [_target(plan["hosts"][host]["address"], port, GPU_JOB, host=host, arm=arm) for host in hosts]
    return found


def loopback_hosts(plan: Mapping[str, Any]) -> list[str]:
    """Hosts of which something can be asked only from the host itself."""
    found = [entry["labels"]["host"] for entry in targets(plan) if is_loopback(entry["targets"][0].strip("["))]
    return list(dict.fromkeys(found))


def _part(part: Mapping[str, Any], address: str, port: int, arm: str) -> dict[str, Any]:
    return _target(address, port, ENGINE_JOB, role=part["role"], server=part["name"], host=part["host"], arm=arm)


def _target(address: str, port: int, job: str, **labels: str) -> dict[str, Any]:
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return {"targets": [where], "labels": {"job": job, **labels}}


def targets_text(entries: list[dict[str, Any]]) -> str:
    """The list of targets, a line each."""
    if not entries:
        return "[]\n"
    return "[\n" + ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]\n"


def scrape_text(interval_s: int) -> str:
    """What an own Prometheus includes (scrape_config_files, since 2.43). Paths are relative to the file itself."""
    return (
        _HEAD
        + "# Include it in a prometheus.yml (Prometheus 2.43 and newer):\n"
        + "#   scrape_config_files: [/where/this/is/pdlab-scrape.yml]\n"
        + _scrape(interval_s)
    )


def config_text(interval_s: int) -> str:
    """A whole configuration, for a Prometheus that has no other."""
    return (
        _HEAD + f"global:\n  evaluation_interval: {interval_s}s\n" + f"rule_files:\n  - {RULES}\n" + _scrape(interval_s)
    )


def _scrape(interval_s: int) -> str:
    return (
        "scrape_configs:\n"
        + f"  # Each target says which job it is: {ENGINE_JOB} or {GPU_JOB}.\n"
        + f"  - job_name: {ENGINE_JOB}\n"
        + f"    scrape_interval: {interval_s}s\n"
        + f"    scrape_timeout: {interval_s}s\n"
        + f"    file_sd_configs:\n      - files: [{TARGETS}]\n"
        # Measured: prometheus_client 0.26 under SGLang 0.5.23 writes sglang:x as plain text and to who accepts UTF-8 names
        # (Prometheus 3), and sglang_x as OpenMetrics, for which Prometheus 2 asks first.
        + "    # A colon in a name comes as an underscore where the engine answers in OpenMetrics: Prometheus 2.\n"
        + "    metric_relabel_configs:\n"
        + "      - source_labels: [__name__]\n        regex: sglang_(.+)\n"
        + "        target_label: __name__\n        replacement: sglang:$1\n"
    )
