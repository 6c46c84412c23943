# SPDX-License-Identifier: Apache-2.0
"""From a server's description to its argv and environment."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import command_line
from hypothesis import given
from hypothesis import strategies as st

SERVER: dict[str, Any] = {
    "role": "prefill",
    "python": "/opt/pdlab/engine/bin/python",
    "home": "/opt/pdlab",
    "model_path": "/srv/models/m",
    "served_name": "m",
    "device": "cuda",
    "address": "127.0.0.1",
    "port": 30000,
    "bootstrap_port": 8998,
    "nccl_port": 21000,
    "gpus": [4, 5, 6, 7],
    "tp": 4,
    "numa_node": 1,
    "args": {},
    "env": {},
}


def value_of(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_numactl_stands_in_front_and_binds_cpus_and_memory() -> None:
    argv = command_line.engine_argv(SERVER)
    assert argv[:4] == ["numactl", "--cpunodebind=1", "--membind=1", SERVER["python"]]


def test_without_a_node_there_is_no_numactl() -> None:
    assert command_line.engine_argv({**SERVER, "numa_node": None})[0] == SERVER["python"]


def test_the_base_gpu_is_the_lowest_of_the_list() -> None:
    assert value_of(command_line.engine_argv(SERVER), "--base-gpu-id") == "4"


def test_prefill_and_decode_move_kv_over_nixl_unless_told_otherwise() -> None:
    for role in ("prefill", "decode"):
        argv = command_line.engine_argv({**SERVER, "role": role})
        assert value_of(argv, "--disaggregation-mode") == role
        assert value_of(argv, "--disaggregation-transfer-backend") == "nixl"


def test_a_colocated_server_has_no_disaggregation_flag() -> None:
    argv = command_line.engine_argv({**SERVER, "role": "colocated", "bootstrap_port": None})
    assert not [item for item in argv if item.startswith("--disaggregation")]


def test_only_prefill_opens_a_bootstrap_port() -> None:
    assert "--disaggregation-bootstrap-port" not in command_line.engine_argv({**SERVER, "role": "decode"})


def test_an_argument_of_the_user_replaces_the_derived_one_however_it_is_spelled() -> None:
    argv = command_line.engine_argv({**SERVER, "args": {"enable_metrics": False, "--tp-size": 2}})
    assert "--enable-metrics" not in argv
    assert argv.count("--tp-size") == 1 and value_of(argv, "--tp-size") == "2"


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8})?", fullmatch=True), st.text(min_size=1)))
def test_flag_values_of_any_text_are_items_of_their_own(args: dict[str, str]) -> None:
    argv = command_line.flag_arguments(args)
    assert argv == [item for key, value in args.items() for item in (f"--{key}", value)]


def test_flags_of_every_kind_become_items() -> None:
    argv = command_line.flag_arguments(
        {"on": True, "off": False, "none": None, "many": [1, "b c"], "json": {"a": "ü $x"}, "number": 0.5}
    )
    assert argv == ["--on", "--many", "1", "b c", "--json", '{"a": "ü $x"}', "--number", "0.5"]
    assert json.loads(argv[5]) == {"a": "ü $x"}


def test_the_router_names_every_prefill_with_its_bootstrap_port() -> None:
    router = {
        "role": "router",
        "python": "/p",
        "address": "127.0.0.1",
        "port": 8000,
        "prometheus_host": "127.0.0.1",
        "prometheus_port": 29001,
        "policy": "round_robin",
        "args": {},
        "workers": [
            {"role": "prefill", "url": "http://127.0.0.1:30000", "bootstrap_port": 8998},
            {"role": "prefill", "url": "http://127.0.0.1:30002", "bootstrap_port": 8999},
            {"role": "decode", "url": "http://127.0.0.1:30001", "bootstrap_port": None},
        ],
    }
    argv = command_line.server_argv(router)
    assert argv[3:12] == [
        "--pd-disaggregation",
        "--prefill",
        "http://127.0.0.1:30000",
        "8998",
        "--prefill",
        "http://127.0.0.1:30002",
        "8999",
        "--decode",
        "http://127.0.0.1:30001",
    ]


def test_the_router_starts_without_the_engine() -> None:
    router = {"role": "router", "python": "/p/python", "address": "::1", "port": 1, "prometheus_host": "::1"}
    argv = command_line.server_argv({**router, "prometheus_port": 2, "policy": "random", "workers": []})
    assert argv[:2] == ["/p/python", "-c"]
    # What the program says, said to a Python with a router that imports the engine if it can, as the real one does.
    stubs = """
import sys, types
for name in ("sglang", "sglang_router", "sglang_router.launch_router"):
    sys.modules[name] = types.ModuleType(name)
def main():
    try:
        import sglang
    except ImportError:
        print("no engine", *sys.argv[1:])
sys.modules["sglang_router.launch_router"].main = main
"""
    done = subprocess.run(
        [sys.executable, "-c", stubs + argv[2], *argv[3:]], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["no", "engine", *argv[3:]]


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        (["/e/bin/python", "-m", "sglang.launch_server", "--port", "1"], ["--port", "1"]),
        (["numactl", "-m", "0", "/e/bin/python3.12", "-m", "sglang.launch_server", "--port", "1"], ["--port", "1"]),
        (["/e/bin/python", "-c", "main()", "--port", "1"], ["--port", "1"]),
        (["--port", "1", "-m", "-c"], ["--port", "1", "-m", "-c"]),
        ([], []),
    ],
)
def test_the_arguments_of_a_program_are_those_behind_it(argv: list[str], wanted: list[str]) -> None:
    assert command_line.program_arguments(argv) == wanted


def test_a_router_in_front_of_colocated_servers_is_a_plain_one() -> None:
    workers = [{"role": "colocated", "url": f"http://127.0.0.1:{port}", "bootstrap_port": None} for port in (1, 2)]
    router = {
        "role": "router",
        "python": "/p",
        "address": "::1",
        "port": 8000,
        "prometheus_host": "::1",
        "prometheus_port": 29001,
        "policy": "round_robin",
        "workers": workers,
    }
    argv = command_line.server_argv(router)
    assert "--pd-disaggregation" not in argv
    assert argv[3:6] == ["--worker-urls", "http://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.mark.parametrize("role", ["prefill", "decode", "colocated"])
def test_an_engine_gets_its_rank_address_and_stays_offline(role: str) -> None:
    environment = command_line.server_environment({**SERVER, "role": role})
    assert environment["SGLANG_HOST_IP"] == "127.0.0.1"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["SGLANG_CRASH_ON_NUMA_BIND_FAILURE"] == "1"
    assert environment["PATH"].startswith("/opt/pdlab/engine/bin:")


def test_environment_values_become_text_as_a_shell_user_would_write_them() -> None:
    environment = command_line.server_environment(
        {**SERVER, "env": {"A": True, "B": 2, "C": {"num_threads": "2"}, "D": "a b"}}
    )
    assert (environment["A"], environment["B"], environment["C"], environment["D"]) == (
        "1",
        "2",
        '{"num_threads": "2"}',
        "a b",
    )
