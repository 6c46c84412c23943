# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on the links: each GPU's PCIe link, and whether GPUs that must talk reach each other's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    INFO,
    VETO,
    WARN,
    Rule,
    View,
    gpu_names,
    grouped,
    uses_gpus,
)

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Pair, Seen

# An idle GPU lets its link fall to generation 1. From half of its highest clock on, it is at work.
AT_WORK = 0.5
# ACS controls that send peer-to-peer requests up to the root complex, or drop them (PCI Express base specification,
# access control services).
REDIRECTS = ("source_validation", "request_redirect", "completion_redirect")
SHORT = {"source_validation": "SrcValid", "request_redirect": "ReqRedir", "completion_redirect": "CmpltRedir"}
CUDA_GUIDE = "CUDA programming guide, IOMMU on Linux"
NCCL_GUIDE = "NCCL user guide, troubleshooting, PCI access control services"


# --- each GPU's own link -----------------------------------------------------------------------------------------------


def _pcie(gpu: Mapping[str, Any]) -> Mapping[str, Any]:
    return gpu.get("pcie") or {}


def _below(gpu: Mapping[str, Any], what: str) -> bool | None:
    """Whether a GPU's link is below what GPU and slot both can; None when that is not known."""
    now, most = _pcie(gpu).get(what), _pcie(gpu).get(f"{what}_max")
    return None if now is None or most is None else now < most


def _at_work(gpu: Mapping[str, Any]) -> bool:
    clocks = gpu.get("clocks_mhz") or {}
    now, most = clocks.get("sm"), clocks.get("sm_max")
    return bool(now and most and now >= AT_WORK * most)


def _width(view: View) -> Seen:
    known = [_below(gpu, "width") for gpu in view.used_gpus]
    low = grouped(view, lambda gpu: "x{width} of x{width_max}".format(**_pcie(gpu)) if _below(gpu, "width") else None)
    if low:
        return False, "; ".join(low)
    if None in known:
        return None, "the width of a link cannot be read"
    return True, "; ".join(grouped(view, lambda gpu: "x{width}".format(**_pcie(gpu))))


def _generation(view: View, at_work: bool) -> Seen:
    asked = [gpu for gpu in view.used_gpus if _at_work(gpu) is at_work]
    low = grouped(
        view,
        lambda gpu: (
            "generation {generation} of {generation_max}".format(**_pcie(gpu))
            if gpu in asked and _below(gpu, "generation")
            else None
        ),
    )
    if low and at_work:
        return False, "; ".join(low) + ", at work"
    if low:
        # Idle GPUs save power so: whether the link reaches its generation shows under load only.
        return None, "; ".join(low) + ", but idle, when a GPU saves power"
    if any(_below(gpu, "generation") is None for gpu in asked):
        return None, "the generation of a link cannot be read"
    return True, "; ".join(
        grouped(view, lambda gpu: "generation {generation}".format(**_pcie(gpu)) if gpu in asked else None)
    )


def _shows_generation(view: View) -> bool:
    """Whether GPUs are at work, so that their links show what they can: all of them, or one whose link is low."""
    low = any(_at_work(gpu) and _below(gpu, "generation") for gpu in view.used_gpus)
    return low or all(_at_work(gpu) for gpu in view.used_gpus)


# --- between GPUs ------------------------------------------------------------------------------------------------------


def _says(server: Mapping[str, Any], name: str) -> str | None:
    value = (server.get("environment") or {}).get(name)
    return None if value is None else str(value)


def _p2p_declined(server: Mapping[str, Any]) -> bool:
    """The inventory says that all-reduce is not to use P2P: neither NCCL's nor SGLang's own.

    SGLang has one of its own for two GPUs (can_use_custom_all_reduce_with_nvlink in custom_all_reduce_utils.py), and
    one for PCIe that is switched on (pcie_ipc_ar.py).
    """
    own = len(server["gpus"]) == 2 and not server["args"].get("disable-custom-all-reduce")
    pcie = _says(server, "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") in ("1", "true", "True")
    return _says(server, "NCCL_P2P_DISABLE") == "1" and not own and not pcie


