# SPDX-License-Identifier: Apache-2.0
"""KV cache is tried between every pair of ranks that send each other some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.probes import RULES
from ansible_collections.pdlab.pdlab.plugins.module_utils.probe_options import probe_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.rank_pairs import rank_pairs, rounds
from ansible_collections.pdlab.pdlab.plugins.modules import kv_probe

from scripts.golden_plans import plan_of

GOOD = {
    "ok": True, "memory": "VRAM", "transport": "zero-copy cuda_ipc/cuda", "gib_s": 160.0, "copy_gib_s": 310.0, "why": None,
}  # fmt: skip


def server(*gpus: int, tp: int | None = None, **args: Any) -> dict[str, Any]:
    return {"gpus": list(gpus), "tp": tp or len(gpus), "args": args}


@pytest.mark.parametrize(
    ("prefill", "decode", "pairs"),
    [
        (server(0), server(1), [(0, 1)]),
        (server(0, 1, 2, 3), server(4, 5, 6, 7), [(0, 4), (1, 5), (2, 6), (3, 7)]),
        # One prefill rank feeds several decode ranks; several feed one.
        (server(0, 1), server(4, 5, 6, 7), [(0, 4), (0, 5), (1, 6), (1, 7)]),
        (server(0, 1, 2, 3), server(6, 7), [(0, 6), (1, 6), (2, 7), (3, 7)]),
        # Nobody promises an order of ranks there, or there is none.
        (server(0, 1), server(2, 3, tp=1, **{"pp-size": 2}), [(0, 2), (1, 2), (0, 3), (1, 3)]),
        (server(0), server(2, 3, **{"enable-dp-attention": True}), [(0, 2), (0, 3)]),
        (server(0, 1), server(2, 3, 4), [(0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (1, 4)]),
    ],
)
def test_the_pairs_are_those_of_the_engine(prefill: Any, decode: Any, pairs: list[tuple[int, int]]) -> None:
    assert rank_pairs(prefill, decode) == pairs


@pytest.mark.parametrize(
    ("name", "arm", "first", "others"),
    [
        ("two-gpus", None, [0, 1], []),
        ("gpu", None, [0, 4], [[1, 5], [2, 6], [3, 7]]),
        ("eight-nvlink-gpus", None, [0, 4], [[1, 5], [2, 6], [3, 7]]),
        ("eight-nvlink-gpus", "pd-2-6", [0, 2], [[1, 3], [0, 4], [1, 5], [0, 6], [1, 7]]),
        ("eight-nvlink-gpus", "pd-6-2", [0, 6], [[1, 7], [2, 6], [3, 7], [4, 6], [5, 7]]),
        ("four-gpus", None, [0, 2], [[1, 3]]),
    ],
)
def test_a_plan_tries_the_first_pair_and_then_every_other(
    name: str, arm: str | None, first: list[int], others: list[list[int]]
) -> None:
    options = probe_options(plan_of(name, arm), "gpubox")["kv"]
    assert options is not None
    assert (options["devices"], options["pairs"]) == (first, others)


def test_pairs_are_tried_at_once_only_where_they_have_no_gpu_in_common() -> None:
    assert rounds([[1, 5], [2, 6], [3, 7]]) == [[[1, 5], [2, 6], [3, 7]]]
    assert rounds([[1, 3], [0, 4], [1, 5], [0, 6]]) == [[[1, 3], [0, 4]], [[1, 5], [0, 6]]]
    assert rounds([]) == []


def probed(monkeypatch: pytest.MonkeyPatch, bad: dict[str, dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The module's probe of 0-4 and three pairs, each answering well but those in `bad`; and what was asked."""
    asked: list[str] = []

    def answer(_python: str, _script: Any, arguments: list[str], *_rest: Any) -> dict[str, Any]:
        devices = arguments[arguments.index("--devices") + 1]
        asked.append(devices)
        return {**GOOD, **bad.get(devices, {})}

    monkeypatch.setattr(kv_probe, "run_for_document", answer)
    params = {
        "devices": [0, 4],
        "pairs": [[1, 5], [2, 6], [3, 7]],
        "environments": [],
        "pythonpath": [],
        "timeout_s": 9,
    }
    return kv_probe.probe({**params, "memory": "vram", "bytes": 64, "python": "/x"}), asked


def test_all_ranks_over_a_good_path_are_a_good_result_with_the_first_pairs_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document, asked = probed(monkeypatch, {})
    assert asked[0] == "0,4" and sorted(asked[1:]) == ["1,5", "2,6", "3,7"]
    assert document["ok"] and document["gib_s"] == 160.0
    assert [pair["devices"] for pair in document["pairs"]] == [[1, 5], [2, 6], [3, 7]]
    assert all(pair["ok"] for pair in document["pairs"])


def test_one_pair_of_ranks_on_another_way_is_named_and_fails_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    document, _asked = probed(monkeypatch, {"2,6": {"transport": "software emulation tcp/lo", "gib_s": 0.4}})
    assert not document["ok"]
    assert document["why"].startswith("from GPU 2 to GPU 6: KV memory does not go from GPU to GPU: UCX uses")
    assert [pair["ok"] for pair in document["pairs"]] == [True, False, True]


@pytest.mark.parametrize(("gib_s", "ok"), [(5.0, True), (1.0, False)])
def test_pairs_that_share_a_link_may_be_slower_than_one_alone_but_not_as_slow_as_over_the_host(
    monkeypatch: pytest.MonkeyPatch, gib_s: float, ok: bool
) -> None:
    document, _asked = probed(monkeypatch, {"1,5": {"gib_s": gib_s}})
    assert document["ok"] is ok
    alone, _asked = probed(monkeypatch, {"0,4": {"gib_s": gib_s}})
    assert not alone["ok"]


def test_where_the_first_pair_fails_the_others_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    document, asked = probed(monkeypatch, {"0,4": {"ok": False, "why": "no agent"}})
    assert not document["ok"] and asked == ["0,4"]


def test_preflight_names_every_pair_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    document, _asked = probed(monkeypatch, {})
    (rule,) = [rule for rule in RULES if rule.id == "kv_path_indirect"]

    view: Any = SimpleNamespace(
        facts={"probes": {"kv": document}},
        plan=plan_of("eight-nvlink-gpus"),
        host="gpubox",
        by_nvlink=lambda _pair: True,
    )
    assert rule.check(view) == (
        True,
        "160.0 GiB/s from GPU 0 to GPU 4 over zero-copy cuda_ipc/cuda; a plain copy makes 310.0 GiB/s; as well, at once or "
        "in turn, from GPU 1 to 5, 2 to 6, 3 to 7",
    )
