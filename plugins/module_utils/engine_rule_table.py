# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine rules: what sglang does with a combination of flags, environment, model and chip, with its sources.

Versions: 0.5.17 and 0.5.23 were read. A rule that is true of both has no bounds; one that changed between them has
0.5.23 as its bound, since the versions between were not looked at. S is sglang/srt of 0.5.23. "resolver" means that
the engine's own resolution of its arguments said the same when it was asked (tests/e2e/test_engine_rules.py); what
kernels do on sm_120 was read, and not run. A new rule is a new row; docs/collectives.md is made from the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.collectives import (
    NIXL_PARAMS,
    NVLINK,
    PCIE_ALLREDUCE,
    PCIE_ALLREDUCE_SIZES,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import MXFP4, NVFP4, Case
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rules import (
    ALLOW,
    ANY_DEVICE,
    ARCHITECTURE,
    CAPABILITY,
    CORRECT,
    REFUSE,
    WARN,
    Rule,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import DECODE, PREFILL

PAIR = (PREFILL, DECODE)
SM120 = ("12.",)
DEEPSEEK_V4 = ("DeepseekV4ForCausalLM",)
# S/arg_groups/overrides.py _DEEPSEEK_FAMILY_ARCHS, those that are DeepSeek's own.
DEEPSEEK_V3 = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM")
# Latent attention: one KV head for all ranks. A few well-known ones; S/configs/model_config.py has all.
LATENT_ATTENTION = ("DeepseekV2ForCausalLM", *DEEPSEEK_V3, *DEEPSEEK_V4, "KimiK25ForConditionalGeneration")
# Mixtures of experts of which NVFP4 checkpoints are published, beside DeepSeek-V4.
MIXTURES = (
    *DEEPSEEK_V3,
    "Glm4MoeForCausalLM",
    "GlmMoeDsaForCausalLM",
    "KimiK25ForConditionalGeneration",
    "Qwen3MoeForCausalLM",
)
TRTLLM_MOE = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "experimental_sgl_trtllm")
CUTLASS_QUANTIZATIONS = ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed")
MTP = ("EAGLE", "NEXTN", "DSPARK")
# A prefill that died is started again after this many seconds (server_service.py).
PREFILL_RESTART_S = 15.0
HEARTBEAT_S, HEARTBEAT_MISSES = 5.0, 2


def _given(*names: str) -> Any:
    """What a rule saw: the first of these flags that is given."""

    def seen(case: Case) -> str:
        name = next((name for name in names if case.flag(name) is not None), names[0])
        value = case.flag(name)
        return f"--{name} is not given" if value is None else f"--{name} {'' if value is True else value}".rstrip()

    return seen


def _variable(name: str) -> Any:
    return lambda case: f"{name}={case.variable(name)}"


def _speculation(case: Case) -> str:
    value = case.flag("speculative-algorithm")
    return "" if value is None else str(value)


def _auto_runner(case: Case) -> bool:
    return case.text("moe-runner-backend") in ("", "auto")


def _trtllm_runner(case: Case) -> bool:
    return any(case.text(flag) in TRTLLM_MOE for flag in ("moe-runner-backend", "speculative-moe-runner-backend"))


def _cutlass_with_another_quantization(case: Case) -> bool:
    return case.text("moe-runner-backend") == "flashinfer_cutlass" and case.text("quantization") not in (
        "",
        *CUTLASS_QUANTIZATIONS,
    )


def _not_datacenter_blackwell(case: Case, asked: bool) -> bool | None:
    if not asked:
        return False
    return None if case.capability is None else not case.capability.startswith("10.")


def _eagle_without_parameters(case: Case) -> bool:
    parameters = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
    return _speculation(case) == "EAGLE" and all(case.flag(name) is None for name in parameters)


def _eagle_with_half_the_parameters(case: Case) -> bool:
    if _speculation(case) != "EAGLE" or _eagle_without_parameters(case):
        return False
    return case.flag("speculative-num-steps") is None or case.text("speculative-eagle-topk") != "1"


def _draft(case: Case) -> tuple[str, str]:
    algorithm = _speculation(case)
    return "EAGLE" if algorithm == "NEXTN" else algorithm, str(case.flag("speculative-draft-model-path") or "")


def _prefill_alone_speculates(case: Case) -> bool:
    return bool(_speculation(case)) and any(not _speculation(peer) for peer in case.others(DECODE))


def _decode_alone_speculates(case: Case) -> bool:
    return bool(_speculation(case)) and any(not _speculation(peer) for peer in case.others(PREFILL))


def _other_draft(case: Case) -> bool:
    return bool(_speculation(case)) and any(
        _speculation(peer) and _draft(peer) != _draft(case) for peer in case.others(PREFILL)
    )


def attention_tp(case: Case) -> int:
    """Ranks that share one attention: TP, divided by DP under DP attention."""
    dp = case.flag("dp-size", "data-parallel-size")
    divide = isinstance(dp, int) and dp > 0 and case.flag("enable-dp-attention")
    return case.tp // dp if divide else case.tp


def _another_attention_tp(case: Case) -> bool:
    return any(attention_tp(peer) != attention_tp(case) for peer in case.others(PREFILL))


def _another_tp_without_latent_attention(case: Case) -> bool | None:
    if not _another_attention_tp(case) or case.on("SGLANG_DISAGG_STAGING_BUFFER"):
        return False
    return None if case.architecture is None else case.architecture not in LATENT_ATTENTION


def _pipeline(case: Case) -> int:
    value = case.flag("pp-size", "pipeline-parallel-size")
    return value if isinstance(value, int) else 1


def _expandable_segments(case: Case) -> str | None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        for entry in (case.variable(name) or "").split(","):
            key, _colon, value = entry.partition(":")
            if key.strip() == "expandable_segments" and value.strip().lower() in ("true", "1"):
                return name
    return None


def _seen_expandable(case: Case) -> str:
    name = _expandable_segments(case) or "PYTORCH_CUDA_ALLOC_CONF"
    return f"{name}={case.variable(name)}"


def _ib_devices(case: Case) -> list[str]:
    """The device names of --disaggregation-ib-device, as far as they stand in it and not in a file."""
    value = case.flag("disaggregation-ib-device")
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    if isinstance(value, Mapping):
        lists = [str(entry) for entry in value.values()]
    else:
        lists = [] if value is None or str(value).endswith(".json") else [str(value)]
    return [name.strip() for entry in lists for name in entry.split(",")]


def _bad_nixl_params(case: Case) -> bool:
    text = case.variable(NIXL_PARAMS)
    if text is None:
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return True
    return not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values())


