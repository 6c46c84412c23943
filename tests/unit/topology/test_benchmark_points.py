# SPDX-License-Identifier: Apache-2.0
"""From workloads to points."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.benchmark_points import resolve_benchmark
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults

from .conftest import PRESETS


def resolved(variable: Any, presets: dict[str, Any] | None = None) -> dict[str, Any]:
    faults = Faults()
    benchmark = resolve_benchmark(variable, PRESETS if presets is None else presets, faults)
    assert benchmark is not None, list(map(str, faults))
    return benchmark


def test_no_variable_means_the_default_workload() -> None:
    benchmark = resolved(None)
    assert benchmark["name"] == "default"
    assert [point["label"] for point in benchmark["points"]] == ["c1-n8", "c16-n48", "c64-n96"]
    assert benchmark["workloads"] == ["default"]
    assert benchmark["points"][0] == {
        "label": "c1-n8",
        "workload": "default",
        "loop": "closed",
        "concurrency": 1,
        "rate_s": None,
        "prompts": 8,
        "input_len": 256,
        "output_len": 128,
        "range_ratio": 1.0,
        "seed": 42,
        "limit_s": 600,
        "dataset": "random-ids",
        "limits": [],
    }


def test_what_else_a_preset_says_is_kept() -> None:
    assert resolved(None)["description"] == "three loads"


def test_the_inventory_overrides_a_presets_lengths() -> None:
    points = resolved({"sweep": "campaign", "output_len": 64})["points"]
    assert (points[0]["range_ratio"], points[0]["output_len"]) == (0.0, 64)


def test_a_point_overrides_its_workload() -> None:
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
    assert [fault.key for fault in faults] == ["workloads.default.points[0].prompts"]


def test_a_preset_without_points_is_a_fault() -> None:
    faults = Faults()
    assert resolve_benchmark({"sweep": "x"}, {"x": {"input_len": 1}}, faults) is None
    assert [fault.key for fault in faults] == ["workloads.x.points"]


def test_without_presets_the_default_is_a_fault_not_an_error() -> None:
    faults = Faults()
    assert resolve_benchmark(None, {}, faults) is None
    assert "there is no workload 'default'" in str(next(iter(faults)))


OPEN = {"short": PRESETS["default"], "chat": {"points": [{"rate_s": 0.5}, {"rate_s": 4}], "duration_s": 30}}


def refused(variable: Any, presets: dict[str, Any] | None = None) -> dict[str, str]:
    faults = Faults()
    assert resolve_benchmark(variable, OPEN if presets is None else presets, faults) is None
    return {fault.key: fault.problem for fault in faults}


def test_several_workloads_are_measured_one_after_the_other_under_labels_of_their_own() -> None:
    benchmark = resolved({"workloads": ["short", "chat"]}, OPEN)
    assert benchmark["name"] == "short+chat" and benchmark["workloads"] == ["short", "chat"]
    assert [point["label"] for point in benchmark["points"]] == [
        "short-c1-n8",
        "short-c16-n48",
        "short-c64-n96",
        "chat-r0.5-n64",
        "chat-r4-n120",
    ]


def test_a_point_with_a_rate_is_an_open_loop_without_a_limit_of_requests_in_flight() -> None:
    point = resolved({"workloads": ["chat"]}, OPEN)["points"][1]
    assert (point["loop"], point["rate_s"], point["concurrency"]) == ("open", 4, None)


def test_one_workload_of_several_may_be_changed_alone() -> None:
    benchmark = resolved(
        {"workloads": ["short", {"name": "chat", "points": [{"rate_s": 9}], "seed": 7}], "seed": 3}, OPEN
    )
    assert [(point["label"], point["seed"]) for point in benchmark["points"]][-2:] == [
        ("short-c64-n96", 3),
        ("chat-r9-n270", 7),
    ]


@pytest.mark.parametrize(
    ("point", "settings", "prompts"),
    [
        ({"concurrency": 1}, {}, 64),  # the sample that a 90th percentile needs
        ({"concurrency": 64}, {}, 320),  # five waves
        ({"concurrency": 64}, {"waves": 10}, 640),
        ({"concurrency": 1}, {"percentile": "p50"}, 11),
        ({"rate_s": 2}, {}, 120),  # a minute
        ({"rate_s": 2}, {"duration_s": 300}, 600),
        ({"rate_s": 0.5}, {}, 64),
        ({"rate_s": 0.5}, {"prompts": 5}, 5),
    ],
)
def test_a_point_gets_as_many_prompts_as_its_load_and_its_percentile_need(
    point: dict[str, Any], settings: dict[str, Any], prompts: int
) -> None:
    own = {name: value for name, value in settings.items() if name == "prompts"}
    rest = {name: value for name, value in settings.items() if name != "prompts"}
    assert resolved({"points": [{**point, **own}], **rest})["points"][0]["prompts"] == prompts


def test_prompts_that_share_prefixes_come_in_whole_groups() -> None:
    point = resolved({"points": [{"concurrency": 1}], "dataset": "shared-prefix", "prefix_groups": 10})["points"][0]
    assert (point["prompts"], point["prefix_groups"], point["prefix_len"]) == (70, 10, 128)


def test_limits_are_kept_with_every_point_and_can_be_overridden() -> None:
    presets = {"chat": {**OPEN["chat"], "limits": [{"ttft_ms": 1000}]}}
    assert resolved({"workloads": ["chat"]}, presets)["points"][0]["limits"] == [{"ttft_ms": 1000}]
    limits = [{"ttft_ms": 500, "tpot_ms": 20}, {"e2e_ms": 9000}]
    assert resolved({"workloads": ["chat"], "limits": limits}, presets)["points"][1]["limits"] == limits


@pytest.mark.parametrize(
    ("variable", "wrong"),
    [
        (
            {"workloads": ["shrot", 5, "chat", "chat"], "limits": [{"ttft": 1}], "waves": 0},
            ["workloads[0]", "workloads[1]", "workloads[3]", "limits[0].ttft", "waves"],
        ),
        ({"workloads": []}, ["workloads"]),
        ({"workloads": "short"}, ["workloads"]),
        ({"workloads": ["short"], "sweep": "chat"}, ["sweep"]),
        ({"workloads": ["short"], "points": [{"rate_s": 1}]}, ["workloads"]),
        ({"workloads": [{"rates": [1]}]}, ["workloads[0]"]),
        ({"workloads": [{"name": "chat", "rates": [1]}]}, ["workloads[0].rates"]),
        (
            {"points": [{"prompts": 5}, {"rate_s": 1, "concurrency": 1}, {"rate_s": 0}]},
            ["points[0]", "points[1]", "points[2].rate_s"],
        ),
        (
            {"points": [{"concurrency": 1}], "dataset": "shared-prefix", "input_len": 100, "range_ratio": 0.5},
            ["points[0].prefix_len", "points[0].range_ratio"],
        ),
        ({"points": [{"concurrency": 1, "prompts": 9}], "dataset": "shared-prefix"}, ["points[0].prompts"]),
    ],
)
def test_every_fault_is_listed_under_the_words_that_said_it(variable: dict[str, Any], wrong: list[str]) -> None:
    assert set(refused(variable)) == {f"pd_benchmark.{key}" for key in wrong}
