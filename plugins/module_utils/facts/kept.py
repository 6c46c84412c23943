# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier runs of pdlab left on the box: environments, the KV probe's result, references, services."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import model_state, oracle_run, target_layout, venv_state
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import COLLECTIVES, KV
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import servers_defined


def read_kept(root: str, model: str | None = None) -> dict[str, Any]:
    """{"environments": {path: state}, PROBE: {"boot", "document"}, "references": {index: file}, "services"?: [names],
    "model"}; never raises.

    An environment's state is that of `venv_state.read_venv`. `references` has the index files that name an intact
    reference, with the reference's file. `services` has the servers that are defined, and is left out when that cannot
    be read. "model" is what `model_state.read_model` knows of the model at `model`, with its "path" and "root"; None
    when that is not all. The actions of locked_venv, the probes, model_files and pd_oracle take this as `seen`, and
    then need not look again.
    """
    state = target_layout.state_dir(root)
    known = model_state.read_model(root, model) if model else None
    paths = (target_layout.engine_dir(root), target_layout.supervisor_venv(root))
    return {
        "environments": {path: venv_state.read_venv(path) for path in paths},
        **{probe.name: probe.read(state) for probe in (KV, COLLECTIVES)},
        "references": _references(oracle_run.settings_dir(os.path.join(state, "references"))),
        **_services(root),
        "model": {"root": root, "path": model, **known} if known else None,
    }


def _services(root: str) -> dict[str, list[str]]:
    try:
        return {"services": servers_defined(root)}
    except OSError:
        return {}


def _references(directory: str) -> dict[str, str]:
    try:
        indexes = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    except OSError:
        return {}
    found = {index: oracle_run.find_by_settings(index)[0] for index in indexes if index.endswith(".json")}
    return {index: path for index, path in found.items() if path}