def _transports(case: Case) -> list[str] | None:
    """UCX_TLS as a list of what is allowed; None when it is not set, or says what is not allowed."""
    text = (case.variable("UCX_TLS") or "").strip().lower()
    return None if not text or text.startswith("^") else [part.strip() for part in text.split(",")]


def _ucx_without_cuda(case: Case) -> bool:
    allowed = _transports(case)
    return allowed is not None and not {"all", "cuda", "cuda_copy", "cuda_cpy", "cuda_ipc"} & set(allowed)


def _ucx_without_cuda_ipc(case: Case) -> bool:
    text = (case.variable("UCX_TLS") or "").strip().lower()
    if case.fleet or not text or _ucx_without_cuda(case):
        return False
    if text.startswith("^"):
        return bool({"cuda", "cuda_ipc"} & {part.strip() for part in text[1:].split(",")})
    return not {"all", "cuda", "cuda_ipc"} & set(_transports(case) or [])


def _number(case: Case, name: str, default: float) -> float:
    try:
        return float(case.variable(name) or default)
    except ValueError:
        return default


def _heartbeat_s(case: Case) -> float:
    interval = _number(case, "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", HEARTBEAT_S)
    return interval * _number(case, "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", HEARTBEAT_MISSES)


def _kv_layout(case: Case) -> tuple[str, str]:
    backend = case.text("dsv4-attn-backend") or "auto"
    return backend, (case.variable("SGLANG_DSV4_KV_LAYOUT") or "v4").lower()


def _other_kv_layout(case: Case) -> bool:
    return any(_kv_layout(peer) != _kv_layout(case) for peer in case.others(PREFILL))


def _trtllm_prefill_attention(case: Case) -> bool:
    backend = case.text("prefill-attention-backend") or case.text("attention-backend")
    return case.role != DECODE and backend == "trtllm_mha" and case.text("kv-cache-dtype") == "fp8_e4m3"


def _pcie_allreduce_idle(case: Case) -> bool:
    plain = not case.flag("enable-dp-attention") and not case.flag("enable-deterministic-inference")
    return case.on(PCIE_ALLREDUCE) and (case.tp not in PCIE_ALLREDUCE_SIZES or not plain)


def _loopback(case: Case) -> bool:
    value = case.variable("SGLANG_HOST_IP") or ""
    return case.fleet and (value.startswith("127.") or value in ("::1", "localhost"))


def _injected_failures(case: Case) -> bool:
    names = ("SGLANG_TEST_DISAGG_FAILURE_PROB", "SGLANG_TEST_DISAGG_KV_CHECKSUM_MISMATCH_PROB")
    return any(_number(case, name, 0.0) > 0 for name in names)


