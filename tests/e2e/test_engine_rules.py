# SPDX-License-Identifier: Apache-2.0
"""The engine rules against the engine itself: what a rule says of the start, the installed engine's resolver says, too.

No server is started and no GPU is needed. What a kernel does on a chip cannot be asked this way.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import flag_arguments
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import Case
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rule_table import RULES

from .conftest import ROOT

SCRIPT = Path(__file__).with_name("resolver_script.py")
SIZES = {
    "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 1, "num_hidden_layers": 4,
    "vocab_size": 129280, "head_dim": 512, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "max_position_embeddings": 65536, "torch_dtype": "bfloat16", "n_routed_experts": 256,
    "num_experts_per_tok": 6, "moe_intermediate_size": 2048,
}  # fmt: skip
V4 = {
    **SIZES, "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "index_topk": 512,
    "index_n_heads": 64, "index_head_dim": 128, "sliding_window": 128, "compress_ratios": [0, 4, 128, 4],
}  # fmt: skip
# As nvidia/DeepSeek-V4-*-NVFP4 says it: FP8, with NVFP4 experts.
HYBRID = {
    "quant_method": "fp8", "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "group_size": 16, "ignore": [],
    "weight_block_size": [128, 128], "activation_scheme": "dynamic", "fmt": "e4m3",
}  # fmt: skip
MODELS = {
    "v4-nvfp4": {**V4, "quantization_config": HYBRID},
    "v4-fp8": {**V4, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
    "v3-nvfp4": {
        **SIZES, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": []},
    },
}  # fmt: skip
CAPABILITY = {"sm90": "9.0", "sm100": "10.0", "sm120": "12.0"}
EAGLE = {"speculative-algorithm": "EAGLE", "speculative-num-steps": 3, "speculative-eagle-topk": 1}

# Rule, model, chip, flags as the inventory writes them, and what the engine makes of the flags as they are:
# a word of the reason why it stops, or what it chooses.
Chosen = dict[str, Any]
CASES: list[tuple[str, str, str, dict[str, Any], str | Chosen]] = [
    ("moe_runner_nvfp4_sm120", "v4-nvfp4", "sm120", {}, {"moe_runner_backend": "flashinfer_trtllm_routed"}),
    (
        "moe_runner_modelopt_sm120", "v3-nvfp4", "sm120",
        {"quantization": "modelopt_fp4"}, {"moe_runner_backend": "flashinfer_cutlass"},
    ),
    ("modelopt_quantization_unsaid", "v3-nvfp4", "sm120", {}, {"moe_runner_backend": "auto"}),
    (
        "cutlass_moe_quantization", "v4-nvfp4", "sm120",
        {"moe-runner-backend": "flashinfer_cutlass", "quantization": "fp8"}, "Cutlass MOE supports only",
    ),
    ("nvfp4_online_needs_sm100", "v4-fp8", "sm120", {"quantization": "nvfp4_online"}, "SM100"),
    ("mtp_parameters", "v4-fp8", "sm90", {"speculative-algorithm": "EAGLE"}, "topk == 1"),
    ("mtp_topk", "v4-fp8", "sm90", {**EAGLE, "speculative-eagle-topk": 4}, "topk == 1"),
    (
        "mtp_topk", "v4-fp8", "sm90",
        {"speculative-algorithm": "EAGLE", "speculative-eagle-topk": 1}, "AssertionError",
    ),
    ("mtp_algorithm", "v4-fp8", "sm90", {**EAGLE, "speculative-algorithm": "NEXTN"}, "Only EAGLE and DSPARK"),
    ("mtp_algorithm", "v4-fp8", "sm90", {**EAGLE, "speculative-algorithm": "eagle"}, "Only EAGLE and DSPARK"),
    ("dsv4_trtllm_attention", "v4-fp8", "sm120", {"dsv4-attn-backend": "trtllm"}, "requires an SM100"),
    ("dsv4_page_size", "v4-fp8", "sm90", {"page-size": 64}, {"page_size": 256}),
    ("dsv4_kv_dtype", "v4-fp8", "sm90", {"kv-cache-dtype": "fp8_e5m2"}, "is not supported for DeepseekV4"),
    (
        "allocation_policy_needs_mooncake", "v4-fp8", "sm90",
        {"disaggregation-decode-allocation-policy": "prefill_complete"}, "Mooncake",
    ),
]  # fmt: skip
# What the rules leave alone must be what the engine takes.
FINE: list[tuple[str, str, dict[str, Any], Chosen]] = [
    ("v4-nvfp4", "sm120", {"moe-runner-backend": "flashinfer_cutlass"}, {"moe_runner_backend": "flashinfer_cutlass"}),
    ("v4-nvfp4", "sm100", EAGLE, {"speculative_num_draft_tokens": 4}),
    ("v4-fp8", "sm90", {"kv-cache-dtype": "bfloat16"}, {"kv_cache_dtype": "bfloat16", "page_size": 256}),
]


@pytest.fixture(scope="module")
def engine() -> Path:
    """The interpreter of the environment that `pdlab up` has built."""
    python = ROOT / "engine" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; run tests/e2e/test_main_job.py first")
    return python


def server(model: str, chip: str, args: dict[str, Any]) -> Case:
    """A decode server of the inventory."""
    quantization = "nvfp4" if model.endswith("nvfp4") else "fp8"
    architecture = MODELS[model]["architectures"][0]
    return Case("decode-0", "decode", "cuda", tp=4, args=args, version="0.5.23", capability=CAPABILITY[chip],
                quantization=quantization, architecture=architecture)  # fmt: skip


def question(model: str, chip: str, args: dict[str, Any]) -> dict[str, Any]:
    disaggregation = {"disaggregation-mode": "decode", "disaggregation-transfer-backend": "nixl"}
    return {"model": MODELS[model], "chip": chip, "argv": flag_arguments({**disaggregation, **args})}


@cache
def answers() -> list[dict[str, Any]]:
    """What the engine says to all questions, in one process: importing it takes seconds."""
    questions = [question(model, chip, args) for _rule, model, chip, args, _wanted in CASES]
    for _rule, model, chip, args, _wanted in CASES:
        _verdicts, added = engine_rules.judge([server(model, chip, args)], RULES)
        questions.append(question(model, chip, {**args, **added.get("decode-0", {})}))
    questions += [question(model, chip, args) for model, chip, args, _wanted in FINE]
    done = subprocess.run(
        [str(ROOT / "engine" / "bin" / "python"), str(SCRIPT)],
        input=json.dumps(questions), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == len(questions)
    return found


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{case[0]}-{case[2]}" for case in CASES])
def test_the_engine_does_what_a_rule_says_of_it(engine: Path, index: int) -> None:
    rule, model, chip, args, wanted = CASES[index]
    verdicts, added = engine_rules.judge([server(model, chip, args)], RULES)
    assert rule in {verdict.rule.id for verdict in verdicts if verdict.state == engine_rules.HOLDS}
    answer, corrected = answers()[index], answers()[len(CASES) + index]
    if isinstance(wanted, str):
        assert wanted in answer["stopped"]
    else:
        assert {name: answer["chosen"][name] for name in wanted} == wanted
    if added:
        chosen = corrected["chosen"]
        assert all(str(chosen[name.replace("-", "_")]) == str(value) for name, value in added["decode-0"].items())


@pytest.mark.parametrize("index", range(len(FINE)))
def test_the_engine_takes_what_the_rules_leave_alone(engine: Path, index: int) -> None:
    model, chip, args, wanted = FINE[index]
    verdicts, added = engine_rules.judge([server(model, chip, args)], RULES)
    doubts = [v.rule.id for v in verdicts if v.rule.effect in (engine_rules.REFUSE, engine_rules.WARN)]
    assert not doubts and not added
    chosen = answers()[2 * len(CASES) + index]["chosen"]
    assert {name: chosen[name] for name in wanted} == wanted


def test_every_rule_that_rests_on_the_resolver_is_asked_here() -> None:
    assert {rule.id for rule in RULES if rule.source.startswith("resolver")} == {case[0] for case in CASES}
