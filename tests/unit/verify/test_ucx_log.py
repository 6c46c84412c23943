# SPDX-License-Identifier: Apache-2.0
"""What UCX says in a prefill server's log about the way of the KV cache.

Excerpts of the logs of one H200 (docs/evidence/h200x1), and tables of two H200s put together in other ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import ucx_log
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_log import LogMark
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_life import Life, write_life
from ansible_collections.pdlab.pdlab.plugins.modules import pd_kv_counters

from tests.unit.verify.module_runner import run_module
from tests.unit.verify.stack import Stack

LOGS = Path(__file__).parents[1] / "data" / "logs"
WORKERS = [
    {"name": "prefill-0", "role": "prefill", "host": "box1", "gpus": [0]},
    {"name": "decode-0", "role": "decode", "host": "box1", "gpus": [0]},
]


def table(way: str, config: str, to: str = "cuda/dev[3]", thread: int = 0) -> list[str]:
    """One table as UCX writes it, with the rules between its rows."""
    mark = f"[1795970126.580911] [vm:5699 :{thread}]   "
    rule = "+--------+-------------+-----------------------------------------------+"
    rows = [
        "| 5ba7c628-f4e1-4fae-9a7e-91d25d1 intra-node cfg#2 |",
        f"| remote memory write by ucp_put*(multi) from cuda/GPU0 to {to} |",
        rule,
        "| Range  | Description |                    Config                     |",
        rule,
        f"| 0..inf | {way}   | {config}                                 |",
        rule,
    ]
    return [mark + row for row in rows]


HOST = [
    "[1795969629.383828] [vm:2544 :0]   | 5ba7c628-f4e1-4fae-9a7e-91d25d1 intra-node cfg#2 |",
    "[1795969629.383828] [vm:2544 :0]   | remote memory write by ucp_put* from host memory to host |",
    "[1795969629.383828] [vm:2544 :0]   | 0..inf | zero-copy   | cma/memory                        |",
]
DIRECT = [*HOST, *table("zero-copy", "cuda_ipc/cuda")]
THROUGH_TCP = [*HOST, *table("software emulation", "tcp/lo", "cuda")]


def text(lines: list[str]) -> str:
    return "\n".join(["[2026-11-30 07:00:00] The server is fired up | and ready", *lines, "INFO: 200 OK"]) + "\n"


def test_the_way_of_gpu_memory_is_read_among_the_servers_own_lines() -> None:
    assert ucx_log.paths(text(DIRECT)) == ["zero-copy cuda_ipc/cuda"]
    assert ucx_log.paths(text(THROUGH_TCP)) == ["software emulation tcp/lo"]


@pytest.mark.parametrize(
    ("name", "way", "wrong"),
    [
        ("prefill-ucx-cuda-ipc", "zero-copy cuda_ipc/cuda", False),
        ("prefill-ucx-tcp", "software emulation tcp/lo", True),
    ],
)
def test_the_log_of_a_real_prefill_server_is_read_among_its_other_tables(name: str, way: str, wrong: bool) -> None:
    log = (LOGS / f"{name}.log").read_text()
    # Other tables name TCP in both: what the servers tell each other about a request takes that way.
    assert "Prefill batch" in log and log.count("tcp/lo") > 1
    assert ucx_log.paths(log) == [way]
    assert (ucx_log.detour("prefill-0", [way]) is not None) is wrong


@pytest.mark.parametrize("lines", [[], HOST, table("zero-copy", "cma/memory", to="host")])
def test_a_log_that_does_not_say_it_says_nothing(lines: list[str]) -> None:
    assert ucx_log.paths(text(lines)) == []


def test_tables_that_two_threads_write_at_once_are_told_apart() -> None:
    first, second = table("zero-copy", "cuda_ipc/cuda"), table("software emulation", "tcp/lo", thread=3)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert ucx_log.paths(text(mixed)) == ["software emulation tcp/lo", "zero-copy cuda_ipc/cuda"]


def test_a_detour_is_named_with_its_cause_and_cure() -> None:
    assert ucx_log.detour("prefill-0", ["zero-copy cuda_ipc/cuda"]) is None
    assert ucx_log.detour("prefill-0", []) is None
    said = ucx_log.detour("prefill-0", ["software emulation tcp/lo", "zero-copy cuda_ipc/cuda"])
    assert said is not None
    assert "'software emulation tcp/lo' instead of cuda_ipc" in said
    # A second deployment would find every definition as it was, and leave the servers alone.
    assert "ucx.conf" in said and "pdlab rebuild" in said


@pytest.mark.parametrize("change", [{"gpus": []}, {"host": "box2"}, {"role": "prefill"}])
def test_between_hosts_and_on_a_cpu_another_way_is_right(change: dict[str, Any]) -> None:
    assert ucx_log.applies(WORKERS)
    assert not ucx_log.applies([WORKERS[0], {**WORKERS[1], **change}])


@pytest.mark.parametrize(("now", "ok"), [(DIRECT, True), (THROUGH_TCP, False), ([], True)])
def test_a_running_server_that_writes_another_way_fails_the_verification(
    stack: Stack, capsys: pytest.CaptureFixture[str], tmp_path: Path, now: list[str], ok: bool
) -> None:
    log = tmp_path / "logs" / "prefill-0.log"
    log.parent.mkdir()
    log.write_text(text(DIRECT if now is THROUGH_TCP else THROUGH_TCP))  # an earlier life says nothing of this one
    write_life(str(tmp_path), "pdlab-prefill-0", Life("", 0.0, LogMark(log.stat().st_size, log.stat().st_ino)))
    with log.open("a") as stream:
        stream.write(text(now))
    servers = [{**server, "host": "box1", "gpus": [0]} for server in stack.servers()]
    before = run_module(pd_kv_counters, capsys, {"workers": servers, "root": str(tmp_path)})
    assert before["ok"], "the first reading judges nothing"
    stack.transfers += 4
    result = run_module(pd_kv_counters, capsys, {"workers": servers, "before": before["after"], "root": str(tmp_path)})
    assert result["ok"] is ok
    assert result["ucx"] == ({"prefill-0": ucx_log.paths(text(now))} if now else {})
    if not ok:
        assert "instead of cuda_ipc" in result["msg"]
