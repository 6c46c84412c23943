# SPDX-License-Identifier: Apache-2.0
"""Held against the flags of a real sglang 0.5.23, as flag_table.py printed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import server_argv
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_flags import (
    deprecations,
    flag_faults,
    load_table,
    table_for,
)

TABLE = load_table(str(Path(__file__).parents[1] / "data" / "flags-sglang-0.5.23.json.gz"))
SERVER = {
    "role": "prefill",
    "python": "/srv/pdlab/engine/bin/python",
    "model_path": "/srv/model",
    "served_name": "canary",
    "device": "cpu",
    "address": "127.0.0.1",
    "port": 30000,
    "nccl_port": 21000,
    "bootstrap_port": 8998,
    "gpus": [],
    "tp": 1,
    "numa_node": 0,
}


def faults(**args: Any) -> list[str]:
    named = {key.replace("_", "-"): value for key, value in args.items()}
    return flag_faults(server_argv({**SERVER, "args": named}), TABLE, "prefill-0")


@pytest.mark.parametrize("role", ["prefill", "decode", "colocated"])
def test_the_command_lines_that_pdlab_makes_are_known_to_the_engine(role: str) -> None:
    args = {
        "attention-backend": "torch_native",
        "sampling-backend": "pytorch",
        "disable-overlap-schedule": True,
        "max-total-tokens": 65536,
        "cuda-graph-bs-decode": [1, 2, 4],
        "json-model-override-args": {"a": 1},
        "context-length": -1,
    }
    assert flag_faults(server_argv({**SERVER, "role": role, "args": args}), TABLE, "x") == []


ROUTER = {
    "role": "router",
    "python": "/srv/pdlab/engine/bin/python",
    "address": "127.0.0.1",
    "port": 8000,
    "prometheus_host": "127.0.0.1",
    "prometheus_port": 29001,
    "policy": "round_robin",
}
PD_WORKERS = [
    {"role": "prefill", "url": "http://127.0.0.1:30000", "bootstrap_port": 8998},
    {"role": "prefill", "url": "http://127.0.0.1:30002", "bootstrap_port": 8999},
    {"role": "decode", "url": "http://127.0.0.1:30001"},
]
COLOCATED_WORKERS = [{"role": "colocated", "url": f"http://127.0.0.1:{port}"} for port in (1, 2)]


def router_faults(workers: list[dict[str, Any]], **router: Any) -> list[str]:
    known = table_for("router", TABLE)
    assert known
    return flag_faults(server_argv({**ROUTER, "workers": workers, **router}), known, "router")


@pytest.mark.parametrize("workers", [PD_WORKERS, COLOCATED_WORKERS])
def test_the_command_lines_that_pdlab_makes_are_known_to_the_router(workers: list[dict[str, Any]]) -> None:
    assert router_faults(workers) == []
    assert router_faults(workers, policy="cache_aware", args={"cache-threshold": 0.5, "disable-retries": False}) == []


def test_a_routers_flag_is_held_against_the_routers_parser_and_not_the_engines() -> None:
    # --page-size is a flag of the engine; --max-payload-siz is a slip.
    found = router_faults(PD_WORKERS, policy="best", args={"page-size": 64, "max-payload-siz": 1, "log-level": 3})
    none = "sglang-router 0.3.2 has no flag"
    assert found == [
        "router: args policy: 'best' is not possible; possible are random, round_robin, cache_aware, power_of_two, manual",
        f"router: args page-size: {none} --page-size; remove it, or look at the flags of the installed version",
        f"router: args max-payload-siz: {none} --max-payload-siz; write it in full: --max-payload-size",
        "router: args log-level: '3' is not possible; possible are debug, info, warn, error",
    ]


def test_where_no_router_is_installed_its_flags_are_nobodys() -> None:
    assert table_for("router", {**TABLE, "router": None}) is None
    assert table_for("decode", TABLE) is TABLE


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ({"atention_backend": "fa3"}, "prefill-0: args atention-backend: sglang 0.5.23 has no flag --atention-backend; "
                                      "did you mean --attention-backend?"),
        ({"mem_fraction": 0.8}, "prefill-0: args mem-fraction: sglang 0.5.23 has no flag --mem-fraction; "
                                "write it in full: --mem-fraction-static"),
        ({"zzz": 1}, "prefill-0: args zzz: sglang 0.5.23 has no flag --zzz; remove it, or look at the flags of the "
                     "installed version"),
        ({"page_size": "long"}, "prefill-0: args page-size: 'long' is no whole number; correct the value"),
        ({"max_total_tokens": "many"}, "prefill-0: args max-total-tokens: 'many' is no whole number such as 65536, 64k "
                                       "or 64Ki; correct the value"),
        ({"mem_fraction_static": "half"}, "prefill-0: args mem-fraction-static: 'half' is no number; correct the value"),
        ({"disable_overlap_schedule": "yes"}, "prefill-0: args disable-overlap-schedule: takes no value (yes); write true "
                                              "to switch it on, false to leave it out"),
        ({"context_length": True}, "prefill-0: args context-length: needs 1 value, got none; give it a value"),
        ({"context_length": [1, 2]}, "prefill-0: args context-length: takes 1 value, got 2 (1 2); give it as one value"),
        ({"tensor_parallel_size": 2}, "prefill-0: args tensor-parallel-size: sets the same thing as --tp-size; keep one "
                                      "of the two"),
    ],
)  # fmt: skip
def test_each_fault_names_the_server_the_key_and_the_cure(args: dict[str, Any], wanted: str) -> None:
    assert faults(**args) == [wanted]


def test_a_choice_that_is_not_possible_names_the_nearest_and_the_others() -> None:
    (fault,) = faults(attention_backend="fa9")
    assert "'fa9' is not possible; did you mean fa4? possible are triton, torch_native" in fault


def test_all_faults_come_at_once() -> None:
    assert len(faults(zzz=1, context_length="x", attention_backend="y")) == 3


def test_a_negative_number_is_a_value_and_no_flag() -> None:
    assert faults(context_length=-1) == []


def test_a_missing_required_flag_is_named() -> None:
    (fault,) = flag_faults(["--port", "1"], TABLE, "x")
    assert fault == "x: args model: is required by sglang 0.5.23; add it"


def test_a_flag_that_the_engine_calls_deprecated_is_told_and_not_refused() -> None:
    argv = ["--model-path", "/m", "--disable-cuda-graph"]
    assert flag_faults(argv, TABLE, "x") == []
    assert "deprecated" in deprecations(argv, TABLE, "x")[0]


def test_a_deprecated_flag_names_its_successor_when_the_engine_does() -> None:
    table = {"engine": "e", "flags": [{"names": ["--old"], "dest": "old", "nargs": 0, "deprecated": True,
                                       "help": "(Deprecated, use --new) Old."}]}  # fmt: skip
    assert deprecations(["--old"], table, "x") == ["x: args old: e calls this flag deprecated; use --new"]


def test_a_flag_may_come_again_when_it_appends() -> None:
    table = {"flags": [{"names": ["--a"], "dest": "a", "nargs": None, "action": "append"}]}
    assert flag_faults(["--a", "1", "--a=2"], table, "x") == []


def test_a_word_before_any_flag_is_told() -> None:
    assert "before any flag" in flag_faults(["stray"], {"flags": []}, "x")[0]


def test_a_table_is_read_plain_and_zipped_and_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"flags": [], "router": None}))
    assert load_table(str(path)) == {"flags": [], "router": None}
    # As former versions wrote it: made again, with the router's flags.
    path.write_text(json.dumps({"flags": []}))
    with pytest.raises(ValueError, match="no flag table"):
        load_table(str(path))
    path.write_text("[]")
    with pytest.raises(ValueError, match="no flag table"):
        load_table(str(path))
