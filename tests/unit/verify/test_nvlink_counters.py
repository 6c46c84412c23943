# SPDX-License-Identifier: Apache-2.0
"""NVLink's own counters against the KV cache that the engine says it sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import nvlink_counters
from ansible_collections.pdlab.pdlab.plugins.modules import pd_kv_counters

from tests.unit.verify.module_runner import run_module
from tests.unit.verify.stack import Stack

MIB = 2**20
WORKERS: list[dict[str, Any]] = [
    {"name": "prefill-0", "role": "prefill", "host": "box1", "gpus": [0]},
    {"name": "decode-0", "role": "decode", "host": "box1", "gpus": [1]},
]


def smi(tx_mib: int = 0, links: int = 18) -> str:
    """What `nvidia-smi nvlink -gt d` prints (driver 580, two H200s), with so much sent by GPU 0 since a first reading."""
    lines = []
    for gpu in (0, 1):
        lines.append(f"GPU {gpu}: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-00000000000{gpu})")
        for link in range(links):
            sent, got = (tx_mib * 1024 // links, 0) if gpu == 0 else (0, tx_mib * 1024 // links)
            lines += [f"\t Link {link}: Data Tx: {1385469 + sent} KiB", f"\t Link {link}: Data Rx: {1382328 + got} KiB"]
    return "\n".join(lines) + "\n"


def said(text: str | None) -> nvlink_counters.Ask:
    def ask(argv: Sequence[str]) -> str | None:
        assert list(argv) == ["nvidia-smi", "nvlink", "-gt", "d"]
        return text

    return ask


def test_links_are_added_up_in_bytes() -> None:
    found = nvlink_counters.read(WORKERS, said(smi()))
    assert found == {gpu: {"tx": 18 * 1385469 * 1024, "rx": 18 * 1382328 * 1024} for gpu in ("0", "1")}


@pytest.mark.parametrize(
    ("sent_mib", "agrees", "another_way"),
    [(7020, True, False), (7308, True, False), (7380, False, False), (4000, False, False), (10, False, True)],
)
def test_what_went_over_nvlink_is_held_against_what_the_engine_sent(
    sent_mib: int, agrees: bool, another_way: bool
) -> None:
    before, after = (nvlink_counters.read(WORKERS, said(smi(mib))) for mib in (0, sent_mib))
    found = nvlink_counters.compare(WORKERS, before, after, 7020 * MIB)
    assert found is not None
    assert (found.agrees, found.went_another_way) == (agrees, another_way)
    assert found.share == pytest.approx(sent_mib / 7020, abs=0.001)


def test_too_little_kv_cache_or_counters_that_began_anew_say_nothing() -> None:
    before, after = (nvlink_counters.read(WORKERS, said(smi(mib))) for mib in (0, 100))
    assert nvlink_counters.compare(WORKERS, before, after, MIB) is None
    assert nvlink_counters.compare(WORKERS, after, before, 100 * MIB) is None
    assert nvlink_counters.compare(WORKERS, None, after, 100 * MIB) is None


@pytest.mark.parametrize("text", [None, "", "GPU 0: NVIDIA L4 (UUID: GPU-0)\nUnable to retrieve NVLink information\n"])
def test_a_box_without_nvlink_says_nothing(text: str | None) -> None:
    assert nvlink_counters.read(WORKERS, said(text)) is None


@pytest.mark.parametrize(
    "change", [{"gpus": [1, 2]}, {"gpus": [0]}, {"gpus": []}, {"host": "box2"}, {"role": "colocated"}]
)
def test_where_other_traffic_uses_the_links_they_say_nothing(change: dict[str, Any]) -> None:
    assert nvlink_counters.read([WORKERS[0], {**WORKERS[1], **change}], said(smi())) is None


@pytest.mark.parametrize(("sent_mib", "ok", "words"), [(64, True, "100.0 %"), (0, False, "Remove UCX_TLS")])
def test_kv_cache_that_went_another_way_fails_the_verification(
    stack: Stack,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    sent_mib: int,
    ok: bool,
    words: str,
) -> None:
    at = {"prefill": 0, "decode": 1}
    servers = [{**server, "host": "box1", "gpus": [at[server["role"]]]} for server in stack.servers()]
    real = nvlink_counters.read
    monkeypatch.setattr(nvlink_counters, "read", lambda workers: real(workers, said(smi(0, links=16))))
    before = run_module(pd_kv_counters, capsys, {"workers": servers})
    stack.transfers += 1024
    monkeypatch.setattr(nvlink_counters, "read", lambda workers: real(workers, said(smi(sent_mib, links=16))))
    options = {"workers": servers, "before": before["after"], "links_before": before["links"]}
    result = run_module(pd_kv_counters, capsys, options)
    assert (result["ok"], result["bytes"]) == (ok, 64 * MIB)
    assert words in result["why"]
    assert result["nvlink"]["agrees"] is ok
