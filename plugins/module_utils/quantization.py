# SPDX-License-Identifier: GPL-3.0-or-later
"""How a checkpoint is quantized, read as the engine reads it.

After sglang 0.5.23, srt/configs/model_config.py: `_parse_quant_hf_config` takes config.json's quantization_config,
then its compression_config, then the file hf_quant_config.json; `_parse_modelopt_quant_config` turns ModelOpt's
quant_algo into a method; ModelConfig.__init__ finds MXFP4 and NVFP4 experts in otherwise FP8 checkpoints, and
srt/configs/deepseek_v4.py tells DeepSeek V4's from the type of the experts' weights.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.checkpoint import INDICES, header_of

NVFP4 = "modelopt_nvfp4"
MXFP4 = "mxfp4"
FP8 = "fp8"
NONE = "none"
DECLARED = (NVFP4, MXFP4, FP8, NONE)

# The engine's method (srt/layers/quantization/__init__.py), and what pd_model.quantization calls it.
LABELS = {"modelopt_fp4": NVFP4, "modelopt_mixed": NVFP4, "mxfp4": MXFP4, "modelopt_fp8": FP8, "fp8": FP8}
DEEPSEEK_V4 = ("DeepseekV4ForCausalLM", "DeepseekV4ForCausalLMNextN", "DeepseekV4ForCausalLMDSpark")
PACKED_FP4_TYPES = ("U8", "I8", "F4")
_ROUTED_EXPERT = re.compile(r"\.experts\.\d+\..*\.weight\Z")


def quantization_of(path: str) -> dict[str, str]:
    """{"label", "method", "source"} of the checkpoint in `path`.

    label is one of DECLARED, or the engine's own name of any other method; source is the file that says so.
    Raises ValueError when a file that should say it is no JSON mapping.
    """
    config = _read(path, "config.json") or {}
    source = "config.json"
    found = config.get("quantization_config") or config.get("compression_config")
    if found is None:
        found, source = _read(path, "hf_quant_config.json"), "hf_quant_config.json"
    if found is None:
        return {"label": NONE, "method": NONE, "source": "config.json"}
    if not isinstance(found, Mapping):
        raise ValueError(f"{source}: the quantization is no mapping")
    method = _method(found)
    label = _experts(found) or LABELS.get(method, method)
    architectures = config.get("architectures") or [""]
    if label == FP8 and "routed_experts_quant_method" not in found and architectures[0] in DEEPSEEK_V4:
        # The engine looks at the weights: FP8 outside, packed FP4 experts inside.
        label = MXFP4 if _routed_expert_type(path) in PACKED_FP4_TYPES else FP8
    return {"label": label, "method": method, "source": source}


def architecture_of(path: str) -> str | None:
    """The first of config.json's architectures, which is the one that the engine takes; None when it names none.

    Raises ValueError when config.json is no JSON mapping.
    """
    architectures = (_read(path, "config.json") or {}).get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else None


def mismatch(found: Mapping[str, str], declared: str | None) -> str | None:
    """Say that a checkpoint is not quantized as the inventory says, or None when it is (or nothing is said)."""
    if declared is None or declared == found["label"]:
        return None
    seen = found["label"] if found["label"] == found["method"] else f"{found['label']} ({found['method']})"
    return (
        f"pd_model.quantization is {declared}, and {found['source']} says {seen}; "
        "correct it, or name another checkpoint: the engine takes its kernels from the checkpoint"
    )


def _method(found: Mapping[str, Any]) -> str:
    """The engine's name of the method."""
    stated = str(found.get("quant_method") or "")
    if stated and stated != "modelopt":
        return stated
    nested = found.get("quantization")
    algorithms = nested if isinstance(nested, Mapping) else found
    algorithm = str(algorithms.get("quant_algo") or "").upper()
    if algorithm == "MIXED_PRECISION":
        layers = algorithms.get("quantized_layers") or {}
        kinds = {str(layer.get("quant_algo", "")).upper() for layer in layers.values() if isinstance(layer, Mapping)}
        return "modelopt_mixed" if kinds & {"NVFP4", "W4A16_NVFP4"} else "w4afp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algorithm, stated or algorithm.lower() or "unknown")


def _experts(found: Mapping[str, Any]) -> str | None:
    """Experts that are quantized otherwise than the rest, where the configuration says so."""
    if found.get("routed_experts_quant_method") == "mxfp4" or str(found.get("store_dtype") or "").lower() == "mxfp4":
        return MXFP4
    algorithms = tuple(str(found.get(key) or "").upper() for key in ("quant_algo", "moe_quant_algo"))
    return NVFP4 if algorithms == ("MIXED_PRECISION", "NVFP4") else None


def _routed_expert_type(path: str) -> str | None:
    """The type of the first routed expert's weight, from the safetensors header that holds it."""
    index = next((_read(path, name) for name in INDICES if os.path.exists(os.path.join(path, name))), None)
    shards: dict[str, list[str]] = {}
    if index is not None:
        for tensor, shard in (index.get("weight_map") or {}).items():
            if _ROUTED_EXPERT.search(tensor):
                shards.setdefault(str(shard), []).append(tensor)
        names = sorted(shards)[:1]
    else:
        names = sorted(os.path.basename(each) for each in glob.glob(os.path.join(glob.escape(path), "*.safetensors")))
    for name in names:
        for tensor, entry in header_of(os.path.join(path, name)).items():
            if _ROUTED_EXPERT.search(tensor):
                return str(entry.get("dtype"))
    return None


def _read(path: str, name: str) -> dict[str, Any] | None:
    """A JSON mapping, None when there is no such file. Raises ValueError."""
    try:
        with open(os.path.join(path, name), encoding="utf-8") as stream:
            content = json.load(stream)
    except OSError:
        return None
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{name} holds no mapping")
    return content
