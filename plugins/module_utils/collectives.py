# SPDX-License-Identifier: GPL-3.0-or-later
"""One table of what NCCL, UCX, NIXL, torch and SGLang read from a server's environment: KNOBS.

A row says what pdlab does with a variable: it is set always, set by a profile, offered (shown, and set only when the
inventory writes it), a remedy for one kind of trouble, or left alone for a reason. What the inventory writes wins over a row. A new knob is a new row;
docs/collectives.md is made from the table by scripts/collectives_page.py.

No row is set without evidence for it. Sources name the file in sglang 0.5.23 (S = sglang/srt), a public thread, or
a library's own documentation; figures of others are called theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import Case, version_within
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import COLOCATED, DECODE, ENGINE_ROLES, PREFILL

PCIE, NVLINK, OFF = "pcie", "nvlink", "off"
PROFILES = (PCIE, NVLINK, OFF)
ALWAYS, PROFILE, OFFERED, REMEDY, LEFT_ALONE = "always", "profile", "offered", "remedy", "left alone"
INVENTORY = "inventory"
# What reads a row that is a flag of the server, not a variable.
FLAG = "flag"
NIXL_PARAMS = "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS"
PCIE_ALLREDUCE = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
# World sizes that the PCIe all-reduce has kernels for (S/distributed/device_communicators/pcie_ipc_ar.py).
PCIE_ALLREDUCE_SIZES = (2, 4, 8)


def _any(case: Case) -> bool:
    return True


def _several_ranks(case: Case) -> bool:
    return case.tp > 1


def _bound(case: Case) -> bool:
    return case.numa_node is not None


def _pair(case: Case) -> bool:
    return case.disaggregated


def _fleet(case: Case) -> bool:
    return case.fleet


def _pcie_allreduce(case: Case) -> bool:
    plain_tp = not case.flag("enable-dp-attention") and not case.flag("enable-deterministic-inference")
    return case.tp in PCIE_ALLREDUCE_SIZES and plain_tp


@dataclass(frozen=True)
class Knob:
    """A row. `value` is what pdlab sets or offers (None: left alone), `shown` its text in the documentation.

    `read_by` is the library that reads it; `roles` and `profiles` whom it concerns; `applies` decides with `when` as its words;
    `since` and `before` are versions of sglang.
    """

    name: str
    read_by: str
    use: str
    value: str | Callable[[Case], str] | None
    when: str
    why: str
    source: str
    roles: tuple[str, ...] = ENGINE_ROLES
    profiles: tuple[str, ...] = (PCIE, NVLINK)
    applies: Callable[[Case], bool] = _any
    since: str | None = None
    before: str | None = None
    shown: str = ""

    def text(self, case: Case) -> str:
        """The value for one server."""
        assert self.value is not None
        return self.value if isinstance(self.value, str) else self.value(case)

    @property
    def value_text(self) -> str:
        """The value as the documentation shows it."""
        return self.shown or (self.value if isinstance(self.value, str) else "")


def profile_of(given: str | None, device: str | None) -> str:
    """The profile in force. Nothing is set on a CPU; `pcie` is the default of a GPU box, since it asks least of it."""
    return given or (PCIE if device == "cuda" else OFF)


def settings(case: Case) -> dict[str, str]:
    """What the profile sets for one server, less what the inventory has set."""
    rows = [knob for knob in KNOBS if knob.use == PROFILE and _concerns(knob, case)]
    return {knob.name: knob.text(case) for knob in rows if case.variable(knob.name) is None}


def offers(case: Case) -> list[dict[str, str]]:
    """What could be set for one server and is not: {"server", "name", "value", "why", "source"}."""
    return [
        {"server": case.name, "name": knob.name, "value": knob.text(case), "why": knob.why, "source": knob.source}
        for knob in KNOBS
        if knob.use == OFFERED and _concerns(knob, case) and case.variable(knob.name) is None
    ]


def always_set(server: Mapping[str, Any]) -> dict[str, str]:
    """What every engine server gets whatever the profile; `server` is a description as in command_line.py."""
    case = Case(
        name=str(server.get("name")),
        role=str(server["role"]),
        device=str(server.get("device")),
        address=server["address"],
        numa_node=server.get("numa_node"),
    )
    rows = [knob for knob in KNOBS if knob.use == ALWAYS and knob.read_by != FLAG]
    return {knob.name: knob.text(case) for knob in rows if case.role in knob.roles and knob.applies(case)}


def explained(case: Case) -> list[dict[str, str]]:
    """Each variable of a server's environment with where it comes from: {"name", "value", "from", "why", "source"}.

    `from` is always, profile or inventory. A variable that the inventory sets to the profile's own value is the
    profile's.
    """
    by_name = {knob.name: knob for knob in KNOBS if knob.read_by != FLAG and case.role in knob.roles}
    lines = []
    for knob in by_name.values():
        if knob.use == ALWAYS and knob.applies(case) and case.variable(knob.name) is None:
            lines.append(_explanation(knob, knob.text(case), ALWAYS))
    for name in case.env:
        value, row = case.variable(name), by_name.get(name)
        if value is None:
            continue
        if row is None:
            lines.append({"name": name, "value": value, "from": INVENTORY, "why": "", "source": ""})
            continue
        own = row.use == PROFILE and _concerns(row, case) and row.text(case) == value
        lines.append(_explanation(row, value, PROFILE if own else INVENTORY))
    return sorted(lines, key=lambda line: line["name"])


def _explanation(knob: Knob, value: str, origin: str) -> dict[str, str]:
    return {"name": knob.name, "value": value, "from": origin, "why": knob.why, "source": knob.source}


def rows_by_use(use: str) -> Sequence[Knob]:
    """The table's rows of one kind, in its order."""
    return [knob for knob in KNOBS if knob.use == use]


