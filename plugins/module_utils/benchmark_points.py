# SPDX-License-Identifier: GPL-3.0-or-later
"""From a sweep (a preset by name, or points written out) to the points that are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import shapes
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults, suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID

DEFAULT_SWEEP = "default"
# Read when neither the inventory nor the preset says otherwise. Lengths in tokens; limit_s is per point.
DEFAULTS: dict[str, Any] = {"input_len": 256, "output_len": 128, "range_ratio": 1.0, "seed": 42, "limit_s": 600}

_COMMON = {
    "input_len": shapes.integer(1),
    "output_len": shapes.integer(1),
    "range_ratio": shapes.number(0, 1),
    "seed": shapes.integer(0),
    "limit_s": shapes.number(0, above_low=True),
}
_POINT = shapes.mapping(
    {"concurrency": shapes.integer(1), "prompts": shapes.integer(1), **_COMMON},
    required={"concurrency": "16", "prompts": "48"},
)
_POINTS = shapes.list_of(_POINT, what="points, for example `- {concurrency: 16, prompts: 48}`")


def resolve_benchmark(
    variable: Any, presets: Mapping[str, Any], faults: Faults, key: str = "pd_benchmark"
) -> dict[str, Any] | None:
    """The plan's `benchmark`: {"name", "points": [POINT], and the preset's other fields}; None when it is faulty.

    `variable` is pd_benchmark: None, {"sweep": NAME, overrides…} or {"points": [...], "name"?, overrides…}.
    `presets` maps sweep names to {"points": [{"concurrency", "prompts"}], "input_len", …}.
    """
    found = len(faults)
    if variable is None:
        variable = {}
    if not isinstance(variable, Mapping):
        faults.add(key, f"is {shapes.kind(variable)}, not a mapping", f"write `sweep: {DEFAULT_SWEEP}` below it")
        return None
    preset, where = _preset(variable, presets, faults, key)
    allowed = {"sweep", "name", "points", *_COMMON, *preset}
    settings: dict[str, Any] = {name: value for name, value in preset.items() if name not in ("points", "name")}
    for name, value in variable.items():
        if name not in allowed:
            faults.add(f"{key}.{name}", "is an unknown key", suggestion(name, sorted(allowed)))
        elif name not in ("sweep", "name", "points") and value is not None:
            settings[name] = value
    for name, check in _COMMON.items():
        if name in settings:
            source = key if variable.get(name) is not None else where
            checked = check(faults, f"{source}.{name}", settings[name])
            settings[name] = DEFAULTS[name] if checked is INVALID else checked
    raw = variable["points"] if variable.get("points") is not None else preset.get("points")
    points = _POINTS(faults, f"{where}.points", raw) if len(faults) == found or raw is not None else []
    if len(faults) > found or points is INVALID:
        return None
    common = {name: settings.pop(name, default) for name, default in DEFAULTS.items()}
    resolved = [{**common, **point} for point in points]
    for index, point in enumerate(resolved):
        if point["prompts"] < point["concurrency"]:
            problem = f"{point['prompts']} prompts never keep {point['concurrency']} requests in flight"
            faults.add(f"{where}.points[{index}].prompts", problem, f"write {point['concurrency']} or more")
    name = variable.get("name") or (variable.get("sweep") or DEFAULT_SWEEP if preset else "custom")
    return {"name": name, **settings, "points": _labelled(resolved)} if len(faults) == found else None


def _preset(
    variable: Mapping[str, Any], presets: Mapping[str, Any], faults: Faults, key: str
) -> tuple[Mapping[str, Any], str]:
    """The preset that is asked for, and the key path under which its faults are listed."""
    sweep = variable.get("sweep")
    for name in ("sweep", "name"):
        if name in variable and not (isinstance(variable[name], str) and variable[name].strip()):
            faults.add(f"{key}.{name}", f"is {shapes.kind(variable[name])}, not a sweep's name", _known(presets))
            return {}, key
    if "points" in variable:
        if sweep is not None:
            faults.add(f"{key}.sweep", "stands beside points, so it is not clear which are meant", "keep one of them")
        return {}, key
    sweep = sweep or DEFAULT_SWEEP
    if sweep not in presets:
        faults.add(f"{key}.sweep", f"there is no sweep {sweep!r}", suggestion(sweep, list(presets)) or _known(presets))
        return {}, key
    if not isinstance(presets[sweep], Mapping):
        faults.add(f"sweeps.{sweep}", f"is {shapes.kind(presets[sweep])}, not a mapping", "give it a list of points")
        return {}, f"sweeps.{sweep}"
    return presets[sweep], f"sweeps.{sweep}"


def _known(presets: Mapping[str, Any]) -> str:
    return "write one of " + ", ".join(str(name) for name in presets) if presets else "write a name"


def _labelled(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each point a label that no other has: c16-n48, with its lengths or a count where that is not enough."""
    names = [f"c{point['concurrency']}-n{point['prompts']}" for point in points]
    lengths = [f"-i{point['input_len']}-o{point['output_len']}" for point in points]
    longer = [name if names.count(name) == 1 else name + lengths[index] for index, name in enumerate(names)]
    labels = [
        name if longer.count(name) == 1 else f"{name}-r{longer[: index + 1].count(name)}"
        for index, name in enumerate(longer)
    ]
    fields = ("concurrency", "prompts", *DEFAULTS)
    return [{"label": labels[index], **{name: point[name] for name in fields}} for index, point in enumerate(points)]