RULES: tuple[Rule, ...] = (
    # --- the runner of the experts -----------------------------------------------------------------------------------
    Rule(
        id="moe_runner_nvfp4_sm120",
        effect=CORRECT,
        when="DeepSeek-V4 with NVFP4 experts on sm_120, --moe-runner-backend not given",
        applies=_auto_runner,
        seen=_given("moe-runner-backend"),
        chips=SM120,
        quantizations=(NVFP4,),
        architectures=DEEPSEEK_V4,
        flags={"moe-runner-backend": "flashinfer_cutlass"},
        place=("args", "moe-runner-backend"),
        why="left alone, the engine takes flashinfer_trtllm_routed for this checkpoint without asking for the chip, "
        "and trtllm-gen MoE kernels exist for SM100 only; for other NVFP4 checkpoints it takes flashinfer_cutlass on "
        "this chip, for that reason",
        source="resolver; S/arg_groups/model_overrides/deepseek_v4.py; S/arg_groups/overrides.py "
        "_moe_runner_backend_quant_constraints",
    ),
    Rule(
        id="moe_runner_modelopt_sm120",
        effect=ALLOW,
        when="another model with NVFP4 experts on sm_120, --quantization modelopt_fp4, --moe-runner-backend not given",
        applies=lambda case: (
            _auto_runner(case)
            and case.text("quantization") == "modelopt_fp4"
            and (None if case.architecture is None else case.architecture not in DEEPSEEK_V4)
        ),
        needs=(ARCHITECTURE,),
        seen=_given("quantization"),
        chips=SM120,
        quantizations=(NVFP4,),
        why="the engine then takes flashinfer_cutlass",
        source="resolver; S/arg_groups/overrides.py _moe_runner_backend_quant_constraints",
    ),
    Rule(
        id="modelopt_quantization_unsaid",
        effect=WARN,
        when="a known mixture of experts in NVFP4 on sm_120, with neither --quantization nor --moe-runner-backend",
        applies=lambda case: _auto_runner(case) and case.flag("quantization") is None,
        seen=_given("quantization"),
        chips=SM120,
        quantizations=(NVFP4,),
        architectures=MIXTURES,
        place=("args", "quantization"),
        why="the engine takes flashinfer_cutlass on sm_120 only when the flag says modelopt_fp4; without it no runner "
        "is chosen, though it finds the quantization in the checkpoint later",
        cure="write quantization: modelopt_fp4 if the checkpoint is ModelOpt's",
        source="resolver; S/arg_groups/overrides.py _moe_runner_backend_quant_constraints",
    ),
    Rule(
        id="moe_runner_mxfp4_sm120",
        effect=ALLOW,
        when="DeepSeek-V4 with MXFP4 experts on sm_120, --moe-runner-backend not given",
        applies=lambda case: _auto_runner(case) and case.text("moe-a2a-backend") in ("", "none"),
        seen=_given("moe-runner-backend"),
        chips=SM120,
        quantizations=(MXFP4,),
        architectures=DEEPSEEK_V4,
        why="the engine takes flashinfer_mxfp4, which has a path of its own for sm_120 (MXFP8 x MXFP4)",
        source="S/arg_groups/model_overrides/deepseek_v4.py; S/layers/quantization/fp8.py",
    ),
    Rule(
        id="trtllm_moe_on_sm120",
        effect=REFUSE,
        when="a TensorRT-LLM MoE runner on sm_120 with FP4 experts",
        applies=_trtllm_runner,
        seen=_given("moe-runner-backend", "speculative-moe-runner-backend"),
        chips=SM120,
        quantizations=(NVFP4, MXFP4),
        place=("args", "moe-runner-backend"),
        why="trtllm-gen MoE kernels exist for SM100 only",
        cure="remove it, or write flashinfer_cutlass (NVFP4) or flashinfer_mxfp4 (MXFP4)",
        source="S/arg_groups/overrides.py _moe_runner_backend_quant_constraints",
    ),
    Rule(
        id="cutlass_moe_quantization",
        effect=REFUSE,
        when="--moe-runner-backend flashinfer_cutlass beside --quantization other than modelopt_*",
        applies=_cutlass_with_another_quantization,
        seen=_given("quantization"),
        place=("args", "quantization"),
        why="the engine stops at the start: flashinfer_cutlass takes " + ", ".join(CUTLASS_QUANTIZATIONS) + " or none",
        cure="remove --quantization: the engine reads it from the checkpoint",
        source="resolver; S/arg_groups/moe_hook.py handle_moe_kernel_config",
    ),
    Rule(
        id="nvfp4_online_needs_sm100",
        effect=REFUSE,
        when="--quantization nvfp4_online on any chip but SM100 and SM103",
        applies=lambda case: _not_datacenter_blackwell(case, case.text("quantization") == "nvfp4_online"),
        needs=(CAPABILITY,),
        seen=_given("quantization"),
        place=("args", "quantization"),
        why="the engine stops at the start: it supports it on SM100 and SM103 only",
        cure="remove it, or use a checkpoint that is quantized already",
        source="resolver; S/arg_groups/overrides.py _moe_runner_backend_quant_constraints",
    ),
    # --- speculative decoding ----------------------------------------------------------------------------------------
    Rule(
        id="mtp_nvfp4_sm120",
        effect=REFUSE,
        when="DeepSeek-V4 with NVFP4 experts on sm_120, with MTP (EAGLE, NEXTN, DSPARK)",
        applies=lambda case: _speculation(case).upper() in MTP,
        seen=_given("speculative-algorithm"),
        chips=SM120,
        quantizations=(NVFP4,),
        architectures=DEEPSEEK_V4,
        place=("args", "speculative-algorithm"),
        why="the draft layer's experts stay MXFP4 in this checkpoint, and the engine gives them its TensorRT-LLM "
        "method whatever the runner, whose kernels exist for SM100 only; no flag changes that",
        cure="remove the speculative-* flags, or use the MXFP4 checkpoint; with a patched engine write the rule into "
        "pd_engine_rules_off",
        source="S/layers/quantization/modelopt_quant.py HybridFp8NvFp4Config.get_quant_method; "
        "S/model_loader/loader.py",
    ),
    Rule(
        id="mtp_mxfp4_sm120",
        effect=ALLOW,
        when="DeepSeek-V4 with MXFP4 experts on sm_120, with EAGLE",
        applies=lambda case: _speculation(case) == "EAGLE" and not _trtllm_runner(case),
        seen=_given("speculative-algorithm"),
        chips=SM120,
        quantizations=(MXFP4,),
        architectures=DEEPSEEK_V4,
        why="the draft layer is MXFP4 like the rest and inherits the runner flashinfer_mxfp4, which has a path for "
        "sm_120",
        source="S/arg_groups/overrides.py _speculative_moe_runner_default; S/layers/quantization/fp8.py",
    ),
    Rule(
        id="mtp_parameters",
        effect=CORRECT,
        when="DeepSeek-V4 with EAGLE and none of its parameters",
        applies=_eagle_without_parameters,
        seen=_given("speculative-algorithm"),
        architectures=DEEPSEEK_V4,
        flags={"speculative-num-steps": 3, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4},
        place=("args", "speculative-algorithm"),
        why="the engine asks for topk 1 before it fills in its own choice of 3 steps, topk 1 and 4 draft tokens, and "
        "stops; these are that choice",
        source="resolver; S/arg_groups/deepseek_v4_hook.py; S/arg_groups/speculative_hook.py "
        "_auto_choose_speculative_params",
    ),
    Rule(
        id="mtp_topk",
        effect=REFUSE,
        when="DeepSeek-V4 with EAGLE, and topk is not 1 or the number of steps is missing",
        applies=_eagle_with_half_the_parameters,
        seen=_given("speculative-eagle-topk", "speculative-num-steps"),
        architectures=DEEPSEEK_V4,
        place=("args", "speculative-eagle-topk"),
        why="the engine stops at the start: this model has no tree drafts, and steps and topk are given together",
        cure="write speculative-num-steps: 3 and speculative-eagle-topk: 1, or none of the parameters",
        source="resolver; S/arg_groups/deepseek_v4_hook.py; S/arg_groups/speculative_hook.py",
    ),
    Rule(
        id="mtp_algorithm",
        effect=REFUSE,
        when="DeepSeek-V4 with another algorithm than EAGLE or DSPARK, in capitals",
        applies=lambda case: _speculation(case) not in ("", "EAGLE", "DSPARK"),
        seen=_given("speculative-algorithm"),
        architectures=DEEPSEEK_V4,
        place=("args", "speculative-algorithm"),
        why="the engine stops at the start: it supports EAGLE and DSPARK for this model, and compares the name before "
        "it turns NEXTN into EAGLE",
        cure="write EAGLE",
        source="resolver; S/arg_groups/deepseek_v4_hook.py",
    ),
    Rule(
        id="mtp_draft_runner",
        effect=WARN,
        when="DeepSeek-V3 with NVFP4 experts on sm_120, with MTP, --speculative-moe-runner-backend not given",
        applies=lambda case: _speculation(case).upper() in MTP and case.flag("speculative-moe-runner-backend") is None,
        seen=_given("speculative-moe-runner-backend"),
        chips=SM120,
        quantizations=(NVFP4,),
        architectures=DEEPSEEK_V3,
        place=("args", "speculative-moe-runner-backend"),
        why="the draft layer is BF16 in such a checkpoint and inherits the runner of the NVFP4 experts; the engine "
        "chooses triton for it on AMD GPUs only",
        cure="if the draft does not load or accepts nothing, write speculative-moe-runner-backend: triton",
        source="S/arg_groups/overrides.py _deepseek_spec_moe_resolution, _speculative_moe_runner_default",
    ),
    Rule(
        id="draft_only_on_prefill",
        effect=REFUSE,
        when="speculative decoding on prefill and not on decode",
        applies=_prefill_alone_speculates,
        seen=_given("speculative-algorithm"),
        roles=(PREFILL,),
        place=("args", "speculative-algorithm"),
        why="prefill sends the draft's KV, too, and decode has no place for it: it is written over the last layers",
        cure="write the speculative-* flags into pd_server_args, for both",
        source="S/disaggregation/common/conn.py (draft entries follow the target's on both peers)",
    ),
    Rule(
        id="draft_only_on_decode",
        effect=WARN,
        when="speculative decoding on decode and not on prefill",
        applies=_decode_alone_speculates,
        seen=_given("speculative-algorithm"),
        roles=(DECODE,),
        place=("args", "speculative-algorithm"),
        why="the draft then has no KV of the prompt, and fewer of its tokens are accepted",
        cure="write the speculative-* flags into pd_server_args, for both",
        source="S/disaggregation/common/conn.py get_mha_kv_ptrs_with_pp; S/disaggregation/decode.py",
    ),
    Rule(
        id="draft_differs",
        effect=REFUSE,
        when="prefill and decode with different drafts",
        applies=_other_draft,
        seen=_given("speculative-algorithm"),
        roles=(DECODE,),
        place=("args", "speculative-algorithm"),
        why="the draft's KV pages are written into decode's as they are",
        cure="write the speculative-* flags into pd_server_args, for both",
        source="S/disaggregation/decode.py; S/disaggregation/common/conn.py",
    ),
    Rule(
        id="decode_cache_and_speculation",
        effect=REFUSE,
        when="--disaggregation-decode-enable-radix-cache with another algorithm than EAGLE, EAGLE3, NEXTN, DSPARK",
        applies=lambda case: (
            bool(case.flag("disaggregation-decode-enable-radix-cache"))
            and _speculation(case) not in ("", *MTP, "EAGLE3")
        ),
        seen=_given("speculative-algorithm"),
        roles=(DECODE,),
        since="0.5.23",
        place=("args", "disaggregation-decode-enable-radix-cache"),
        why="the engine stops at the start: the two do not go together",
        cure="remove one of them",
        source="S/arg_groups/speculative_hook.py",
    ),
    Rule(
        id="decode_cache_and_any_speculation",
        effect=REFUSE,
        when="--disaggregation-decode-enable-radix-cache with speculative decoding, before 0.5.23",
        applies=lambda case: bool(case.flag("disaggregation-decode-enable-radix-cache")) and bool(_speculation(case)),
        seen=_given("speculative-algorithm"),
        roles=(DECODE,),
        before="0.5.23",
        place=("args", "disaggregation-decode-enable-radix-cache"),
        why="0.5.17 calls the two incompatible",
        cure="remove one of them",
        source="sglang 0.5.17, server_args.py, help of the flag",
    ),
    # --- prefill and decode together ---------------------------------------------------------------------------------
    Rule(
        id="tp_differs",
        effect=WARN,
        when="another attention TP on decode than on prefill, a model without latent attention, no staging buffer",
        applies=_another_tp_without_latent_attention,
        needs=(ARCHITECTURE,),
        seen=lambda case: f"attention TP {attention_tp(case)}",
        roles=(DECODE,),
        place=("args", ""),
        why="each page is then cut by heads into many small transfers; the engine itself says that performance is not "
        "guaranteed, and users report crashes under load",
        cure="give both the same TP, or set SGLANG_DISAGG_STAGING_BUFFER=1 in pd_server_env",
        source="S/disaggregation/common/conn.py _resolve_rank_mapping; sgl-project/sglang#15674",
    ),
    Rule(
        id="tp_differs_with_dspark",
        effect=REFUSE,
        when="DeepSeek-V4 with DSPARK and another attention TP on decode than on prefill",
        applies=lambda case: _speculation(case) == "DSPARK" and _another_attention_tp(case),
        seen=lambda case: f"attention TP {attention_tp(case)}",
        roles=(DECODE,),
        architectures=DEEPSEEK_V4,
        place=("args", "speculative-algorithm"),
        why="decode refuses the first request: DSpark wants the same TP on both servers",
        cure="give both the same TP",
        source="S/disaggregation/common/conn.py",
    ),
    Rule(
        id="pp_differs",
        effect=REFUSE,
        when="pipeline parallelism on decode that is neither 1 nor prefill's",
        applies=lambda case: (
            _pipeline(case) != 1 and any(_pipeline(peer) != _pipeline(case) for peer in case.others(PREFILL))
        ),
        seen=lambda case: f"--pp-size {_pipeline(case)}",
        roles=(DECODE,),
        device=ANY_DEVICE,
        place=("args", "pp-size"),
        why="decode fails at the first request: its pipeline must have one stage, or as many as prefill's",
        cure="remove pp-size from decode, or give both the same",
        source="S/disaggregation/common/conn.py _resolve_rank_mapping",
    ),
    Rule(
        id="kv_layout_differs",
        effect=REFUSE,
        when="--dsv4-attn-backend or SGLANG_DSV4_KV_LAYOUT not the same on prefill and decode",
        applies=_other_kv_layout,
        seen=lambda case: "KV layout " + "/".join(_kv_layout(case)),
        roles=(DECODE,),
        since="0.5.23",
        place=("args", "dsv4-attn-backend"),
        why="decode refuses the first request: pages are written into its cache as they are",
        cure="set it once, in pd_server_args and pd_server_env",
        source="S/disaggregation/common/conn.py",
    ),
    Rule(
        id="staging_buffer_with_latent_attention",
        effect=REFUSE,
        when="SGLANG_DISAGG_STAGING_BUFFER with a model of latent attention",
        applies=lambda case: case.on("SGLANG_DISAGG_STAGING_BUFFER"),
        seen=_variable("SGLANG_DISAGG_STAGING_BUFFER"),
        roles=PAIR,
        architectures=LATENT_ATTENTION,
        place=("env", "SGLANG_DISAGG_STAGING_BUFFER"),
        why="the engine stops at the start: it is for models whose KV is divided by heads",
        cure="remove it",
        source="S/disaggregation/decode.py, prefill.py",
    ),
    Rule(
        id="dsv4_trtllm_attention",
        effect=REFUSE,
        when="--dsv4-attn-backend trtllm with prefill and decode",
        applies=lambda case: case.text("dsv4-attn-backend") == "trtllm",
        seen=_given("dsv4-attn-backend"),
        roles=PAIR,
        since="0.5.23",
        place=("args", "dsv4-attn-backend"),
        why="the engine stops at the start: its KV layout has not been tried with disaggregation, and it needs SM100",
        cure="remove it",
        source="resolver; S/arg_groups/deepseek_v4_hook.py; sgl-project/sglang#37838",
    ),
    Rule(
        id="dsv4_page_size",
        effect=WARN,
        when="DeepSeek-V4 with --page-size other than 256",
        applies=lambda case: case.text("page-size") not in ("", "256"),
        seen=_given("page-size"),
        architectures=DEEPSEEK_V4,
        place=("args", "page-size"),
        why="the engine replaces it with 256 and does not say so loudly",
        cure="remove it",
        source="resolver; S/arg_groups/model_overrides/deepseek_v4.py",
    ),
    Rule(
        id="dsv4_kv_dtype",
        effect=REFUSE,
        when="DeepSeek-V4 with --kv-cache-dtype other than auto, fp8_e4m3, bfloat16",
        applies=lambda case: case.text("kv-cache-dtype") not in ("", "auto", "fp8_e4m3", "bfloat16"),
        seen=_given("kv-cache-dtype"),
        architectures=DEEPSEEK_V4,
        place=("args", "kv-cache-dtype"),
        why="the engine stops at the start: this model's cache is fp8_e4m3 (the default) or bfloat16",
        cure="remove it",
        source="resolver; S/arg_groups/overrides.py _deepseek_v4_kv_cache_dtype",
    ),
    Rule(
        id="trtllm_mha_fp8_sm120",
        effect=REFUSE,
        when="attention backend trtllm_mha for prefill with --kv-cache-dtype fp8_e4m3 on sm_120",
        applies=_trtllm_prefill_attention,
        seen=_given("prefill-attention-backend", "attention-backend"),
        chips=SM120,
        since="0.5.23",
        place=("args", "attention-backend"),
        why="the engine stops at the start: this kernel has no fp8 KV cache on sm_120",
        cure="choose another attention backend, or kv-cache-dtype: auto",
        source="S/arg_groups/attention_hook.py",
    ),
    # --- KV transfer -------------------------------------------------------------------------------------------------
    Rule(
        id="expandable_segments",
        effect=REFUSE,
        when="expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF, with prefill and decode",
        applies=lambda case: _expandable_segments(case) is not None,
        seen=_seen_expandable,
        roles=PAIR,
        place=("env", "PYTORCH_CUDA_ALLOC_CONF"),
        why="such memory cannot be opened through cuda_ipc: registering it works, and then every transfer goes over "
        "TCP at 0.3 GB/s instead of 200 GB/s (others' measurement on H100), with right bytes and no warning",
        cure="remove it; SGLang allocates its KV pool in one piece anyway",
        source="ai-dynamo/nixl#1754; openucx/ucx#11548",
    ),
    Rule(
        id="post_capture_kv_sizing",
        effect=REFUSE,
        when="SGLANG_ENABLE_POST_CAPTURE_KV_SIZING with prefill and decode",
        applies=lambda case: case.on("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"),
        seen=_variable("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"),
        roles=PAIR,
        place=("env", "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"),
        why="the KV pool then is CUDA VMM memory, which cuda_ipc cannot open, like expandable_segments",
        cure="remove it",
        source="S/arg_groups/overrides.py; S/mem_cache/kv_vmm_backing.py; openucx/ucx#11548",
    ),
    Rule(
        id="ib_device_ignored",
        effect=REFUSE,
        when="--disaggregation-ib-device with NIXL, before 0.5.23",
        applies=lambda case: case.flag("disaggregation-ib-device") is not None,
        seen=_given("disaggregation-ib-device"),
        roles=PAIR,
        before="0.5.23",
        place=("args", "disaggregation-ib-device"),
        why="NIXL does not read it in 0.5.17: UCX would choose a device by itself, and may choose one that leads "
        "nowhere",
        cure="write UCX_NET_DEVICES into pd_server_env instead",
        source="sglang 0.5.17, disaggregation/nixl/conn.py; sgl-project/sglang#28737",
    ),
    Rule(
        id="ib_device_overridden",
        effect=REFUSE,
        when="--disaggregation-ib-device beside UCX_NET_DEVICES, from 0.5.23 on",
        applies=lambda case: (
            case.flag("disaggregation-ib-device") is not None and bool(case.variable("UCX_NET_DEVICES"))
        ),
        seen=_variable("UCX_NET_DEVICES"),
        roles=PAIR,
        since="0.5.23",
        place=("args", "disaggregation-ib-device"),
        why="UCX_NET_DEVICES wins and the flag is ignored, with a warning in the log only",
        cure="keep one of them",
        source="S/disaggregation/nixl/conn.py",
    ),
    Rule(
        id="ib_device_port",
        effect=REFUSE,
        when="a device with a port (mlx5_0:1) in --disaggregation-ib-device, with NIXL",
        applies=lambda case: any(":" in name for name in _ib_devices(case)),
        seen=_given("disaggregation-ib-device"),
        roles=PAIR,
        since="0.5.23",
        place=("args", "disaggregation-ib-device"),
        why="the engine stops at the start: NIXL adds port 1 itself",
        cure="write the device's name alone, for example mlx5_0",
        source="S/disaggregation/nixl/conn.py _resolve_ucx_device_list",
    ),
    Rule(
        id="nixl_params",
        effect=REFUSE,
        when=f"{NIXL_PARAMS} that is no JSON object of texts",
        applies=_bad_nixl_params,
        seen=_variable(NIXL_PARAMS),
        roles=PAIR,
        device=ANY_DEVICE,
        place=("env", NIXL_PARAMS),
        why="the engine stops at the start: names and values must be texts",
        cure='write for example {"num_threads": "2"}, the number in quotes',
        source="S/disaggregation/nixl/conn.py",
    ),
    Rule(
        id="ucx_without_cuda",
        effect=REFUSE,
        when="UCX_TLS without any transport for GPU memory",
        applies=_ucx_without_cuda,
        seen=_variable("UCX_TLS"),
        roles=PAIR,
        place=("env", "UCX_TLS"),
        why="NIXL then refuses to register the KV cache",
        cure="remove it, or write cuda_ipc,cuda_copy,sm,self,tcp",
        source="measured on two H200 (UCX_TLS=tcp)",
    ),
    Rule(
        id="ucx_without_cuda_ipc",
        effect=WARN,
        when="UCX_TLS without cuda_ipc, on one host",
        applies=_ucx_without_cuda_ipc,
        seen=_variable("UCX_TLS"),
        roles=PAIR,
        place=("env", "UCX_TLS"),
        why="KV then goes over TCP while everything looks healthy; the first token takes 13 times longer",
        cure="remove it, unless that is what you want to measure",
        source="measured on two H200 (UCX_TLS=tcp,cuda_copy)",
    ),
    Rule(
        id="host_address_is_loopback",
        effect=REFUSE,
        when="SGLANG_HOST_IP is a loopback address, with several hosts",
        applies=_loopback,
        seen=_variable("SGLANG_HOST_IP"),
        roles=PAIR,
        place=("env", "SGLANG_HOST_IP"),
        device=ANY_DEVICE,
        why="the other hosts would look for this server's ranks on themselves",
        cure="remove it: pdlab sets it to the host's pd_address",
        source="S/utils/network.py",
    ),
    Rule(
        id="heartbeat_outlives_restart",
        effect=WARN,
        when="a heartbeat window of 15 s or more on decode",
        applies=lambda case: _heartbeat_s(case) >= PREFILL_RESTART_S,
        seen=lambda case: f"heartbeat interval times misses is {_heartbeat_s(case):g} s",
        roles=(DECODE,),
        device=ANY_DEVICE,
        place=("env", "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL"),
        why="pdlab starts a dead prefill again after 15 s; decode must have missed it by then, or it keeps the old "
        "addresses and each rank loses a request for 300 s",
        cure="keep SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL times SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE below 15",
        source="S/disaggregation/common/conn.py",
    ),
    Rule(
        id="allocation_policy_needs_mooncake",
        effect=REFUSE,
        when="--disaggregation-decode-allocation-policy prefill_complete",
        applies=lambda case: case.text("disaggregation-decode-allocation-policy") == "prefill_complete",
        seen=_given("disaggregation-decode-allocation-policy"),
        roles=PAIR,
        since="0.5.23",
        place=("args", "disaggregation-decode-allocation-policy"),
        why="the engine stops at the start: it needs the transfer backend mooncake",
        cure="remove it",
        source="resolver; S/arg_groups/pd_disaggregation_hook.py _validate_prefill_complete",
    ),
    Rule(
        id="kv_checksum_needs_gpu",
        effect=REFUSE,
        when="--disaggregation-enable-kv-checksum on a CPU",
        applies=lambda case: bool(case.flag("disaggregation-enable-kv-checksum")),
        seen=_given("disaggregation-enable-kv-checksum"),
        roles=PAIR,
        device="cpu",
        since="0.5.23",
        place=("args", "disaggregation-enable-kv-checksum"),
        why="the checksum is computed on cuda:N",
        cure="remove it",
        source="S/disaggregation/decode.py",
    ),
    Rule(
        id="injected_failures",
        effect=WARN,
        when="SGLANG_TEST_DISAGG_FAILURE_PROB or SGLANG_TEST_DISAGG_KV_CHECKSUM_MISMATCH_PROB above 0",
        applies=_injected_failures,
        seen=_variable("SGLANG_TEST_DISAGG_FAILURE_PROB"),
        roles=PAIR,
        device=ANY_DEVICE,
        place=("env", "SGLANG_TEST_DISAGG_FAILURE_PROB"),
        why="the engine then fails transfers on purpose",
        cure="remove it, unless that is what you want to see",
        source="S/disaggregation/utils.py",
    ),
    # --- environment -------------------------------------------------------------------------------------------------
    Rule(
        id="visible_devices",
        effect=REFUSE,
        when="CUDA_VISIBLE_DEVICES in a server's environment",
        applies=lambda case: case.variable("CUDA_VISIBLE_DEVICES") is not None,
        seen=_variable("CUDA_VISIBLE_DEVICES"),
        place=("env", "CUDA_VISIBLE_DEVICES"),
        why="it renumbers the GPUs, and the server's gpus would name others",
        cure="remove it and set gpus",
        source="S/utils/numa_utils.py; pdlab's --base-gpu-id",
    ),
    Rule(
        id="variable_is_overwritten",
        effect=REFUSE,
        when="CUDA_DEVICE_MAX_CONNECTIONS other than 8",
        applies=lambda case: case.variable("CUDA_DEVICE_MAX_CONNECTIONS") not in (None, "8"),
        seen=_variable("CUDA_DEVICE_MAX_CONNECTIONS"),
        place=("env", "CUDA_DEVICE_MAX_CONNECTIONS"),
        why="the engine overwrites it with 8",
        cure="remove it",
        source="S/entrypoints/engine.py _set_envs_and_config",
    ),
    Rule(
        id="topk_v2_on_sm120",
        effect=REFUSE,
        when="DeepSeek-V4 on sm_120 with SGLANG_OPT_USE_TOPK_V2=1",
        applies=lambda case: case.on("SGLANG_OPT_USE_TOPK_V2"),
        seen=_variable("SGLANG_OPT_USE_TOPK_V2"),
        chips=SM120,
        architectures=DEEPSEEK_V4,
        place=("env", "SGLANG_OPT_USE_TOPK_V2"),
        why="the engine overwrites it with 0: the kernel needs more than this chip has",
        cure="remove it",
        source="S/arg_groups/model_hook.py",
    ),
    Rule(
        id="cpu_affinity_ignores_numa",
        effect=WARN,
        when="SGLANG_SET_CPU_AFFINITY",
        applies=lambda case: case.on("SGLANG_SET_CPU_AFFINITY"),
        seen=_variable("SGLANG_SET_CPU_AFFINITY"),
        place=("env", "SGLANG_SET_CPU_AFFINITY"),
        why="it shares out the cores by number and knows no NUMA node, against the binding of the ranks",
        cure="remove it",
        source="S/utils/common.py",
    ),
    # --- all-reduce --------------------------------------------------------------------------------------------------
    Rule(
        id="pcie_allreduce_idle",
        effect=WARN,
        when=f"{PCIE_ALLREDUCE} with TP other than 2, 4, 8, with DP attention or deterministic inference",
        applies=_pcie_allreduce_idle,
        seen=lambda case: f"{PCIE_ALLREDUCE} with TP {case.tp}",
        place=("env", PCIE_ALLREDUCE),
        why="the engine then reduces through NCCL all the same: the kernels are for 2, 4 and 8 ranks of plain TP",
        cure="remove it",
        source="S/distributed/device_communicators/pcie_ipc_ar.py",
    ),
    Rule(
        id="pcie_allreduce_unknown",
        effect=WARN,
        when=f"{PCIE_ALLREDUCE} before 0.5.23",
        applies=lambda case: case.on(PCIE_ALLREDUCE),
        seen=_variable(PCIE_ALLREDUCE),
        before="0.5.23",
        place=("env", PCIE_ALLREDUCE),
        why="0.5.17 does not know it",
        cure="remove it, or take a newer engine",
        source="sglang 0.5.17, environ.py",
    ),
    Rule(
        id="pcie_allreduce_on_nvlink",
        effect=WARN,
        when=f"{PCIE_ALLREDUCE} with the profile nvlink",
        applies=lambda case: case.on(PCIE_ALLREDUCE) and case.profile == NVLINK,
        seen=_variable(PCIE_ALLREDUCE),
        place=("env", PCIE_ALLREDUCE),
        why="it is for GPUs whose every transfer crosses the CPU; NVLink has faster ways",
        cure="remove it",
        source="S/distributed/device_communicators/pcie_ipc_ar.py",
    ),
)
