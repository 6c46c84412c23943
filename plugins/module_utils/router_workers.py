# SPDX-License-Identifier: GPL-3.0-or-later
"""Which servers a router has taken in, as its /workers says, and how it is told of one. Runs on the target.

Seen with sglang-router 0.3.2: a worker that is not up when the router starts is asked 1, 2, 3 and 4 s after that start
and then every 5 s, whatever `--worker-startup-check-interval` says. POST /workers makes it ask at once; the question
that it still had open then ends with "already exists" in its log, and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import COLOCATED, DECODE, PREFILL

# What the router calls each role.
WORKER_TYPES = {PREFILL: "prefill", DECODE: "decode", COLOCATED: "regular"}
ASK_TIMEOUT_S = 5.0


def listed_workers(body: Any) -> list[dict[str, Any]] | None:
    """The list in the router's /workers answer ({"workers": [...]} or the list itself); None when there is none."""
    listed = body.get("workers") if isinstance(body, dict) else body
    if not isinstance(listed, list):
        return None
    return [worker for worker in listed if isinstance(worker, dict)]


def introduce(router_url: str, workers: Sequence[Mapping[str, Any]], ready: Collection[str]) -> list[str]:
    """Tell a router of those of its `workers` that have become ready and that it has not found yet; return their names.

    `workers` are those of the router's options, `ready` names servers. A router that does not answer, or wants an API
    key, is left alone: it finds its workers by itself.
    """
    found = listed_workers(http_json.get(router_url + "/workers", ASK_TIMEOUT_S).body)
    if found is None:
        return []
    known = {str(worker.get("url")).rstrip("/") for worker in found}
    told = []
    for worker in workers:
        if worker["name"] not in ready or worker["url"].rstrip("/") in known:
            continue
        port = {"bootstrap_port": worker["bootstrap_port"]} if worker["role"] == PREFILL else {}
        body = {"url": worker["url"], "worker_type": WORKER_TYPES[worker["role"]], **port}
        if http_json.post(router_url + "/workers", body, ASK_TIMEOUT_S).ok:
            told.append(str(worker["name"]))
    return told