def _ipc_declined(server: Mapping[str, Any]) -> bool:
    """The inventory names UCX transports without cuda_ipc."""
    transports = _says(server, "UCX_TLS")
    if transports is None:
        return False
    names = [name.strip() for name in transports.lstrip("^").split(",")]
    listed = any(name in ("cuda_ipc", "cuda", "all") for name in names)
    return listed if transports.startswith("^") else not listed


def tensor_pairs(view: View) -> list[Pair]:
    """Pairs of GPUs between which all-reduce goes by P2P, unless the inventory says otherwise."""
    servers = [server for server in view.servers if not _p2p_declined(server)]
    return _there(view, [pair for server in servers for pair in view.server_pairs(server)])


def kv_pairs(view: View) -> list[Pair]:
    """Pairs of GPUs between which KV pages go by cuda_ipc, unless the inventory says otherwise."""
    declined = any(_ipc_declined(server) for server in view.servers if server["role"] == PREFILL)
    return [] if declined else _there(view, view.kv_pairs)


def _there(view: View, pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs of GPUs that the box has; of the others another rule speaks."""
    return [pair for pair in pairs if all(view.gpu(index) for index in pair)]


def _over_pcie(view: View, pairs: Iterable[Pair]) -> list[Pair]:
    return [pair for pair in pairs if not view.by_nvlink(pair)]


def _talking(view: View) -> list[Pair]:
    """All pairs of GPUs that reach each other's memory over PCIe."""
    return _over_pcie(view, [*tensor_pairs(view), *kv_pairs(view)])


def _answers(view: View, pairs: Iterable[Pair], kinds: Iterable[str]) -> dict[Pair, str | None]:
    """What the driver says of P2P for each pair, both ways: the first answer that is not OK, None when one is missing."""
    matrix = view.facts["gpu"].get("p2p") or {}
    found: dict[Pair, str | None] = {}
    for pair in pairs:
        one, other = pair
        ways = (f"{one}-{other}", f"{other}-{one}")
        said = [(matrix.get(kind) or {}).get(way) for kind in kinds for way in ways]
        found[pair] = next((word for word in said if word not in ("OK", None)), None if None in said else "OK")
    return found


def _p2p(view: View, pairs: list[Pair], kinds: tuple[str, ...]) -> Seen:
    answers = _answers(view, pairs, kinds)
    refused: dict[str, list[Pair]] = {}
    for pair, word in answers.items():
        if word not in ("OK", None) and not word.startswith("U"):
            refused.setdefault(word, []).append(pair)
    if refused:
        return False, "; ".join(f"{word} between {_pairs(found)}" for word, found in refused.items())
    if set(answers.values()) - {"OK"}:
        return None, "nvidia-smi topo -p2p does not say it for every pair"
    return True, f"OK between {gpu_names(gpu for pair in pairs for gpu in pair)}"


def _pairs(pairs: list[Pair]) -> str:
    if len(pairs) > 3:
        return f"{len(pairs)} pairs of {gpu_names(gpu for pair in pairs for gpu in pair)}"
    return ", ".join("GPUs {} and {}".format(*pair) for pair in pairs)


# --- what stands in their way ------------------------------------------------------------------------------------------


def turning_bridges(view: View, pair: Pair) -> list[str] | None:
    """The bridges below the point where the ways to two GPUs part; None when the ways are not known.

    At a common switch these are its ports; without one, the whole ways up to both root ports.
    """
    one, other = (view.gpu(index).get("bridges") for index in pair)
    if one is None or other is None:
        return None
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return [*one[shared:], *other[shared:]]


def _redirecting(view: View, pairs: Iterable[Pair]) -> tuple[dict[str, list[str]], bool]:
    """({bridge: its ACS controls that redirect}, whether anything on the way could not be read)."""
    known = view.facts.get("pci_bridges") or {}
    found: dict[str, list[str]] = {}
    blind = False
    for pair in pairs:
        bridges = turning_bridges(view, pair)
        blind = blind or bridges is None
        for address in bridges or []:
            bridge = known.get(address)
            controls = (bridge or {}).get("acs")
            if bridge is None or (controls is None and not bridge.get("acs_readable")):
                blind = True
            active = [name for name in REDIRECTS if (controls or {}).get(name)]
            if active:
                found[address] = active
    return found, blind


def _acs(view: View) -> Seen:
    found, blind = _redirecting(view, _talking(view))
    if found:
        controls: dict[str, list[str]] = {}
        for address, active in sorted(found.items()):
            controls.setdefault(", ".join(SHORT[name] for name in active), []).append(address)
        return False, "; ".join(f"{names} on {' '.join(addresses)}" for names, addresses in controls.items())
    if blind:
        return None, "the ACS controls of the bridges cannot be read as this user"
    return True, "no redirection on the bridges between them"


def _acs_cure(view: View) -> str:
    found, _blind = _redirecting(view, _talking(view))
    if not found:
        return "lspci -vvv | grep -i acsctl, as root, shows them"
    clear = f"for bridge in {' '.join(sorted(found))}; do setpci -s $bridge ECAP_ACS+6.w=0000; done"
    return f"{clear} (as root, until the next boot), or switch ACS off in the BIOS"


def _iommu(view: View) -> Seen:
    iommu = view.facts.get("iommu") or {}
    if iommu.get("enabled") is False:
        return True, "no IOMMU is on"
    mode = iommu.get("mode")
    if mode is None:
        return None, "the kernel does not say what the IOMMU does"
    if mode == "translated" and view.virtual:
        # The guest's IOMMU; the hypervisor hands out whole devices, which NVIDIA supports.
        return None, "the guest's IOMMU translates, and what the host's does cannot be seen"
    return (
        mode != "translated",
        "the IOMMU translates" if mode == "translated" else "the IOMMU passes addresses through",
    )


def _bar1(view: View) -> Seen:
    known = [gpu.get("bar1_total_mib") for gpu in view.used_gpus]
    small = grouped(
        view,
        lambda gpu: (
            f"BAR1 {gpu['bar1_total_mib']} of {gpu['memory_total_mib']} MiB"
            if gpu.get("bar1_total_mib") is not None and gpu["bar1_total_mib"] < (gpu["memory_total_mib"] or 0)
            else None
        ),
    )
    if small:
        return False, "; ".join(small)
    return (None, "nvidia-smi does not say it") if None in known else (True, "BAR1 holds the whole memory")


def _talk_over_pcie(view: View) -> bool:
    return uses_gpus(view) and bool(_talking(view))


RULES: tuple[Rule, ...] = (
    Rule(
        id="link_width_low",
        severity=WARN,
        finds="a GPU's PCIe link has fewer lanes than GPU and slot both can",
        applies=uses_gpus,
        check=_width,
        wanted="every lane that GPU and slot have",
        why="Half the lanes are half the speed of all-reduce and of KV transfer. Width does not change with load: this is a "
        "loose card, a bad riser or a slot with fewer lanes.",
        cure="reseat the card and its riser, then look again: nvidia-smi -q -d PCIE",
    ),
    Rule(
        id="link_generation_low",
        severity=WARN,
        finds="a GPU at work whose PCIe link is below the generation that GPU and slot both can",
        applies=lambda view: uses_gpus(view) and _shows_generation(view),
        check=lambda view: _generation(view, True),
        wanted="the generation that GPU and slot both can",
        why="A generation less is half the speed of all-reduce and of KV transfer. Risers and cables fall back so.",
        cure="set the slot to its generation in the BIOS, reseat card and riser: nvidia-smi -q -d PCIE",
    ),
    Rule(
        id="link_generation_low",
        severity=INFO,
        finds="the same of an idle GPU, which proves nothing: an idle GPU lets its link fall to save power",
        applies=lambda view: uses_gpus(view) and not _shows_generation(view),
        check=lambda view: _generation(view, False),
        wanted="the generation that GPU and slot both can, under load",
        why="Only a link that stays low under load is a fault.",
        cure="while something runs: nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max --format=csv",
    ),
    Rule(
        id="p2p_refused",
        severity=VETO,
        finds="the driver refuses P2P between GPUs of one server",
        applies=lambda view: uses_gpus(view) and bool(tensor_pairs(view)),
        check=lambda view: _p2p(view, tensor_pairs(view), ("read", "write")),
        wanted="OK for every pair in nvidia-smi topo -p2p r and w",
        why="Without it every all-reduce goes through the host's memory, several times slower, and nothing says so. CNS is "
        "the chipset, GNS the GPU, TNS the topology, DR a driver setting.",
        cure='look at nvidia-smi topo -p2p r; or accept it with pd_server_env: {NCCL_P2P_DISABLE: "1"} (for two GPUs also '
        "pd_server_args: {disable-custom-all-reduce: true})",
        source="nvidia-smi topo --help; NCCL user guide, NCCL_P2P_DISABLE",
    ),
    Rule(
        id="kv_p2p_refused",
        severity=VETO,
        finds="the driver refuses P2P writes from a prefill's GPU to a decode's GPU on the same host",
        applies=lambda view: uses_gpus(view) and bool(kv_pairs(view)),
        check=lambda view: _p2p(view, kv_pairs(view), ("write",)),
        wanted="OK for every pair in nvidia-smi topo -p2p w",
        why="UCX cannot use cuda_ipc then and sends the KV cache through TCP: everything looks healthy, and the first token "
        "takes ten times longer.",
        cure="look at nvidia-smi topo -p2p w; or accept it with pd_server_env: {UCX_TLS: 'tcp,cuda_copy,sm,self'}",
        source="nixl #1097, #1195; measured on two H200 with UCX_TLS=tcp,cuda_copy: time to first token 13 times longer",
    ),
    Rule(
        id="acs_redirects_p2p",
        severity=WARN,
        finds="a bridge between GPUs that talk redirects peer-to-peer requests (ACS), and no NVLink goes around it",
        applies=_talk_over_pcie,
        check=_acs,
        wanted="no SrcValid+, ReqRedir+ or CmpltRedir+ on the bridges between them",
        why="All traffic between the GPUs then goes up to the root complex: slow at best, and NCCL has hung so, with the "
        "GPUs at 100 % until a reset.",
        cure=_acs_cure,
        cure_in_words="for bridge in BRIDGES; do setpci -s $bridge ECAP_ACS+6.w=0000; done (as root, until the next boot), "
        "or switch ACS off in the BIOS",
        source=f"{NCCL_GUIDE}; NCCL #1999, #2079",
    ),
    Rule(
        id="iommu_translates",
        severity=VETO,
        finds="an IOMMU that translates addresses, on a machine where GPUs talk over PCIe",
        applies=_talk_over_pcie,
        check=_iommu,
        wanted="no IOMMU, or one that passes through (iommu=pt)",
        why="CUDA does not support P2P copies through a translating IOMMU: writes can get lost while every call says "
        "success, or NCCL hangs.",
        cure="""sed -i 's/^GRUB_CMDLINE_LINUX="/&iommu=pt /' /etc/default/grub && update-grub, then reboot""",
        source=f"{CUDA_GUIDE}; NCCL #1999",
    ),
    Rule(
        id="bar1_small",
        severity=INFO,
        finds="a GPU whose BAR1 is smaller than its memory, where GPUs talk over PCIe",
        applies=_talk_over_pcie,
        check=_bar1,
        wanted="a BAR1 that holds the whole memory",
        why="Other devices reach a GPU's memory through BAR1; a small one limits how much at once.",
        cure="switch on Above 4G Decoding and Resizable BAR in the BIOS, then look at nvidia-smi -q -d MEMORY",
        source="NVIDIA GPUDirect RDMA documentation, BAR sizes",
    ),
)
