# SPDX-License-Identifier: GPL-3.0-or-later
"""From pd_benchmark (workloads by name, or points written out) to the points that are measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import shapes, workload_points
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults, suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID

DEFAULT_WORKLOAD = "default"
LIMIT_NAMES = ("ttft_ms", "tpot_ms", "e2e_ms")

_LIMITS = shapes.list_of(
    shapes.mapping({name: shapes.number(0, above_low=True) for name in LIMIT_NAMES}),
    empty=True,
    what="limits, for example `- {ttft_ms: 1000, tpot_ms: 50}`",
)
_SETTINGS = {
    "input_len": shapes.integer(1),
    "output_len": shapes.integer(1),
    "range_ratio": shapes.number(0, 1),
    "seed": shapes.integer(0),
    "limit_s": shapes.number(0, above_low=True),
    "dataset": shapes.choice(workload_points.RANDOM_IDS, workload_points.SHARED_PREFIX),
    "prefix_groups": shapes.integer(1),
    "prefix_len": shapes.integer(1),
    "limits": _LIMITS,
    "waves": shapes.integer(1),
    "percentile": shapes.choice(*workload_points.SAMPLES_NEEDED),
    "duration_s": shapes.number(0, above_low=True),
}
_POINT_WORDS = shapes.mapping(
    {
        "concurrency": shapes.integer(1),
        "rate_s": shapes.number(0, above_low=True),
        "prompts": shapes.integer(1),
        **_SETTINGS,
    }
)


def _point(faults: Faults, key: str, value: Any) -> Any:
    """A point's words, with exactly one load."""
    given = [load for load in ("concurrency", "rate_s") if isinstance(value, Mapping) and value.get(load) is not None]
    if isinstance(value, Mapping) and len(given) != 1:
        problem = "has a concurrency and a rate_s" if given else "has neither a concurrency nor a rate_s"
        faults.add(key, problem, "write one: concurrency: 16 (closed loop) or rate_s: 2 (open loop)")
    return _POINT_WORDS(faults, key, value)


_POINTS = shapes.list_of(_point, what="points, for example `- {concurrency: 16}` or `- {rate_s: 2}`")
# What names what is measured; all else is a setting.
_CHOICES = ("workloads", "sweep", "name", "points")


def resolve_benchmark(
    variable: Any, presets: Mapping[str, Any], faults: Faults, key: str = "pd_benchmark"
) -> dict[str, Any] | None:
    """The plan's `benchmark`: {"name", "workloads": [names], "points": [POINT]}; None when it is faulty.

    `variable` is pd_benchmark: None, {"workloads": [NAME or {"name": NAME, overrides…}], overrides…}, the same for one
    workload as {"sweep": NAME}, or {"points": [...], "name"?, overrides…}. A lone workload's description and whatever
    else it says is kept.
    `presets` maps workload names to {"points": [{"concurrency" or "rate_s", "prompts"?}], "input_len", …}.
    """
    found = len(faults)
    if variable is None:
        variable = {}
    if not isinstance(variable, Mapping):
        faults.add(key, f"is {shapes.kind(variable)}, not a mapping", f"write `workloads: [{DEFAULT_WORKLOAD}]`")
        return None
    if _badly_named(variable, presets, faults, key):
        return None
    overrides = (key, {name: value for name, value in variable.items() if name not in _CHOICES and value is not None})
    if "points" in variable:
        name = variable.get("name") or "custom"
        own = (key, {"points": variable["points"]})
        kept, points = _workload(name, [own, overrides], faults)
    else:
        kept, points, names = {}, [], []
        for where, workload, own_words in _entries(variable, presets, faults, key):
            preset = (f"workloads.{workload}", presets[workload])
            kept, more = _workload(workload, [(where, own_words), overrides, preset], faults)
            points += more
            names.append(workload)
        kept = kept if len(names) == 1 else {}
        name = variable.get("name") or "+".join(names)
    if len(faults) > found:
        return None
    workloads = list(dict.fromkeys(point["workload"] for point in points))
    return {"name": name, "workloads": workloads, **kept, "points": workload_points.labelled(points)}


