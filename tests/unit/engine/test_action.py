# SPDX-License-Identifier: Apache-2.0
"""The engine rules on the host: what the inventory left open is decided there, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.action.engine_rules import judged
from ansible_collections.pdlab.pdlab.plugins.action.topology import locked_engine

from .conftest import RTX_PRO_6000, V4, box, planned

BLACKWELL = [{"index": index, "compute_capability": RTX_PRO_6000} for index in range(8)]
NOTHING: dict[str, Any] = {"gpus": [], "sglang": "", "quantization": "", "architecture": ""}
EVERYTHING: dict[str, Any] = {"gpus": BLACKWELL, "sglang": "0.5.23", "quantization": "nvfp4", "architecture": V4}


def silent_box(**changes: Any) -> dict[str, Any]:
    """The reference box with nothing declared."""
    inventory = box(pd_model={"path": "/srv/models/flash"}, **changes)
    del inventory["pd_compute_capability"]
    return inventory


def states(result: dict[str, Any]) -> dict[str, str]:
    return {verdict["rule"]: verdict["state"] for verdict in result["verdicts"]}


def test_a_box_that_is_what_the_inventory_declares_passes_without_a_word() -> None:
    result = judged(planned(box()), "box1", EVERYTHING)
    assert not result.get("failed") and result["warnings"] == []
    assert result["compute_capability"] == {"prefill-0": "12.0", "decode-0": "12.0"}


def test_a_flag_that_the_plan_does_not_have_is_a_failure_that_says_what_to_write() -> None:
    result = judged(planned(silent_box()), "box1", EVERYTHING)
    assert result["failed"] and len(result["faults"]) == 2
    assert "write `moe-runner-backend: flashinfer_cutlass` into pd_server_args" in result["msg"]
    assert "pd_compute_capability" in result["msg"] and "(rule moe_runner_nvfp4_sm120)" in result["msg"]


def test_what_the_host_shows_refuses_what_the_plan_could_not() -> None:
    plan = planned(silent_box(pd_server_args={"moe-runner-backend": "flashinfer_trtllm_routed"}))
    assert not judged(
        plan, "box1", {**EVERYTHING, "gpus": [{**gpu, "compute_capability": "10.0"} for gpu in BLACKWELL]}
    ).get("failed")
    result = judged(plan, "box1", EVERYTHING)
    assert result["failed"] and "(rule trtllm_moe_on_sm120)" in result["faults"][0]


def test_what_stays_unknown_is_a_warning_that_names_the_facts() -> None:
    result = judged(planned(silent_box(), version=None), "box1", NOTHING)
    assert not result.get("failed")
    (warning,) = [line for line in result["warnings"] if "could not be decided" in line]
    assert "moe_runner_nvfp4_sm120 (compute capability, quantization, architecture)" in warning
    assert states(result)["moe_runner_nvfp4_sm120"] == "undecided"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"gpus": [{**gpu, "compute_capability": "9.0"} for gpu in BLACKWELL]}, "pd_compute_capability is 12.0"),
        ({"quantization": "modelopt_fp8"}, "pd_model.quantization is nvfp4, and the checkpoint's is fp8"),
        ({"architecture": "LlamaForCausalLM"}, "pd_model.architecture is DeepseekV4ForCausalLM"),
    ],
)
def test_a_declaration_that_the_host_contradicts_is_a_failure(found: dict[str, Any], words: str) -> None:
    result = judged(planned(box()), "box1", {**EVERYTHING, **found})
    assert result["failed"] and words in result["msg"] and "correct it, or remove it" in result["msg"]


def test_the_installed_engine_decides_and_not_the_lock() -> None:
    plan = planned(box(pd_server_args={"disaggregation-ib-device": "mlx5_0"}))
    assert "ib_device_ignored" not in states(judged(plan, "box1", EVERYTHING))
    result = judged(plan, "box1", {**EVERYTHING, "sglang": "0.5.17"})
    assert result["failed"] and "(rule ib_device_ignored)" in result["msg"]


def test_a_doubt_is_a_warning_at_every_deployment() -> None:
    result = judged(planned(box(pd_server_env={"UCX_TLS": "tcp,cuda_copy"})), "box1", EVERYTHING)
    assert not result.get("failed")
    assert all("(rule ucx_without_cuda_ipc)" in line for line in result["warnings"]) and len(result["warnings"]) == 2


def test_the_result_says_why_each_variable_is_there() -> None:
    result = judged(planned(box()), "box1", EVERYTHING)
    (line,) = [line for line in result["environment"]["prefill-0"] if line["name"] == "NCCL_DEBUG"]
    assert line["from"] == "profile" and line["why"] and line["source"]


@pytest.mark.parametrize(
    ("variables", "version"),
    [
        ({}, "0.5.23"),
        ({"pd_device": "cpu"}, "0.5.23"),
        ({"pd_engine": {"lock": "cuda13"}}, "0.5.23"),
        ({"pd_engine": {"lock": "/nowhere/lock.txt"}}, None),
        ({"pd_engine": {"existing": {"python": "/usr/bin/python3"}}}, None),
        ({"pd_engine": {"existing": {"python": "/usr/bin/python3", "sglang": "0.5.17"}}}, "0.5.17"),
    ],
)
def test_the_plan_goes_by_the_locks_version_and_by_none_for_an_engine_that_pdlab_does_not_build(
    variables: dict[str, Any], version: str | None
) -> None:
    assert locked_engine(variables) == version


def test_a_lock_of_ones_own_says_its_version(tmp_path: Path) -> None:
    lock = tmp_path / "mine.txt"
    lock.write_text("sglang==0.5.17 \\\n    --hash=sha256:00\n")
    assert locked_engine({"pd_engine": {"lock": str(lock)}}) == "0.5.17"
