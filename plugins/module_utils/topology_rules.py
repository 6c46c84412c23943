# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules between the servers of a topology: roles that belong together, GPUs, tensor parallelism, equal KV layouts.

Every rule takes servers as `drafts`: the inventory's entry with `index`, `args` (the common ones merged in) and
`host` filled in. A key that was faulty is absent, and a rule that needs it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import COLOCATED, DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults

# Prefill writes KV pages into decode's cache as they are; SGLang compares these only on the first request.
SAME_ON_BOTH_SIDES = ("page-size", "kv-cache-dtype")
# The engine's loader that fills a model with random numbers and reads no weights.
LOAD_FORMAT, DUMMY = "load-format", "dummy"
# SGLang sizes its KV cache by what is free at its own start (kv_cache_configurator.py, _profile_available_bytes), so
# two servers on one GPU get what the race gives them. A number of tokens holds in any order, a fraction bounds it.
SHARED_GPU_FLAGS = ("mem-fraction-static", "max-total-tokens")
# roles/rehearsal, canary.py: what is trained, and in the file unless more are asked for.
CANARY_HEADS = 2
Draft = Mapping[str, Any]


def key_of(draft: Draft) -> str:
    """The key path of a server."""
    return f"pd_servers[{draft['index']}]"


def label_of(draft: Draft) -> str:
    """A server's name, or its key path when it has none."""
    return str(draft.get("name") or key_of(draft))


def unique_names(drafts: Sequence[Draft], faults: Faults) -> None:
    """Two servers of one name would be one unit, one log and one record."""
    first: dict[str, Draft] = {}
    for draft in drafts:
        name = draft.get("name")
        if name is None:
            continue
        if name in first:
            problem = f"{name!r} is also the name of {key_of(first[name])}"
            faults.add(f"{key_of(draft)}.name", problem, "give each server its own name")
        first.setdefault(name, draft)


def roles_belong_together(drafts: Sequence[Draft], faults: Faults) -> None:
    """Prefill needs decode and the reverse; a colocated server is another deployment, not a third part."""
    if not drafts or any("role" not in draft for draft in drafts):
        return
    by_role: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_role.setdefault(draft["role"], []).append(draft)
    for role, other in ((PREFILL, DECODE), (DECODE, PREFILL)):
        if role in by_role and other not in by_role:
            problem = f"{label_of(by_role[role][0])} is a {role} server, and there is no {other} server"
            faults.add("pd_servers", problem, f"add a server with `role: {other}`, or make it `role: {COLOCATED}`")
    if COLOCATED in by_role and len(by_role) > 1:
        others = ", ".join(label_of(draft) for draft in drafts if draft["role"] != COLOCATED)
        for draft in by_role[COLOCATED]:
            problem = f"{label_of(draft)} is colocated and stands beside {others}"
            faults.add(f"{key_of(draft)}.role", problem, "keep colocated servers in an inventory of their own")


def gpus_are_sound(drafts: Sequence[Draft], device: str | None, faults: Faults) -> None:
    """GPUs only on cuda, each in one server unless both share it, in the row that SGLang counts from base-gpu-id."""
    holder: dict[tuple[str, int], Draft] = {}
    for draft in drafts:
        key, gpus = f"{key_of(draft)}.gpus", draft.get("gpus")
        if gpus is None:
            if device == "cuda" and "gpus" not in draft.get("given", ()):
                faults.add(key, "is missing, and pd_device is cuda", "name the GPUs, for example `gpus: [0]`")
            continue
        known = [gpu for gpu in gpus if gpu is not None]
        if device == "cpu":
            if known:
                faults.add(key, f"names GPUs {known}, and pd_device is cpu", "remove it, or set pd_device: cuda")
            continue
        if not gpus:
            faults.add(key, "names no GPU", "name the GPUs, for example `gpus: [0]`")
        _each_gpu_once(draft, known, holder, faults)
        if known and len(known) == len(gpus) == len(set(known)):
            _gpus_in_a_row(draft, known, faults)


def _each_gpu_once(draft: Draft, gpus: Sequence[int], holder: dict[tuple[str, int], Draft], faults: Faults) -> None:
    key, host = f"{key_of(draft)}.gpus", draft.get("host")
    twice = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
    if twice:
        faults.add(key, f"names GPU {twice[0]} twice", "name each GPU once")
    if host is None:
        return
    for gpu in sorted(set(gpus)):
        other = holder.setdefault((host, gpu), draft)
        if other is draft:
            continue
        if draft.get("share_gpus") and other.get("share_gpus"):
            _memory_is_bounded(draft, gpu, faults)
            _memory_is_bounded(other, gpu, faults)
        else:
            problem = f"GPU {gpu} of {host} is already in {label_of(other)}"
            faults.add(key, problem, "give each GPU to one server, or write `share_gpus: true` at both")


def _memory_is_bounded(draft: Draft, gpu: int, faults: Faults) -> None:
    """Servers that share a GPU say how much of it each takes."""
    for flag in SHARED_GPU_FLAGS:
        if draft["args"].get(flag) is None:
            problem = f"is missing, and {label_of(draft)} shares GPU {gpu}"
            cure = "set it in the server's args: without it the first to start takes nearly all of the memory"
            faults.add(f"{key_of(draft)}.args.{flag}", problem, cure)


