# SPDX-License-Identifier: Apache-2.0
"""The table of engine rules: well formed, and right over versions, chips, quantizations and speculation."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import engine_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import (
    Case,
    locked_version,
    one_capability,
    plain_quantization,
    version_within,
    with_peers,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import load_table
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rule_table import RULES
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rules import Rule

from .conftest import B200, H200, RTX_PRO_6000, V4, box, case, pair, planned, resolved

DATA = Path(__file__).parents[1] / "data"
FLAGS = load_table(str(DATA / "flags-sglang-0.5.23.json.gz"))
NAMES = json.loads(gzip.decompress((DATA / "environment-sglang-0.5.23.json.gz").read_bytes()))
BY_ID = {rule.id: rule for rule in RULES}
V3 = "DeepseekV3ForCausalLM"
LLAMA = "LlamaForCausalLM"


def found(cases: list[Case], off: tuple[str, ...] = ()) -> dict[str, str]:
    """Rule by state, for rules that say anything; the effect where it holds."""
    verdicts, _added = engine_rules.judge(cases, RULES, off)
    return {v.rule.id: v.rule.effect if v.state == engine_rules.HOLDS else v.state for v in verdicts}


def said(rule: str, *cases: Case) -> str | None:
    return found(with_peers(list(cases))).get(rule)


# --- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_says_when_why_what_to_do_and_from_where(rule: Rule) -> None:
    assert rule.effect in (engine_rules.ALLOW, engine_rules.WARN, engine_rules.CORRECT, engine_rules.REFUSE)
    assert rule.when and rule.why and rule.source
    assert not rule.why.endswith(".") and not rule.cure.endswith(".")
    assert bool(rule.cure) == (rule.effect in (engine_rules.WARN, engine_rules.REFUSE))
    assert bool(rule.flags) == (rule.effect == engine_rules.CORRECT)


def test_no_two_rules_have_one_name() -> None:
    assert len(BY_ID) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_speaks_of_flags_and_variables_that_the_locked_engine_knows(rule: Rule) -> None:
    known = {name for flag in FLAGS["flags"] for name in flag["names"]}
    kind, name = rule.place
    flags = [*rule.flags, *([name] if kind == "args" and name else [])]
    assert not [flag for flag in flags if f"--{flag}" not in known]
    if kind == "env":
        assert any(name in part["names"] for part in NAMES.values())


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.flags], ids=lambda rule: rule.id)
def test_a_correction_adds_values_that_the_locked_engine_takes(rule: Rule) -> None:
    by_name = {name: flag for flag in FLAGS["flags"] for name in flag["names"]}
    for name, value in rule.flags.items():
        choices = by_name[f"--{name}"]["choices"]
        assert choices is None or value in choices


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_never_fails_on_odd_values(rule: Rule) -> None:
    odd: list[Any] = [None, "", "x", -1, 0, True, {"a": 1}, ["a"], "{", "a:b,", "1e9"]
    for value in odd:
        args = {rule.place[1] or "tp": value, "speculative-algorithm": value, "disaggregation-ib-device": value}
        env = {rule.place[1] or "X": value, "UCX_TLS": value, "PYTORCH_ALLOC_CONF": value}
        for role in ("prefill", "decode", "colocated"):
            for device in ("cuda", "cpu"):
                server = case(role, device=device, args=args, env=env)
                assert engine_rules.decide(rule, server)[0] in (True, False, None)
                rule.seen(server)


# --- the runner of the experts, over the grid -------------------------------------------------------------------------

CUTLASS = {"moe-runner-backend": "flashinfer_cutlass"}


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23", "0.6.0"])
@pytest.mark.parametrize(
    ("capability", "quantization", "architecture", "added"),
    [
        (RTX_PRO_6000, "nvfp4", V4, CUTLASS),
        (RTX_PRO_6000, "mxfp4", V4, {}),
        (RTX_PRO_6000, "fp8", V4, {}),
        (RTX_PRO_6000, "nvfp4", V3, {}),
        (RTX_PRO_6000, "nvfp4", LLAMA, {}),
        (RTX_PRO_6000, "none", LLAMA, {}),
        (H200, "nvfp4", V4, {}),
        (H200, "fp8", V4, {}),
        (B200, "nvfp4", V4, {}),
        (B200, "mxfp4", V4, {}),
    ],
)
def test_only_nvfp4_deepseek_v4_on_sm120_gets_another_runner(
    version: str, capability: str, quantization: str, architecture: str, added: dict[str, str]
) -> None:
    server = case(version=version, capability=capability, quantization=quantization, architecture=architecture)
    _verdicts, flags = engine_rules.judge([server], RULES)
    assert flags.get("decode-0", {}) == added


@pytest.mark.parametrize("runner", ["flashinfer_cutedsl", "marlin", "triton"])
def test_a_runner_that_the_inventory_names_is_kept(runner: str) -> None:
    _verdicts, flags = engine_rules.judge([case(args={"moe-runner-backend": runner})], RULES)
    assert not flags


@pytest.mark.parametrize("runner", ["flashinfer_trtllm", "flashinfer_trtllm_routed"])
@pytest.mark.parametrize(
    ("capability", "quantization", "verdict"),
    [
        (RTX_PRO_6000, "nvfp4", "refuse"),
        (RTX_PRO_6000, "mxfp4", "refuse"),
        (RTX_PRO_6000, "fp8", None),
        (B200, "nvfp4", None),
        (None, "nvfp4", "undecided"),
        (RTX_PRO_6000, None, "undecided"),
        (H200, None, None),
    ],
)
def test_a_tensorrt_llm_runner_is_refused_on_sm120_alone(
    runner: str, capability: str | None, quantization: str | None, verdict: str | None
) -> None:
    server = case(capability=capability, quantization=quantization, args={"moe-runner-backend": runner})
    assert said("trtllm_moe_on_sm120", server) == verdict


@pytest.mark.parametrize(
    ("quantization", "verdict"),
    [(None, None), ("modelopt_fp4", None), ("modelopt_mixed", None), ("fp8", "refuse"), ("mxfp4", "refuse")],
)
def test_the_cutlass_runner_beside_a_quantization_that_it_does_not_take_is_refused(
    quantization: str | None, verdict: str | None
) -> None:
    # The runner may be the one that a correction adds.
    assert said("cutlass_moe_quantization", case(args={"quantization": quantization})) == verdict


@pytest.mark.parametrize(
    ("capability", "verdict"),
    [(RTX_PRO_6000, "refuse"), (H200, "refuse"), (B200, None), ("10.3", None), (None, "undecided")],
)
def test_online_nvfp4_needs_sm100(capability: str | None, verdict: str | None) -> None:
    server = case(capability=capability, quantization="none", args={"quantization": "nvfp4_online"})
    assert said("nvfp4_online_needs_sm100", server) == verdict


@pytest.mark.parametrize(
    ("architecture", "args", "verdicts"),
    [
        (V3, {}, {"modelopt_quantization_unsaid": "warn"}),
        (V3, {"quantization": "modelopt_fp4"}, {"moe_runner_modelopt_sm120": "allow"}),
        (V3, {"moe-runner-backend": "flashinfer_cutlass"}, {}),
        (LLAMA, {}, {}),
    ],
)
def test_other_nvfp4_mixtures_must_say_their_quantization_on_sm120(
    architecture: str, args: dict[str, Any], verdicts: dict[str, str]
) -> None:
    assert found([case(architecture=architecture, args=args)]) == verdicts


# --- speculation, over the grid ----------------------------------------------------------------------------------------

EAGLE = {
    "speculative-algorithm": "EAGLE",
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 4,
}


@pytest.mark.parametrize(
    ("capability", "quantization", "architecture", "verdicts"),
    [
        (RTX_PRO_6000, "nvfp4", V4, {"mtp_nvfp4_sm120": "refuse"}),
        (RTX_PRO_6000, "mxfp4", V4, {"mtp_mxfp4_sm120": "allow"}),
        (RTX_PRO_6000, "nvfp4", V3, {"mtp_draft_runner": "warn"}),
        (RTX_PRO_6000, "fp8", V3, {}),
        (H200, "nvfp4", V4, {}),
        (B200, "nvfp4", V4, {}),
        (None, "nvfp4", V4, {"mtp_nvfp4_sm120": "undecided"}),
        (RTX_PRO_6000, None, V4, {"mtp_nvfp4_sm120": "undecided", "mtp_mxfp4_sm120": "undecided"}),
    ],
)
def test_mtp_is_allowed_doubted_or_refused_by_chip_and_checkpoint(
    capability: str | None, quantization: str | None, architecture: str, verdicts: dict[str, str]
) -> None:
    servers = pair(capability=capability, quantization=quantization, architecture=architecture, args=EAGLE)
    assert {rule: state for rule, state in found(servers).items() if rule.startswith("mtp_")} == verdicts


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({"speculative-algorithm": "EAGLE"}, ("mtp_parameters", "correct")),
        (EAGLE, None),
        ({**EAGLE, "speculative-eagle-topk": 4}, ("mtp_topk", "refuse")),
        ({"speculative-algorithm": "EAGLE", "speculative-eagle-topk": 1}, ("mtp_topk", "refuse")),
        ({"speculative-algorithm": "EAGLE", "speculative-num-steps": 3}, ("mtp_topk", "refuse")),
        ({"speculative-algorithm": "NEXTN"}, ("mtp_algorithm", "refuse")),
        ({"speculative-algorithm": "eagle"}, ("mtp_algorithm", "refuse")),
        ({"speculative-algorithm": "NGRAM"}, ("mtp_algorithm", "refuse")),
        ({"speculative-algorithm": "DSPARK"}, None),
        ({}, None),
    ],
)
def test_what_deepseek_v4_asks_of_speculation(args: dict[str, Any], verdict: tuple[str, str] | None) -> None:
    verdicts = found(pair(capability=H200, quantization="fp8", args=args))
    assert set(verdicts.items()) == ({verdict} if verdict else set())


def test_a_correction_makes_the_other_rules_see_its_flags() -> None:
    verdicts, added = engine_rules.judge(pair(quantization="mxfp4", args={"speculative-algorithm": "EAGLE"}), RULES)
    assert added["decode-0"]["speculative-eagle-topk"] == 1
    assert not engine_rules.of_effect(verdicts, engine_rules.REFUSE)


@pytest.mark.parametrize(
    ("prefill", "decode", "verdict"),
    [
        (EAGLE, {}, ("draft_only_on_prefill", "refuse")),
        ({}, EAGLE, ("draft_only_on_decode", "warn")),
        (EAGLE, {**EAGLE, "speculative-draft-model-path": "/x"}, ("draft_differs", "refuse")),
        (EAGLE, EAGLE, None),
        ({}, {}, None),
    ],
)
def test_both_roles_must_have_the_same_draft(
    prefill: dict[str, Any], decode: dict[str, Any], verdict: tuple[str, str] | None
) -> None:
    servers = pair({"args": prefill}, {"args": decode}, architecture=LLAMA, quantization="none")
    assert set(found(servers).items()) == ({verdict} if verdict else set())


@pytest.mark.parametrize(
    ("version", "algorithm", "verdict"),
    [
        ("0.5.23", "EAGLE", None),
        ("0.5.23", "EAGLE3", None),
        ("0.5.23", "NGRAM", "decode_cache_and_speculation"),
        ("0.5.17", "EAGLE", "decode_cache_and_any_speculation"),
        ("0.5.17", "NGRAM", "decode_cache_and_any_speculation"),
        ("0.5.17", "", None),
    ],
)
def test_the_version_decides_whether_decodes_cache_goes_with_speculation(
    version: str, algorithm: str, verdict: str | None
) -> None:
    args = {"disaggregation-decode-enable-radix-cache": True, "speculative-algorithm": algorithm or None}
    servers = pair({"args": {}}, {"args": args}, version=version, architecture=LLAMA, quantization="none")
    states = {rule for rule, state in found(servers).items() if state == "refuse"}
    assert states == ({verdict} if verdict else set())


# --- prefill and decode together, KV transfer, environment --------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "env", "verdict"),
    [
        (LLAMA, {}, "warn"),
        (LLAMA, {"SGLANG_DISAGG_STAGING_BUFFER": 1}, None),
        (V4, {}, None),
        (None, {}, "undecided"),
    ],
)
def test_another_tp_on_decode_is_doubted_without_latent_attention(
    architecture: str | None, env: dict[str, Any], verdict: str | None
) -> None:
    servers = pair({"tp": 2}, {"tp": 4}, architecture=architecture, quantization="none", env=env)
    assert found(servers).get("tp_differs") == verdict


def test_dp_attention_divides_the_tp_that_counts() -> None:
    attention = {"enable-dp-attention": True, "dp-size": 2}
    assert "tp_differs" not in found(pair({"tp": 2}, {"tp": 4, "args": attention}, architecture=LLAMA))


@pytest.mark.parametrize(
    ("changes", "rule", "effect"),
    [
        ({"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}, "expandable_segments", "refuse"),
        ({"env": {"PYTORCH_ALLOC_CONF": "a:1, expandable_segments : true"}}, "expandable_segments", "refuse"),
        ({"env": {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": True}}, "post_capture_kv_sizing", "refuse"),
        ({"env": {"SGLANG_DISAGG_STAGING_BUFFER": "1"}}, "staging_buffer_with_latent_attention", "refuse"),
        ({"env": {"UCX_TLS": "tcp"}}, "ucx_without_cuda", "refuse"),
        ({"env": {"UCX_TLS": "tcp,cuda_copy"}}, "ucx_without_cuda_ipc", "warn"),
        ({"env": {"UCX_TLS": "^cuda_ipc"}}, "ucx_without_cuda_ipc", "warn"),
        (
            {"env": {"SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS": {"num_threads": 2}}},
            "nixl_params",
            "refuse",
        ),
        ({"env": {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}}, "visible_devices", "refuse"),
        ({"env": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}}, "variable_is_overwritten", "refuse"),
        ({"env": {"SGLANG_OPT_USE_TOPK_V2": "true"}}, "topk_v2_on_sm120", "refuse"),
        ({"env": {"SGLANG_SET_CPU_AFFINITY": "yes"}}, "cpu_affinity_ignores_numa", "warn"),
        ({"env": {"SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": 10}}, "heartbeat_outlives_restart", "warn"),
        ({"env": {"SGLANG_TEST_DISAGG_FAILURE_PROB": 0.05}}, "injected_failures", "warn"),
        ({"env": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": 1}, "tp": 3}, "pcie_allreduce_idle", "warn"),
        ({"env": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": 1}, "version": "0.5.17"}, "pcie_allreduce_unknown", "warn"),
        ({"env": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": 1}, "profile": "nvlink"}, "pcie_allreduce_on_nvlink", "warn"),
        ({"env": {"SGLANG_HOST_IP": "127.0.0.1"}, "fleet": True}, "host_address_is_loopback", "refuse"),
        ({"args": {"disaggregation-ib-device": "mlx5_0"}, "version": "0.5.17"}, "ib_device_ignored", "refuse"),
        ({"args": {"disaggregation-ib-device": "mlx5_0:1"}}, "ib_device_port", "refuse"),
        ({"args": {"disaggregation-ib-device": {"0": "mlx5_0, mlx5_1:1"}}}, "ib_device_port", "refuse"),
        (
            {"args": {"disaggregation-ib-device": "mlx5_0"}, "env": {"UCX_NET_DEVICES": "mlx5_1:1"}},
            "ib_device_overridden",
            "refuse",
        ),
        ({"args": {"dsv4-attn-backend": "trtllm"}}, "dsv4_trtllm_attention", "refuse"),
        ({"args": {"page-size": 64}}, "dsv4_page_size", "warn"),
        ({"args": {"kv-cache-dtype": "fp8_e5m2"}}, "dsv4_kv_dtype", "refuse"),
        (
            {"args": {"disaggregation-decode-allocation-policy": "prefill_complete"}},
            "allocation_policy_needs_mooncake",
            "refuse",
        ),
        ({"args": {"disaggregation-enable-kv-checksum": True}, "device": "cpu"}, "kv_checksum_needs_gpu", "refuse"),
    ],
)
def test_what_would_go_wrong_is_found(changes: dict[str, Any], rule: str, effect: str) -> None:
    assert found(pair(**changes)).get(rule) == effect


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False,max_split_size_mb:512"}},
        {"env": {"UCX_TLS": "cuda_ipc,cuda_copy,sm,self,tcp"}},
        {"env": {"UCX_TLS": "all"}},
        {"env": {"UCX_TLS": "tcp,cuda_copy"}, "fleet": True},
        {"env": {"UCX_TLS": "^gdr_copy"}},
        {"env": {"SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS": '{"num_threads": "4"}'}},
        {"env": {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "SGLANG_OPT_USE_TOPK_V2": False}},
        {"args": {"disaggregation-ib-device": '{"0": "mlx5_0"}'}},
        {"args": {"disaggregation-ib-device": "/etc/devices.json"}},
        {"args": {"page-size": 256, "kv-cache-dtype": "bfloat16"}},
        {"env": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": 1}},
    ],
)
def test_what_is_right_is_left_alone(changes: dict[str, Any]) -> None:
    states = found(pair(**changes))
    assert not [rule for rule, state in states.items() if state in ("refuse", "warn", "undecided")]


def test_a_colocated_server_may_have_what_only_kv_transfer_forbids() -> None:
    assert "expandable_segments" not in found(
        [case("colocated", env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})]
    )


def test_trtllm_attention_with_an_fp8_cache_is_refused_for_prefill_on_sm120() -> None:
    args = {"attention-backend": "trtllm_mha", "kv-cache-dtype": "fp8_e4m3"}
    servers = pair(args=args, architecture=LLAMA, quantization="none")
    verdicts, _added = engine_rules.judge(servers, RULES)
    assert [v.server for v in verdicts if v.rule.id == "trtllm_mha_fp8_sm120"] == ["prefill-0"]


# --- in the plan --------------------------------------------------------------------------------------------------------


def test_the_plan_shows_what_a_rule_added_and_every_command_line_has_it() -> None:
    plan = planned(box())
    for server in [*plan["servers"], plan["reference"]]:
        assert "--moe-runner-backend flashinfer_cutlass" in " ".join(server["argv"])
    (first, _second) = [v for v in plan["engine_rules"]["verdicts"] if v["effect"] == "correct"]
    assert first["rule"] == "moe_runner_nvfp4_sm120" and first["flags"] == CUTLASS
    assert plan["engine_rules"]["sglang"] == {"box1": "0.5.23"}


def test_what_is_not_declared_is_left_open_and_changes_nothing() -> None:
    inventory = box(pd_model={"path": "/srv/models/flash"})
    del inventory["pd_compute_capability"]
    plan = planned(inventory, version=None)
    assert "--moe-runner-backend" not in plan["servers"][0]["argv"]
    (verdict, _other) = [v for v in plan["engine_rules"]["verdicts"] if v["rule"] == "moe_runner_nvfp4_sm120"]
    assert verdict["state"] == "undecided"
    assert verdict["needs"] == ["compute capability", "quantization", "architecture"]


def test_a_refusal_is_a_fault_where_the_inventory_wrote_the_cause() -> None:
    allocator = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    _plan, faults = resolved(box(pd_server_env=allocator))
    assert len(faults) == 1, "what holds for all servers is one fault"
    assert faults[0].startswith("pd_server_env.PYTORCH_CUDA_ALLOC_CONF: ")
    assert "cuda_ipc" in faults[0] and faults[0].endswith("(rule expandable_segments)")
    inventory = box()
    inventory["pd_servers"][1]["env"] = allocator
    _plan, faults = resolved(inventory)
    assert [fault.split(": ")[0] for fault in faults] == ["pd_servers[1].env.PYTORCH_CUDA_ALLOC_CONF"]


def test_a_rule_that_is_switched_off_refuses_and_adds_nothing_and_is_still_told() -> None:
    flags = {"speculative-algorithm": "EAGLE"}
    _plan, faults = resolved(box(pd_server_args=flags))
    assert len(faults) == 1 and "mtp_nvfp4_sm120" in faults[0]
    plan = planned(box(pd_server_args=flags, pd_engine_rules_off=["mtp_nvfp4_sm120", "moe_runner_nvfp4_sm120"]))
    assert "--moe-runner-backend" not in plan["servers"][0]["argv"]
    assert {v["rule"] for v in plan["engine_rules"]["verdicts"] if v["state"] == "off"} == {
        "mtp_nvfp4_sm120",
        "moe_runner_nvfp4_sm120",
    }


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    _plan, faults = resolved(box(pd_engine_rules_off=["mtp_nvfp4_sm12"]))
    assert faults == ["pd_engine_rules_off[0]: there is no engine rule 'mtp_nvfp4_sm12'; did you mean mtp_nvfp4_sm120?"]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("12.0", "12.0"), (12.0, "12.0"), ("9.0", "9.0"), ("12", None), ("sm_120", None), (120, None)],
)
def test_a_compute_capability_is_written_as_nvidia_smi_prints_it(written: Any, wanted: str | None) -> None:
    plan, faults = resolved(box(pd_compute_capability=written))
    if wanted is None:
        assert len(faults) == 1 and "is no compute capability" in faults[0]
    else:
        assert plan is not None and plan["engine_rules"]["compute_capability"] == wanted


# --- versions, names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "since", "before", "within"),
    [
        ("0.5.23", "0.5.23", None, True),
        ("0.5.23.post1", "0.5.23", None, True),
        ("0.5.9", "0.5.23", None, False),
        ("0.5.17", None, "0.5.23", True),
        ("0.6.0", None, "0.5.23", False),
        (None, "0.5.23", None, None),
        (None, None, None, True),
    ],
)
def test_versions_are_compared_by_their_numbers(
    version: str | None, since: str | None, before: str | None, within: bool | None
) -> None:
    assert version_within(version, since, before) is within


def test_the_version_is_read_from_a_lock() -> None:
    locks = Path(__file__).parents[3] / "roles/engine/files/locks"
    assert {locked_version((locks / name).read_text()) for name in ("cpu.txt", "cuda13.txt")} == {"0.5.23"}
    assert locked_version("torch==2.0\n") is None


def test_a_quantization_has_one_name() -> None:
    assert {plain_quantization(name) for name in ("nvfp4", "modelopt_fp4", "modelopt NVFP4", "NVFP4")} == {"nvfp4"}
    assert plain_quantization("MXFP4") == "mxfp4" and plain_quantization(None) is None


def test_gpus_of_two_kinds_have_no_common_capability() -> None:
    assert one_capability(["12.0", "12.0"]) == "12.0"
    assert one_capability(["12.0", "9.0"]) is None
    assert one_capability(["12.0", None]) is None
    assert one_capability([]) is None
