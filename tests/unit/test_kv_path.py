# SPDX-License-Identifier: Apache-2.0
"""The path of KV memory between GPUs, judged. Figures of the good and the bad path are those of two H200s."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import KV
from ansible_collections.pdlab.pdlab.plugins.module_utils.kv_path import path_fault

GOOD = {"memory": "VRAM", "transport": "zero-copy cuda_ipc/cuda", "gib_s": 336.6, "copy_gib_s": 367.9}


def test_memory_that_goes_from_gpu_to_gpu_nearly_as_fast_as_a_copy_is_well() -> None:
    assert path_fault(GOOD) is None


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"transport": "software emulation tcp/lo", "gib_s": 0.35}, "instead of cuda_ipc"),
        # A fast network beside a slow copy hides the detour from the speed, never from the name.
        ({"transport": "zero-copy rc_mlx5/mlx5_0:1", "copy_gib_s": 1.0}, "instead of cuda_ipc"),
        ({"gib_s": 0.4}, "too slowly"),
        ({"transport": None, "gib_s": 0.4}, "too slowly"),
        ({"transport": None, "copy_gib_s": None}, "unknown"),
    ],
)
def test_a_detour_is_a_fault_with_the_speeds(other: dict[str, Any], said: str) -> None:
    fault = path_fault({**GOOD, **other})
    assert fault is not None
    assert said in fault
    assert KV.cure not in fault, "it is said once, by whoever shows the fault"


def test_a_path_that_ucx_does_not_name_is_judged_by_its_speed() -> None:
    assert path_fault({**GOOD, "transport": None}) is None


def test_memory_of_the_host_may_go_any_way() -> None:
    assert path_fault({"memory": "DRAM", "transport": "zero-copy tcp/lo", "gib_s": 0.1, "copy_gib_s": 9.0}) is None


def test_a_result_depends_on_the_variables_that_decide_over_the_path_and_on_no_others() -> None:
    options = {"python": "/x", "memory": "vram", "devices": [0, 4]}
    key = KV.key({**options, "environments": [{"HOME": "/a", "UCX_TLS": "cuda_ipc"}, {"PATH": "/b"}]}, "boot")
    assert key == KV.key({**options, "environments": [{"UCX_TLS": "cuda_ipc"}, {}]}, "boot")
    assert key != KV.key({**options, "environments": [{"UCX_TLS": "tcp"}, {}]}, "boot")