def _gpus_in_a_row(draft: Draft, gpus: Sequence[int], faults: Faults) -> None:
    step = _whole(draft, "gpu-id-step")
    row = list(range(min(gpus), min(gpus) + step * len(gpus), step))
    if sorted(gpus) != row:
        problem = f"{list(gpus)} is not the row {row} that SGLang would use"
        cure = "name GPUs that follow each other, or set `gpu-id-step` in its args"
        faults.add(f"{key_of(draft)}.gpus", problem, cure)


def parallelism_fits(drafts: Sequence[Draft], device: str | None, faults: Faults) -> None:
    """TP x PP x DP is the number of GPUs; with DP attention, DP divides TP instead."""
    for draft in drafts:
        tp, gpus = draft.get("tp"), draft.get("gpus")
        dp = _whole(draft, "dp-size", "data-parallel-size")
        attention = bool(draft.get("args", {}).get("enable-dp-attention"))
        if device != "cuda" or not gpus or ("tp" in draft.get("given", ()) and tp is None):
            continue
        count, others = len(gpus), _replicas(draft)
        if tp is None:
            if count % others:
                problem = f"{count} GPUs cannot be shared out evenly over PP x DP = {others}"
                faults.add(
                    f"{key_of(draft)}.gpus", problem, "change the list of GPUs, or pp-size and dp-size in its args"
                )
                continue
            tp = count // others
        elif tp * others != count:
            times = f" x PP x DP {others}" if others > 1 else ""
            problem = f"TP {tp}{times} uses {tp * others} GPUs, and gpus names {count}"
            faults.add(f"{key_of(draft)}.tp", problem, f"write {count // others or 1}, or change the list of GPUs")
        if attention and tp % dp:
            problem = f"DP attention shares out TP {tp} over {dp} groups, which does not divide"
            faults.add(f"{key_of(draft)}.args.dp-size", problem, "choose a dp-size that divides tp")


def canary_has_the_heads(drafts: Sequence[Draft], model: Mapping[str, Any], faults: Faults) -> None:
    """TP divides the heads of the canary, which are known here; those of a checkpoint only the engine knows."""
    if model.get("source") != "canary":
        return
    heads = model.get("heads", CANARY_HEADS)
    for draft in drafts:
        tp = draft.get("tp") or default_tp(draft)
        attention = (
            _whole(draft, "dp-size", "data-parallel-size") if draft.get("args", {}).get("enable-dp-attention") else 1
        )
        if heads % max(1, tp // attention):
            enough = next((some for some in (4, 8, 16) if some % tp == 0), None)
            cure = f"write `heads: {enough}` in pd_model" if enough else "choose TP 1, 2, 4, 8 or 16"
            faults.add(f"{key_of(draft)}.tp", f"TP {tp} does not divide the canary's {heads} attention heads", cure)


def default_tp(draft: Draft) -> int:
    """TP of a server that does not say: what its GPUs leave after PP and DP; 1 without GPUs."""
    return max(1, len(draft.get("gpus") or [1]) // _replicas(draft))


def _replicas(draft: Draft) -> int:
    attention = draft.get("args", {}).get("enable-dp-attention")
    dp = 1 if attention else _whole(draft, "dp-size", "data-parallel-size")
    return _whole(draft, "pp-size", "pipeline-parallel-size") * dp


def _whole(draft: Draft, *names: str) -> int:
    """A flag's whole number, 1 when it is not given or not a number (the engine's own parser judges that)."""
    for name in names:
        value = draft.get("args", {}).get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 1


def has_dummy_weights(drafts: Sequence[Draft]) -> bool:
    """Whether the engine makes random weights instead of reading the checkpoint's."""
    return any(str(draft.get("args", {}).get(LOAD_FORMAT)).lower() == DUMMY for draft in drafts)


def weights_agree(drafts: Sequence[Draft], answers: Any, oracle: Any, faults: Faults) -> None:
    """Random weights in all servers or in none; no answer of theirs can be right, and equal ones prove nothing."""
    if not has_dummy_weights(drafts):
        return
    for draft in drafts:
        if not has_dummy_weights([draft]):
            problem = "is not dummy, and another server's is: they would answer with different weights"
            faults.add(f"{key_of(draft)}.args.{LOAD_FORMAT}", problem, "set it once, in pd_server_args")
    if answers:
        problem = "cannot be right: with load-format dummy the weights are random"
        faults.add("pd_answers", problem, "write `pd_answers: null` (none is asked then), or remove load-format")
    if oracle:
        problem = "proves nothing: with load-format dummy another prompt gives the same answer"
        faults.add("pd_oracle.enabled", problem, "remove it, or take a model with real weights")


def kv_layouts_agree(drafts: Sequence[Draft], faults: Faults) -> None:
    """Flags that shape a KV page must be the same on every prefill and decode server."""
    pairs = [draft for draft in drafts if draft.get("role") in (PREFILL, DECODE)]
    for flag in SAME_ON_BOTH_SIDES:
        for draft in pairs[1:]:
            mine, first = draft["args"].get(flag), pairs[0]["args"].get(flag)
            if mine != first:
                problem = f"{_said(mine)}, and {label_of(pairs[0])} {_said(first, 'has ')}"
                faults.add(f"{key_of(draft)}.args.{flag}", problem, "set it once, in pd_server_args")


def _said(value: Any, verb: str = "is ") -> str:
    return f"{verb}the engine's default" if value is None else f"{verb}{value}"
