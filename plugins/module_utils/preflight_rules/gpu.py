# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on each GPU: whether it is there, free, whole, and in the state in which it computes at full speed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen

# Below this, memory in use on a GPU is what the driver itself takes.
IDLE_GPU_MIB = 1024
# Reasons for lower clocks that are no fault: nothing to do, or limits that somebody set (nvidia-smi's names).
HARMLESS_THROTTLING = ("idle", "sw_power_cap", "applications_clocks", "sync_boost", "display", "none")
PROHIBITED = "prohibited"


def _present(view: View) -> Seen:
    gpu = view.facts["gpu"]
    if view.gpus:
        return True, f"{len(view.gpus)} GPUs, driver {gpu['driver']}"
    on_bus = f"{len(gpu['pci_devices'])} NVIDIA devices on the PCI bus, " if gpu["pci_devices"] else ""
    return False, on_bus + (gpu["error"] or "nvidia-smi lists none")


def _enough(view: View) -> Seen:
    known = [gpu["index"] for gpu in view.gpus]
    missing = [gpu for gpu in view.gpus_declared if gpu not in known]
    has = f"this box has {gpu_names(known)}"
    return not missing, f"no {gpu_names(missing)}; {has}" if missing else has


def _busy(view: View) -> list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Declared GPUs in use by others, with the processes that nvidia-smi names (none when it cannot see them)."""
    busy = []
    for gpu in view.used_gpus:
        foreign = [process for process in gpu["processes"] or [] if not process.get("own")]
        unseen = not gpu["processes"] and (gpu["memory_used_mib"] or 0) > IDLE_GPU_MIB
        if foreign or unseen:
            busy.append((gpu, foreign))
    return busy


def _idle(view: View) -> Seen:
    said = []
    for gpu, foreign in _busy(view):
        users = ", ".join(f"PID {process['pid']} ({process['command']})" for process in foreign)
        said.append(
            f"GPU {gpu['index']}: {gpu['memory_used_mib']} MiB used by {users or 'a process that cannot be seen'}"
        )
    if said:
        return False, "; ".join(said)
    if any(gpu["processes"] is None for gpu in view.used_gpus):
        return None, "nvidia-smi does not list the processes"
    return True, f"{gpu_names(view.gpus_declared)} are idle or run pdlab's own servers"


def _busy_cure(view: View) -> str:
    pids = sorted({str(process["pid"]) for _gpu, foreign in _busy(view) for process in foreign})
    if pids:
        return f"stop it: kill {' '.join(pids)}; or choose other gpus"
    return "stop what runs there (nvidia-smi names it to root), or choose other gpus"


def _left_alone(view: View) -> Seen:
    gpu = view.facts["gpu"]
    count = len(gpu["gpus"] or gpu["pci_devices"])
    return count == 0, f"{count} GPUs, and this inventory rehearses on the CPU" if count else "no GPU"


def _alike(view: View) -> Seen:
    seen = []
    for server in view.servers:
        kinds: dict[str, list[int]] = {}
        for gpu in view.used_gpus:
            if gpu["index"] in server["gpus"]:
                kinds.setdefault(f"{gpu['name']} with {gpu['memory_total_mib']} MiB", []).append(gpu["index"])
        if len(kinds) > 1:
            each = ", ".join(f"{gpu_names(indices)} {kind}" for kind, indices in kinds.items())
            seen.append(f"{server['name']}: {each}")
    return not seen, "; ".join(seen) or "the GPUs of each server are alike"


def _flag(view: View, key: str, wanted: bool, words: tuple[str, str]) -> Seen:
    """A setting that is on or off on every GPU in use: words for on and for off."""
    known = [gpu.get(key) for gpu in view.used_gpus]
    seen = "; ".join(grouped(view, lambda gpu: "not said" if gpu.get(key) is None else words[0 if gpu[key] else 1]))
    if any(value is (not wanted) for value in known):
        return False, seen
    return (None if None in known else True), seen


def _switch(view: View, key: str, value: bool, command: str) -> str:
    """The command for the GPUs in use with this setting; how to look, where it is not known which they are."""
    chosen = [str(gpu["index"]) for gpu in view.used_gpus if gpu.get(key) is value]
    return command.format(",".join(chosen)) if chosen else "nvidia-smi -q shows it, where the board has it"


def _compute_mode(view: View, prohibited: bool) -> Seen:
    modes = [gpu.get("compute_mode") for gpu in view.used_gpus]
    seen = "; ".join(grouped(view, lambda gpu: gpu.get("compute_mode") or "not said"))
    if None in modes:
        return None, seen
    words = [str(mode).lower() for mode in modes]
    return not any(word == PROHIBITED if prohibited else word != "default" for word in words), seen


def _is_prohibited(view: View) -> bool:
    return any((gpu.get("compute_mode") or "").lower() == PROHIBITED for gpu in view.used_gpus)


def _mps(view: View) -> Seen:
    runs = view.facts["gpu"].get("mps")
    return (
        (None, "the processes cannot be listed") if runs is None else (not runs, "it runs" if runs else "not running")
    )


def _power(view: View) -> Seen:
    known = [(gpu.get("power_limit_w"), gpu.get("power_default_w")) for gpu in view.used_gpus]
    capped = grouped(
        view,
        lambda gpu: f"{gpu['power_limit_w']:g} of {gpu['power_default_w']:g} W" if _is_capped(gpu) else None,
    )
    if capped:
        return False, "; ".join(capped)
    if any(None in pair for pair in known):
        return None, "nvidia-smi does not say the power limits"
    return True, "no power limit below the board's own"


def _is_capped(gpu: Mapping[str, Any]) -> bool:
    limit, default = gpu.get("power_limit_w"), gpu.get("power_default_w")
    return limit is not None and default is not None and limit < default - 0.5


def _power_cure(view: View) -> str:
    capped = [gpu for gpu in view.used_gpus if _is_capped(gpu)]
    if not capped:
        return "nvidia-smi -q -d POWER shows it, where the board has it"
    indices = ",".join(str(gpu["index"]) for gpu in capped)
    return f"nvidia-smi -i {indices} -pl {capped[0]['power_default_w']:g}"


def throttling(gpu: Mapping[str, Any]) -> list[str]:
    """The reasons for lower clocks that are faults: heat, the power brake, a hardware slowdown."""
    found = []
    for reason in gpu.get("throttle_reasons") or []:
        plain = re.sub(r"[^a-z]+", "_", str(reason).lower())
        if not any(word in plain for word in HARMLESS_THROTTLING):
            found.append(str(reason))
    return found


def _throttled(view: View) -> Seen:
    def said(gpu: Mapping[str, Any]) -> str | None:
        heat = f" at {gpu['temperature_c']} °C" if gpu.get("temperature_c") is not None else ""
        return f"{', '.join(throttling(gpu))}{heat}" if throttling(gpu) else None

    seen = grouped(view, said)
    if seen:
        return False, "; ".join(seen)
    if any(gpu.get("throttle_reasons") is None for gpu in view.used_gpus):
        return None, "nvidia-smi does not say why clocks are what they are"
    return True, "nothing holds the clocks down"


RULES: tuple[Rule, ...] = (
    Rule(
        id="gpu_absent",
        severity=VETO,
        finds="`pd_device` is cuda, and nvidia-smi lists no GPU",
        applies=lambda view: view.cuda,
        check=_present,
        wanted="an NVIDIA driver that lists the GPUs",
        why="pd_device is cuda.",
        cure="install the NVIDIA driver and see that nvidia-smi lists the GPUs, or use an inventory for the CPU",
    ),
    Rule(
        id="gpus_fewer_than_declared",
        severity=VETO,
        finds="`pd_servers` names a GPU that this box does not have",
        applies=lambda view: view.cuda and bool(view.gpus),
        check=_enough,
        wanted=lambda view: gpu_names(view.gpus_declared),
        why="pd_servers names GPUs that are not there.",
        cure="correct gpus in pd_servers (nvidia-smi -L lists them)",
    ),
    Rule(
        id="gpu_busy",
        severity=VETO,
        finds="a declared GPU is used by somebody else, or more than 1 GiB of it by a process that cannot be seen",
        applies=uses_gpus,
        check=_idle,
        wanted=lambda view: f"{gpu_names(view.gpus_declared)} free of other processes",
        why="A server takes nearly all of a GPU's memory, and a shared GPU measures nothing.",
        cure=_busy_cure,
        cure_in_words="kill PID (it is named when it can be seen); or choose other gpus in pd_servers",
    ),
    Rule(
        id="mig_on",
        severity=VETO,
        finds="a GPU that is cut into MIG instances",
        applies=uses_gpus,
        check=lambda view: _flag(view, "mig", False, ("MIG", "whole")),
        wanted="whole GPUs",
        why="CUDA sees one instance of such a GPU, and none reaches another GPU's memory.",
        cure=lambda view: _switch(view, "mig", True, "nvidia-smi -i {} -mig 0"),
        cure_in_words="nvidia-smi -i GPUS -mig 0",
        # Boards that cannot do MIG say N/A.
        unknown=INFO,
        source="NVIDIA MIG user guide, CUDA device enumeration and limits",
    ),
    Rule(
        id="compute_mode_prohibited",
        severity=VETO,
        finds="a GPU on which no process may compute",
        applies=lambda view: uses_gpus(view) and _is_prohibited(view),
        check=lambda view: _compute_mode(view, True),
        wanted="compute mode Default",
        why="No CUDA context can be made there: the server ends at its start.",
        cure="nvidia-smi -c DEFAULT",
        source="nvidia-smi(1), --compute-mode",
    ),
    Rule(
        id="compute_mode_exclusive",
        severity=WARN,
        finds="a GPU on which only one process may compute",
        applies=lambda view: uses_gpus(view) and not _is_prohibited(view),
        check=lambda view: _compute_mode(view, False),
        wanted="compute mode Default",
        why="pdlab's probes, or what else asks the GPU, and the server shut each other out.",
        cure="nvidia-smi -c DEFAULT",
        source="nvidia-smi(1), --compute-mode",
    ),
    Rule(
        id="mps_running",
        severity=WARN,
        finds="NVIDIA's Multi-Process Service runs",
        applies=uses_gpus,
        check=_mps,
        wanted="no MPS",
        why="All servers become clients of one MPS server: a fatal fault of one ends the others, and a server of another "
        "user waits until they are gone.",
        cure="echo quit | nvidia-cuda-mps-control",
        source="NVIDIA MPS documentation, error containment",
    ),
    Rule(
        id="gpus_differ",
        severity=WARN,
        finds="GPUs of different kinds in one server",
        applies=uses_gpus,
        check=_alike,
        wanted="one kind of GPU in each server",
        why="The slowest sets the pace of tensor parallelism, and the smallest the room for the KV cache.",
        cure="group equal gpus in pd_servers (nvidia-smi -L lists them)",
    ),
    Rule(
        id="gpu_throttled",
        severity=WARN,
        finds="a GPU whose clocks are held down by heat, the power brake or a hardware slowdown",
        applies=uses_gpus,
        check=_throttled,
        wanted="clocks that nothing but idleness or a chosen limit holds down",
        why="Such a GPU is slower than its twins now, and no figure says so later.",
        cure="look at nvidia-smi -q -d PERFORMANCE,TEMPERATURE, then at fans, air flow and power cables",
        unknown=INFO,
    ),
    Rule(
        id="persistence_off",
        severity=WARN,
        finds="persistence mode is off",
        applies=uses_gpus,
        check=lambda view: _flag(view, "persistence", True, ("on", "off")),
        wanted="persistence mode on",
        why="Without it the driver puts a GPU down whenever nobody uses it: first contacts take seconds, and settings such "
        "as a power limit are lost.",
        cure="nvidia-smi -pm 1; to make it last, pd_host: {gpu_persistence: true}",
        unknown=INFO,
        source="NVIDIA driver persistence documentation",
    ),
    Rule(
        id="power_capped",
        severity=INFO,
        finds="a power limit below the board's default",
        applies=uses_gpus,
        check=_power,
        wanted="the board's default limit, or a lower one on purpose",
        why="Prefill is bound by power: figures hold for this limit only.",
        cure=_power_cure,
        cure_in_words="nvidia-smi -i GPUS -pl WATTS",
    ),
    Rule(
        id="ecc_off",
        severity=INFO,
        finds="ECC is off on a GPU that has it",
        applies=lambda view: uses_gpus(view) and any(gpu.get("ecc") is not None for gpu in view.used_gpus),
        check=lambda view: _flag(view, "ecc", True, ("on", "off")),
        wanted="ECC on",
        why="A flipped bit in weights or KV cache gives wrong tokens without any error.",
        cure=lambda view: _switch(view, "ecc", False, "nvidia-smi -i {} -e 1, then reboot"),
        cure_in_words="nvidia-smi -i GPUS -e 1, then reboot",
    ),
    Rule(
        id="gpus_unused",
        severity=INFO,
        finds="the inventory rehearses on the CPU, and there are GPUs",
        applies=lambda view: view.plan["device"] == "cpu",
        check=_left_alone,
        wanted="an inventory that uses the GPUs, where there are any",
        why="A rehearsal on the CPU says nothing about their speed.",
        cure="have an inventory written for the GPUs: pdlab init -o FOLDER, then: pdlab up -i FOLDER",
    ),
)