def _badly_named(variable: Mapping[str, Any], presets: Mapping[str, Any], faults: Faults, key: str) -> bool:
    """Note what makes it unclear what is to be measured."""
    found = len(faults)
    for name in ("sweep", "name"):
        if name in variable and not _is_name(variable[name]):
            faults.add(f"{key}.{name}", f"is {shapes.kind(variable[name])}, not a workload's name", _known(presets))
    for name, other in (("sweep", "points"), ("workloads", "points"), ("sweep", "workloads")):
        if variable.get(name) is not None and other in variable:
            faults.add(
                f"{key}.{name}", f"stands beside {other}, so it is not clear which are meant", "keep one of them"
            )
    return len(faults) > found


def _entries(
    variable: Mapping[str, Any], presets: Mapping[str, Any], faults: Faults, key: str
) -> list[tuple[str, str, dict[str, Any]]]:
    """The workloads that are asked for and known, each as (key path, name, its own overrides)."""
    where, asked = f"{key}.sweep", [variable.get("sweep") or DEFAULT_WORKLOAD]
    if variable.get("workloads") is not None:
        where, asked = f"{key}.workloads", variable["workloads"]
        if not isinstance(asked, (list, tuple)) or not asked:
            example = f"write for example `workloads: [{next(iter(presets), DEFAULT_WORKLOAD)}]`"
            faults.add(where, f"is {shapes.kind(asked) if asked else 'empty'}, not a list of names", example)
            return []
    entries: list[tuple[str, str, dict[str, Any]]] = []
    for index, entry in enumerate(asked):
        at = where if where.endswith("sweep") else f"{where}[{index}]"
        own = dict(entry) if isinstance(entry, Mapping) else {}
        name = own.pop("name", None) if own else entry
        if not _is_name(name):
            said = (
                "has no name"
                if own or isinstance(entry, Mapping)
                else f"is {shapes.kind(entry)}, not a workload's name"
            )
            faults.add(at, said, _known(presets))
        elif name not in presets:
            faults.add(at, f"there is no workload {name!r}", suggestion(name, list(presets)) or _known(presets))
        elif not isinstance(presets[name], Mapping):
            faults.add(
                f"workloads.{name}", f"is {shapes.kind(presets[name])}, not a mapping", "give it a list of points"
            )
        elif any(name == earlier for _at, earlier, _own in entries):
            faults.add(at, f"names {name} again", "name each workload once")
        else:
            entries.append((at, name, own))
    return entries


def _workload(
    name: str, layers: Sequence[tuple[str, Mapping[str, Any]]], faults: Faults
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One workload: what else its preset says, and its points without labels.

    `layers` are (key path, words), the strongest first and the preset last; a fault is listed under the path of the
    layer that said it.
    """
    found = len(faults)
    preset = layers[-1][1]
    allowed = {*_CHOICES, *_SETTINGS, *preset}
    for key, words in layers:
        for setting in words:
            if setting not in allowed:
                faults.add(f"{key}.{setting}", "is an unknown key", suggestion(setting, sorted(allowed)))
    settings: dict[str, Any] = {}
    for setting, check in _SETTINGS.items():
        for key, words in layers:
            if words.get(setting) is not None:
                checked = check(faults, f"{key}.{setting}", words[setting])
                if checked is not INVALID:
                    settings[setting] = checked
                break
    key, raw = next(
        ((key, words["points"]) for key, words in layers if words.get("points") is not None), (layers[-1][0], None)
    )
    at = f"{key}.points"
    points = _POINTS(faults, at, raw)
    if points is INVALID:
        return {}, []
    if len(faults) > found:
        return {}, []
    finished = [workload_points.finished(point, settings, name) for point in points]
    for index, point in enumerate(finished):
        for what, problem, cure in workload_points.faults_of(point):
            faults.add(f"{at}[{index}].{what}", problem, cure)
    kept = {what: value for what, value in preset.items() if what not in _SETTINGS and what not in _CHOICES}
    return kept, finished


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _known(presets: Mapping[str, Any]) -> str:
    return "write one of " + ", ".join(str(name) for name in presets) if presets else "write a name"
