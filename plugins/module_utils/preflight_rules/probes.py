# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on what was tried: KV memory moved between GPUs, and collectives among them.

Facts have `probes`: {"kv", "collectives"}, each a probe's document, or {"ok": None, "why": why nothing was tried}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import COLLECTIVES, KV
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import (
    INFO,
    VETO,
    WARN,
    Rule,
    View,
    gpu_names,
    uses_gpus,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.probe_options import probe_options

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

# GT/s of one lane by generation, and the share of it that is no encoding (PCI Express base specification: 8b/10b up to
# generation 2, 128b/130b from 3 on). From 6 on, FLIT mode carries 236 of 256 bytes.
LANE_GT_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
ENCODED = {1: 8 / 10, 2: 8 / 10, 6: 236 / 256}
USUAL_ENCODING = 128 / 130
# Headers take a tenth or so of a link; a write that gets less than half of what is left takes another way.
LEAST_SHARE = 0.45
NOT_TRIED = "not tried in this run"


def link_gib_s(gpu: Mapping[str, Any]) -> float | None:
    """What a GPU's PCIe link carries in one direction at its highest generation, in GiB/s; None when not known.

    GT/s of a lane, times its lanes, times the share that is no encoding, over 8 bits.
    """
    pcie = gpu.get("pcie") or {}
    generation, width = pcie.get("generation_max"), pcie.get("width")
    if generation not in LANE_GT_S or not width:
        return None
    return float(LANE_GT_S[generation] * width * ENCODED.get(generation, USUAL_ENCODING) * 1e9 / 8 / 2**30)


def _probe(view: View, name: str) -> Mapping[str, Any]:
    return (view.facts.get("probes") or {}).get(name) or {"ok": None, "why": NOT_TRIED}


def _kv_pair(view: View) -> list[int]:
    return list((probe_options(view.plan, view.host)["kv"] or {}).get("devices") or [])


def _ceiling(view: View) -> float | None:
    """The slower PCIe link of the two GPUs, in GiB/s; None over NVLink, on one GPU, or when it is not known."""
    pair = _kv_pair(view)
    if len(set(pair)) < 2 or view.by_nvlink((pair[0], pair[1])):
        return None
    links = [link_gib_s(view.gpu(index)) for index in pair]
    return None if None in links else min(link for link in links if link is not None)


def _kv_path(view: View) -> Seen:
    probe = _probe(view, "kv")
    if probe["ok"] is not True:
        return (None if probe["ok"] is None else False), str(probe.get("why"))
    ceiling = _ceiling(view)
    link = f", and the PCIe link carries {ceiling:.1f} GiB/s" if ceiling else ""
    way = probe["transport"] or "a path that UCX does not name"
    source, target = _kv_pair(view)
    said = f"{probe['gib_s']:.1f} GiB/s from GPU {source} to GPU {target} over {way}"
    others = [f"{pair['devices'][0]} to {pair['devices'][1]}" for pair in probe.get("pairs") or ()]
    too = f"; as well, at once or in turn, from GPU {', '.join(others)}" if others else ""
    return True, f"{said}; a plain copy makes {probe['copy_gib_s']:.1f} GiB/s{link}{too}"


def _kv_speed(view: View) -> Seen:
    probe, ceiling = _probe(view, "kv"), _ceiling(view)
    if probe["ok"] is not True or ceiling is None:
        return None, str(probe.get("why") or NOT_TRIED)
    share = probe["gib_s"] / ceiling
    return share >= LEAST_SHARE, f"{probe['gib_s']:.1f} GiB/s, {share:.0%} of the PCIe link's {ceiling:.1f} GiB/s"


def _collectives(view: View) -> Seen:
    probe = _probe(view, "collectives")
    if probe["ok"] is not True:
        return (None if probe["ok"] is None else False), str(probe.get("why"))
    groups = [
        f"{row['ranks']} ranks: {row['latency_us']:.0f} us, {row['bus_gib_s']:.1f} GiB/s" for row in probe["groups"]
    ]
    return True, "; ".join(groups)


def _talks(view: View) -> bool:
    return uses_gpus(view) and probe_options(view.plan, view.host)["collectives"] is not None


def _moves(view: View) -> bool:
    """An arm that moves no KV cache does not try it either."""
    return uses_gpus(view) and probe_options(view.plan, view.host)["kv"] is not None


def _moved(view: View) -> bool:
    return uses_gpus(view) and bool(_probe(view, "kv").get("ok")) and _ceiling(view) is not None


UNTRIED = "pdlab deploy tries it as soon as the engine is there; then pdlab preflight shows it"

RULES: tuple[Rule, ...] = (
    Rule(
        id="kv_path_indirect",
        severity=VETO,
        unknown=INFO,
        finds="KV memory that does not go from GPU to GPU, tried with a real transfer over NIXL and UCX",
        applies=_moves,
        check=_kv_path,
        wanted="a write over cuda_ipc, at no less than a tenth of a plain copy",
        why="Through TCP and host memory every check passes, every request completes, TPOT hardly moves, and the first "
        "token takes many times longer.",
        cure=lambda view: UNTRIED if _probe(view, "kv")["ok"] is None else KV.cure,
        cure_in_words=KV.cure,
        source="13 times the TTFT on two H200s, with an NVLink counter that stayed at 0",
    ),
    Rule(
        id="kv_slower_than_link",
        severity=WARN,
        finds="KV memory that moves at less than half of what the PCIe link carries, tried with a real transfer",
        applies=_moved,
        check=_kv_speed,
        wanted=f"{LEAST_SHARE:.0%} of the slower link or more",
        why="Each prompt's KV cache goes over this path before its first token.",
        cure="look at acs_redirects_p2p, iommu_translates and link_width_low; `nvidia-smi topo -m` shows the path",
        source="PCI Express base specification: GT/s of a lane, lanes, encoding",
    ),
    Rule(
        id="collectives_hang",
        severity=VETO,
        unknown=INFO,
        finds="an all-reduce at 2, 3, 4, 8 or all ranks that hangs or fails, tried with a time limit",
        applies=_talks,
        check=_collectives,
        wanted=lambda view: f"an all-reduce among {gpu_names(view.gpus_declared)} in time",
        why="An IOMMU that translates or ACS that redirects lets it hang for ever, at full load and without an error; two "
        "ranks can hang where four pass.",
        cure=lambda view: UNTRIED if _probe(view, "collectives")["ok"] is None else COLLECTIVES.cure,
        cure_in_words=COLLECTIVES.cure,
        source="NCCL issues 1999 and 2079",
    ),
)
