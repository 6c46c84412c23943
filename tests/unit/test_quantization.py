# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's quantization is read as the engine reads it (sglang 0.5.23, model_config.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.quantization import mismatch, quantization_of

from tests.checkpoints import safetensors

NVFP4_EXPERTS = {
    "quant_algo": "MIXED_PRECISION",
    "moe_quant_algo": "NVFP4",
    "group_size": 16,
    "quant_method": "modelopt",
}
MIXED = {
    "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {"a": {"quant_algo": "NVFP4"}, "b": {"quant_algo": "FP8"}},
}
OLD_MIXED = {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "INT4"}}}

# (what config.json says, what hf_quant_config.json says, label, method, source)
CASES: list[tuple[dict[str, Any], dict[str, Any] | None, str, str, str]] = [
    ({}, None, "none", "none", "config.json"),
    ({"quantization_config": {"quant_method": "fp8"}}, None, "fp8", "fp8", "config.json"),
    ({"quantization_config": {"quant_method": "mxfp4"}}, None, "mxfp4", "mxfp4", "config.json"),
    (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
        None, "modelopt_nvfp4", "modelopt_fp4", "config.json",
    ),
    ({"quantization_config": {"quant_algo": "FP8"}}, None, "fp8", "modelopt_fp8", "config.json"),
    ({"quantization_config": NVFP4_EXPERTS}, None, "modelopt_nvfp4", "w4afp8", "config.json"),
    ({}, {"quantization": {"quant_algo": "NVFP4"}}, "modelopt_nvfp4", "modelopt_fp4", "hf_quant_config.json"),
    ({}, {"quantization": MIXED}, "modelopt_nvfp4", "modelopt_mixed", "hf_quant_config.json"),
    ({}, {"quantization": OLD_MIXED}, "w4afp8", "w4afp8", "hf_quant_config.json"),
    ({}, {"quantization": {"quant_algo": "FP8"}}, "fp8", "modelopt_fp8", "hf_quant_config.json"),
    ({}, {"quantization": {"quant_algo": "MXFP8"}}, "mxfp8", "mxfp8", "hf_quant_config.json"),
    # config.json is asked first.
    (
        {"quantization_config": {"quant_method": "fp8"}}, {"quantization": {"quant_algo": "NVFP4"}},
        "fp8", "fp8", "config.json",
    ),
    (
        {"quantization_config": {"quant_method": "fp8", "routed_experts_quant_method": "mxfp4"}},
        None, "mxfp4", "fp8", "config.json",
    ),
    ({"quantization_config": {"quant_method": "awq"}}, None, "awq", "awq", "config.json"),
    (
        {"compression_config": {"quant_method": "compressed-tensors"}},
        None, "compressed-tensors", "compressed-tensors", "config.json",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "separate", "label", "method", "source"), CASES)
def test_each_kind_of_checkpoint_is_known(
    tmp_path: Path, config: dict[str, Any], separate: dict[str, Any] | None, label: str, method: str, source: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **config}))
    if separate is not None:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(separate))
    assert quantization_of(str(tmp_path)) == {"label": label, "method": method, "source": source}


@pytest.mark.parametrize(("dtype", "label"), [("I8", "mxfp4"), ("U8", "mxfp4"), ("F8_E4M3", "fp8")])
@pytest.mark.parametrize("indexed", [True, False])
def test_the_experts_of_a_deepseek_v4_are_told_by_their_weights_type(
    tmp_path: Path, dtype: str, label: str, indexed: bool
) -> None:
    config = {"architectures": ["DeepseekV4ForCausalLM"], "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    expert = "model.layers.3.mlp.experts.0.w1.weight"
    (tmp_path / "model.safetensors").write_bytes(safetensors({expert: bytes(8)}, dtype))
    if indexed:
        index = {"weight_map": {"model.norm.weight": "other.safetensors", expert: "model.safetensors"}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert quantization_of(str(tmp_path))["label"] == label


def test_another_quantization_than_declared_names_both_and_the_file() -> None:
    found = {"label": "fp8", "method": "modelopt_fp8", "source": "hf_quant_config.json"}
    assert mismatch(found, None) is None
    assert mismatch(found, "fp8") is None
    message = mismatch(found, "modelopt_nvfp4")
    assert message is not None
    assert message.startswith(
        "pd_model.quantization is modelopt_nvfp4, and hf_quant_config.json says fp8 (modelopt_fp8)"
    )


def test_a_configuration_that_is_no_json_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is no JSON"):
        quantization_of(str(tmp_path))
