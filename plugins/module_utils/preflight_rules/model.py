# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on a model that lies on the target already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.disk import model_paths
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import VETO, Rule, View

if TYPE_CHECKING:
    from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.rule import Seen


def _is_local(view: View) -> bool:
    return view.plan["model"]["source"] == "local" and bool(view.servers)


def _has_weights(view: View) -> bool:
    return bool(view.plan["model"].get("weights") != "dummy")


def _exists(view: View) -> Seen:
    unseen = [path for path in model_paths(view) if view.path(path).get("exists") is None]
    missing = [path for path in model_paths(view) if view.path(path).get("exists") is False]
    if missing:
        return False, f"{missing[0]} does not exist"
    return (None, f"{unseen[0]} was not looked at") if unseen else (True, f"{model_paths(view)[0]} exists")


def _whole(view: View) -> Seen:
    checkpoint = view.facts["checkpoint"]
    if checkpoint is None:
        return None, "the checkpoint was not looked at"
    return not checkpoint["faults"], "; ".join(checkpoint["faults"]) or f"{checkpoint['path']} is whole"


RULES: tuple[Rule, ...] = (
    Rule(
        id="model_absent",
        severity=VETO,
        finds="`pd_model.path` does not exist, and the source is local",
        applies=_is_local,
        check=_exists,
        wanted=lambda view: f"the checkpoint at {', '.join(model_paths(view))}",
        why="pd_model.source is local: nothing fetches it.",
        cure="put the checkpoint there, or correct pd_model.path",
    ),
    Rule(
        id="checkpoint_incomplete",
        severity=VETO,
        finds="a missing configuration, tokenizer or shard, or a shard shorter than its own header says",
        applies=lambda view: _is_local(view) and _has_weights(view) and bool(_exists(view)[0]),
        check=_whole,
        wanted="config, tokenizer and every shard that the index names, each of its full size",
        why="The engine would fail minutes into loading, or load what is not the model.",
        cure="fetch the missing files again: hf download OWNER/NAME --local-dir DIRECTORY takes up where it stopped",
    ),
)
