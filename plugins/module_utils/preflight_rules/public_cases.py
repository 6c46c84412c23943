# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports of failed PD deployments, and what of pdlab would find each: a preflight rule, or why none.

Read as excerpts of the threads; a cause that they do not prove is marked as inferred. Written out in docs/preflight.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublicCase:
    """A report: where, what happened, the rules that find its cause, and what else finds it or why no rule can."""

    threads: str
    symptom: str
    rules: tuple[str, ...] = ()
    otherwise: str = ""


CASES: tuple[PublicCase, ...] = (
    PublicCase(
        "sglang #6694",
        "A server crashes in memcpy at the first KV transfer: UCX took GPU memory for host memory (inferred).",
        ("ucx_without_cuda",),
        "Before an engine is there, role kv_transfer finds it: it moves GPU memory over NIXL.",
    ),
    PublicCase(
        "nixl #492",
        "NIXL_ERR_BACKEND on one H200 box, where the system has a UCX of its own beside the wheel's (inferred).",
        (),
        "No rule: servers get their whole environment from pdlab and inherit no LD_LIBRARY_PATH, so the wheel's own UCX is "
        "found first. Role kv_transfer's probe, in that same environment, is the proof.",
    ),
    PublicCase(
        "sglang #23551",
        "NIXL_ERR_NOT_FOUND in prefill with a model of sliding-window attention.",
        (),
        "No rule: a matter of engine and model, not of the box. Verify compares answers at prompts longer than a chunk.",
    ),
    PublicCase(
        "sglang #23499",
        "A crash in NIXL's progress thread after two minutes of load.",
        (),
        "No rule: nothing on the box shows it before. A benchmark point whose server dies is reported as failed, with the "
        "server's last lines.",
    ),
    PublicCase(
        "sglang #27894",
        "Out of memory in UCX: eight UCX threads for each rank.",
        (),
        "No rule: a matter of the servers' environment. The profiles give each prefill with several ranks two threads "
        "(docs/collectives.md).",
    ),
    PublicCase(
        "sglang #28737",
        "Every transfer hangs until its time is up: NIXL took a network device that does not lead to the other host.",
        ("network_device_not_chosen",),
        "The engine rules look at disaggregation-ib-device and at what overrides it (docs/collectives.md).",
    ),
    PublicCase(
        "sglang #6320",
        "A hang at prompts longer than chunked_prefill_size over cuda_ipc.",
        (),
        "No rule: only a transfer shows it. Verify has prompts around a page and around a chunk.",
    ),
    PublicCase(
        "sglang #20952, #21268",
        "Two prefills on one bootstrap port answer for each other.",
        ("port_taken",),
        "Two equal ports in one inventory are refused before anything runs; the ready gate asks whose port answers.",
    ),
    PublicCase(
        "sglang #31206, InferenceX #2255",
        "The router says ready and answers 503: its circuit breaker is open after a prefill's restart.",
        (),
        "No rule: a matter of the router while it runs. The ready gate ends in a real generation, and pdlab sets the "
        "router's breaker flags (docs/decisions/0004-router.md).",
    ),
    PublicCase(
        "sglang #22511, #26092",
        "/health takes 20 s behind a long prefill, and the router drops the server.",
        (),
        "No rule: a matter of load. pdlab's router asks /ready, which generates nothing.",
    ),
    PublicCase(
        "NCCL #1999, rtx6kpro #15, vllm #33041",
        "NCCL hangs between two RTX PRO 6000; the GPUs stay at 100 % until a reset.",
        ("iommu_translates", "acs_redirects_p2p", "p2p_refused"),
    ),
    PublicCase(
        "NCCL #2079",
        "A deadlock between GPUs under different root ports of an AMD board.",
        ("acs_redirects_p2p",),
    ),
    PublicCase(
        "sglang #27368, #28401",
        "The scheduler ends without a traceback: numactl --membind is not allowed in the container.",
        ("numactl_refused",),
    ),
    PublicCase(
        "mlperf-automations #664, cudf-spark #7632",
        "UCX cannot register memory: 8 MB of memlock, inherited from systemd or dockerd.",
        ("memlock_too_low",),
        "pdlab's systemd units ask for unlimited memlock themselves.",
    ),
    PublicCase(
        "ucx #10070, #11546, #7169",
        "Servers in containers of their own have no cuda_ipc and no shared memory between them.",
        ("shm_too_small",),
        "pdlab runs all servers of a host in one PID and IPC namespace, whether that is a container or not. A service "
        "manager of your own that separates them is not looked at; role kv_transfer names the transport.",
    ),
    PublicCase(
        "nixl #1097, #1195",
        "KV goes over tcp or rc where cuda_ipc was expected.",
        ("kv_p2p_refused", "ucx_without_cuda"),
        "Role kv_transfer's probe names the transport that UCX took.",
    ),
    PublicCase(
        "sglang #10001",
        "Prefills on several hosts: decode cannot reach the bootstrap address (inferred).",
        ("hostname_is_loopback",),
        "A loopback address for a host that others must reach is refused in the inventory; the ready gate asks every route "
        "from the decode's host.",
    ),
    PublicCase(
        "sglang #9931, #29459, #24064",
        "The bootstrap server listens in another address family than its clients use.",
        (),
        "No rule: the inventory allows one family only, and every part gets its literal address.",
    ),
    PublicCase(
        "dynamo #4855",
        "The bootstrap port never opened.",
        ("port_taken",),
        "The ready gate asks each bootstrap server for each rank.",
    ),
    PublicCase(
        "sglang #15674",
        "A crash under load where prefill and decode have different TP, for a model without MLA.",
        (),
        "No rule of preflight: the engine rule tp_differs holds servers and checkpoint against each other "
        "(docs/collectives.md).",
    ),
    PublicCase(
        "sglang #24488, #23318",
        "PD is no faster than one colocated server.",
        (),
        "No rule: only a measurement tells. Baseline inventories are shipped, and the report compares.",
    ),
    PublicCase(
        "sglang #4208, #2778, #3802",
        "The router gives up on servers that start slowly.",
        (),
        "No rule: pdlab starts all servers together, waits for each, and gives the router time.",
    ),
)
# What was looked for and not found as a report of its own.
NOT_FOUND = (
    "No public report named the MTU as a cause. There is no rule for it; `ping -M do -s 8972 HOST` shows whether jumbo "
    "frames pass between two hosts of a fleet."
)
