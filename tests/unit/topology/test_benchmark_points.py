# SPDX-License-Identifier: Apache-2.0
"""From sweeps to points."""

from __future__ import annotations

from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.benchmark_points import resolve_benchmark
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults

from .conftest import PRESETS


def resolved(variable: Any, presets: dict[str, Any] | None = None) -> dict[str, Any]:
    faults = Faults()
    benchmark = resolve_benchmark(variable, PRESETS if presets is None else presets, faults)
    assert benchmark is not None, list(map(str, faults))
    return benchmark


def test_no_variable_means_the_default_sweep() -> None:
    benchmark = resolved(None)
    assert benchmark["name"] == "default"
    assert [point["label"] for point in benchmark["points"]] == ["c1-n8", "c16-n48", "c64-n96"]
    assert benchmark["points"][0] == {
        "label": "c1-n8",
        "concurrency": 1,
        "prompts": 8,
        "input_len": 256,
        "output_len": 128,
        "range_ratio": 1.0,
        "seed": 42,
        "limit_s": 600,
    }


def test_what_else_a_preset_says_is_kept() -> None:
    assert resolved(None)["description"] == "three loads"


def test_the_inventory_overrides_a_presets_lengths() -> None:
    points = resolved({"sweep": "campaign", "output_len": 64})["points"]
    assert (points[0]["range_ratio"], points[0]["output_len"]) == (0.0, 64)


def test_a_point_overrides_its_sweep() -> None:
    benchmark = resolved({"points": [{"concurrency": 2, "prompts": 4, "input_len": 9}], "input_len": 7})
    assert benchmark["name"] == "custom"
    assert benchmark["points"][0]["input_len"] == 9


def test_labels_are_unique_by_lengths_then_by_count() -> None:
    same = {"concurrency": 1, "prompts": 8}
    points = resolved({"name": "mine", "points": [same, same, {**same, "input_len": 512}]})["points"]
    assert [point["label"] for point in points] == ["c1-n8-i256-o128-r1", "c1-n8-i256-o128-r2", "c1-n8-i512-o128"]


def test_a_fault_of_a_preset_names_the_preset() -> None:
    faults = Faults()
    assert resolve_benchmark(None, {"default": {"points": [{"concurrency": 1, "prompts": -1}]}}, faults) is None
    assert [fault.key for fault in faults] == ["sweeps.default.points[0].prompts"]


def test_a_preset_without_points_is_a_fault() -> None:
    faults = Faults()
    assert resolve_benchmark({"sweep": "x"}, {"x": {"input_len": 1}}, faults) is None
    assert [fault.key for fault in faults] == ["sweeps.x.points"]


def test_without_presets_the_default_is_a_fault_not_an_error() -> None:
    faults = Faults()
    assert resolve_benchmark(None, {}, faults) is None
    assert "there is no sweep 'default'" in str(next(iter(faults)))