def _concerns(knob: Knob, case: Case) -> bool:
    # With an unknown version a row is used: unknown variables do no harm to an engine.
    known = version_within(case.version, knob.since, knob.before) is not False
    return case.profile in knob.profiles and case.role in knob.roles and known and knob.applies(case)


_SENDERS = (PREFILL,)
_WAITERS = (DECODE, COLOCATED)

KNOBS: tuple[Knob, ...] = (
    # --- always ------------------------------------------------------------------------------------------------------
    Knob(
        name="SGLANG_HOST_IP",
        read_by="sglang",
        use=ALWAYS,
        value=lambda case: str(case.address),
        shown="the host's pd_address",
        when="every server",
        why="Ranks tell each other this address. Without it SGLang takes HOST_IP, or the interface of the default "
        "route, or what the host's name resolves to, which on Debian is 127.0.1.1.",
        source="S/utils/network.py get_local_ip_auto",
    ),
    Knob(
        name="--nccl-port",
        read_by=FLAG,
        use=ALWAYS,
        value=None,
        shown="the server's nccl_port",
        when="every server",
        why="Left out, SGLang draws a port between 22000 and 29999, and two servers that start together can draw the "
        "same one.",
        source="S/utils/network.py; sglang/test/server_fixtures/disaggregation_fixture.py",
    ),
    Knob(
        name="CUDA_DEVICE_ORDER",
        read_by="cuda",
        use=ALWAYS,
        value="PCI_BUS_ID",
        when="every server on GPUs",
        applies=lambda case: case.device == "cuda",
        why="CUDA's own order is by speed. The inventory counts GPUs as nvidia-smi does, along the bus.",
        source="CUDA programming guide, environment variables",
    ),
    Knob(
        name="SGLANG_CRASH_ON_NUMA_BIND_FAILURE",
        read_by="sglang",
        use=ALWAYS,
        value="1",
        when="a server with numa_node",
        applies=_bound,
        why="SGLang binds each rank to its GPU's node by itself. When that is not the node of numa_node it only warns "
        "and stays on the wrong one; with this it fails at the start.",
        source="S/utils/numa_utils.py _handle_numa_bind_failure",
    ),
    Knob(
        name="HF_HUB_OFFLINE",
        read_by="huggingface_hub",
        use=ALWAYS,
        value="1",
        when="every server",
        why="The checkpoint lies on the host. A server must not wait for a hub, nor fetch what was not asked for.",
        source="huggingface_hub, environment variables",
    ),
    Knob(
        name="SPT_NOENV",
        read_by="setproctitle",
        use=ALWAYS,
        value="1",
        when="every server",
        why="SGLang's schedulers give themselves a title, which overwrites their environment in /proc with zeros. "
        "With this the environment that a rank really has can be read, and pdlab reads it.",
        source="setproctitle's README; seen with setproctitle 1.3.8",
    ),
    Knob(
        name="SGLANG_TIMEOUT_KEEP_ALIVE",
        read_by="sglang",
        use=ALWAYS,
        value="120",
        when="every server",
        why="A server closes a connection that was idle for 5 s. The router keeps one for 90 s, so a server that stalls "
        "for a moment closes it just as the router sends the next request, which is lost: error sending request.",
        source="S/srt/environ.py, http_server.py; reqwest's pool_idle_timeout",
    ),
    # --- set by a profile --------------------------------------------------------------------------------------------
    Knob(
        name=NIXL_PARAMS,
        read_by="sglang",
        use=PROFILE,
        value='{"num_threads": "2"}',
        when="prefill with several ranks",
        roles=_SENDERS,
        applies=_several_ranks,
        why="SGLang gives each prefill rank's UCX eight threads. On their own test machine eight threads times the "
        "ranks used up a device's resources (gdaki … Out of memory, NIXL_ERR_BACKEND), and their test now uses two.",
        source="S/disaggregation/nixl/conn.py; sgl-project/sglang#27894",
    ),
    Knob(
        name="NCCL_DEBUG",
        read_by="nccl",
        use=PROFILE,
        value="WARN",
        when="a server with several ranks",
        applies=_several_ranks,
        why="NCCL then writes the reason of a failure into the server's log. It costs nothing while nothing fails.",
        source="NCCL user guide, environment variables",
    ),
    Knob(
        name="SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",
        read_by="sglang",
        use=PROFILE,
        value="0",
        when="every server",
        before="0.5.23",
        why="Before /ready the router asks /health, every 2 s, and each time the engine makes a token beside the "
        "requests that are measured, and takes a second for it. With this /health says whether the server has started.",
        source="sglang 0.5.17, srt/entrypoints/http_server.py health_generate",
    ),
    # --- offered -----------------------------------------------------------------------------------------------------
    Knob(
        name=PCIE_ALLREDUCE,
        read_by="sglang",
        use=OFFERED,
        value="1",
        when="PCIe without NVLink, decode or colocated with TP 2, 4 or 8, no DP attention, not deterministic",
        roles=_WAITERS,
        profiles=(PCIE,),
        applies=_pcie_allreduce,
        since="0.5.23",
        why="More than two GPUs without NVLink reduce through NCCL. FlashInfer's PCIe kernels did it in 5 µs instead "
        "of 205 µs (12 KiB, 8 x SM120 on two NUMA nodes, TP8) and took TPOT from 21.1 to 13.6 ms, by SGLang's own "
        "measurement. Measure it on your box; it falls back to NCCL where FlashInfer lacks the kernels.",
        source="S/distributed/device_communicators/pcie_ipc_ar.py; sgl-project/sglang#34528",
    ),
    Knob(
        name="SGLANG_DISAGGREGATION_WAITING_TIMEOUT",
        read_by="sglang",
        use=OFFERED,
        value="120",
        when="decode",
        roles=(DECODE,),
        applies=_pair,
        why="How long decode waits for KV pages, 300 s by default. After a prefill that came back too fast, a request "
        "for each rank waits that long. Too short, and long prompts in a queue fail: choose it above your worst TTFT.",
        source="S/environ.py; S/disaggregation/common/conn.py",
    ),
    Knob(
        name="SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT",
        read_by="sglang",
        use=OFFERED,
        value="120",
        when="prefill",
        roles=_SENDERS,
        applies=_pair,
        why="How long prefill keeps a request whose decode server never asks for it, 300 s by default. Choose it above "
        "the time that a request may wait for room on decode.",
        source="S/environ.py; S/disaggregation/common/conn.py",
    ),
    Knob(
        name="UCX_NET_DEVICES",
        read_by="ucx",
        use=OFFERED,
        value="NAME",
        shown="the NIC, for example eth0 or mlx5_0:1",
        when="several hosts, each with several network interfaces",
        applies=_fleet,
        why="UCX may choose an interface that leads nowhere; every transfer then hangs until the 300 s are over. It "
        "works in every version, and wins over --disaggregation-ib-device.",
        source="S/disaggregation/nixl/conn.py; sgl-project/sglang#28737",
    ),
    Knob(
        name="UCX_TCP_PORT_RANGE",
        read_by="ucx",
        use=OFFERED,
        value="40000-40999",
        shown="a range, for example 40000-40999",
        when="several hosts with a firewall between them",
        applies=_fleet,
        why="UCX listens on ports that the kernel chooses. A firewall needs to know them.",
        source="UCX configuration, UCX_TCP_PORT_RANGE",
    ),
    Knob(
        name="NCCL_MIN_NCHANNELS",
        read_by="nccl",
        use=OFFERED,
        value="8",
        when="PCIe without NVLink, several ranks",
        profiles=(PCIE,),
        applies=_several_ranks,
        why="Users of RTX PRO 6000 boxes report up to 70 % more bus bandwidth than with NCCL's own choice of 2 (their "
        "measurement, large messages). More channels take more of the GPU.",
        source="local-inference-lab/rtx6kpro, wiki; NCCL user guide",
    ),
    # --- for trouble ---------------------------------------------------------------------------------------------------
    Knob(
        name="NCCL_P2P_LEVEL",
        read_by="nccl",
        use=REMEDY,
        value="SYS",
        shown="PIX, PXB, PHB, SYS",
        when="PCIe without NVLink, several ranks, after a timed all-reduce at 2, 3, 4, 8 and all ranks has passed",
        profiles=(PCIE,),
        applies=_several_ranks,
        why="Lets NCCL use P2P over longer ways than it would by itself. Users of such boxes report hangs at full load "
        "where the platform cannot do it (IOMMU, ACS), so it is never set unasked.",
        source="NCCL user guide; NVIDIA/nccl#1999, NVIDIA/nccl#2079",
    ),
    Knob(
        name="NCCL_P2P_DISABLE",
        read_by="nccl",
        use=REMEDY,
        value="1",
        when="PCIe without NVLink, several ranks, only when an all-reduce hangs and the cause cannot be mended now",
        profiles=(PCIE,),
        applies=_several_ranks,
        why="A way around a P2P path that IOMMU or ACS breaks: NCCL then copies through host memory, and slower. KV "
        "transfer does not read it, and is broken on such a path all the same.",
        source="NCCL user guide; NVIDIA/nccl#1999",
    ),
    Knob(
        name="NCCL_CUMEM_HOST_ENABLE",
        read_by="nccl",
        use=REMEDY,
        value="0",
        when="several ranks in a container without the capability SYS_NICE",
        applies=_several_ranks,
        why="NCCL's host buffers through cuMem ask for NUMA calls that such a container refuses.",
        source="NCCL user guide, troubleshooting",
    ),
    Knob(
        name="UCX_PROTO_INFO",
        read_by="ucx",
        use=REMEDY,
        value="y",
        when="prefill and decode, to look for a slow transfer",
        applies=_pair,
        why="Writes into the log which transport carries which size. The line that counts is the remote memory write "
        "of cuda memory, not the active messages.",
        source="ai-dynamo/nixl#366",
    ),
    # --- left alone --------------------------------------------------------------------------------------------------
    Knob(
        name="UCX_TLS",
        read_by="ucx",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="UCX finds cuda_ipc by itself. A list that leaves it out moves KV over TCP, and nothing says so: all "
        "requests complete and the first token takes 13 times longer (measured on two H200). A list needs cuda_ipc, "
        "cuda_copy and one of tcp, sm, rc.",
        source="measured; rules ucx_without_cuda and ucx_without_cuda_ipc",
    ),
    Knob(
        name="UCX_CUDA_IPC_ENABLE_GET_ZCOPY",
        read_by="ucx",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="Without NVLink UCX switches off reads through cuda_ipc and keeps writes. SGLang only writes.",
        source="UCX, cuda_ipc_iface.c; S/disaggregation/nixl/conn.py",
    ),
    Knob(
        name="UCX_MAX_RMA_RAILS",
        read_by="ucx",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="NIXL sets this, UCX_RNDV_THRESH, UCX_IB_PCI_RELAXED_ORDERING and UCX_RC_FENCE itself unless they are set.",
        source="NIXL, src/plugins/ucx/ucx_utils.cpp",
    ),
    Knob(
        name="NCCL_CUMEM_ENABLE",
        read_by="nccl",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="SGLang sets it to 0 unless symmetric memory is asked for.",
        source="S/entrypoints/engine.py _set_envs_and_config",
    ),
    Knob(
        name="NCCL_NVLS_ENABLE",
        read_by="nccl",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="SGLang sets it to 0 unless --enable-nccl-nvls or symmetric memory is asked for.",
        source="S/entrypoints/engine.py _set_envs_and_config",
    ),
    Knob(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        read_by="cuda",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="SGLang overwrites it with 8 in any case.",
        source="S/entrypoints/engine.py; rule variable_is_overwritten",
    ),
    Knob(
        name="SGLANG_AUTO_NUMA_BIND",
        read_by="sglang",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="On by default: each rank is bound to its GPU's node. It agrees with numa_node, which binds the rest of "
        "the server. 0.5.17 does not read it and binds all the same.",
        source="S/utils/numa_utils.py",
    ),
    Knob(
        name="SGLANG_SET_CPU_AFFINITY",
        read_by="sglang",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="Shares out the cores by number and knows no NUMA node. Rule cpu_affinity_ignores_numa.",
        source="S/utils/common.py",
    ),
    Knob(
        name="SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL",
        read_by="sglang",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="5 s, and 2 misses (SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE), make decode forget a prefill after "
        "10 s. pdlab restarts a prefill after 15 s because of that. Rule heartbeat_outlives_restart.",
        source="S/environ.py; S/disaggregation/common/conn.py",
    ),
    Knob(
        name="SGLANG_DISAGGREGATION_ENGINE_INIT_TIMEOUT",
        read_by="sglang",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="60 s for NIXL to come up, then the server fails instead of hanging. New after 0.5.17.",
        source="S/environ.py",
        since="0.5.23",
    ),
    Knob(
        name="SGLANG_DISAGGREGATION_QUEUE_SIZE",
        read_by="sglang",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="The number of transfer threads of prefill with NIXL, 4. SGLANG_DISAGGREGATION_THREAD_POOL_SIZE does "
        "nothing for NIXL.",
        source="S/disaggregation/nixl/conn.py",
    ),
    Knob(
        name="PYTORCH_CUDA_ALLOC_CONF",
        read_by="torch",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="expandable_segments is refused with prefill and decode. Rule expandable_segments.",
        source="ai-dynamo/nixl#1754",
    ),
    Knob(
        name="CUDA_VISIBLE_DEVICES",
        read_by="cuda",
        use=LEFT_ALONE,
        value=None,
        when="never set by pdlab",
        why="All GPUs are visible to every server, and --base-gpu-id counts them: the way that SGLang's own NIXL test "
        "takes. Rule visible_devices.",
        source="sglang/test, test_disaggregation_nixl.py",
    ),
)
