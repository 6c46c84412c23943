# SPDX-License-Identifier: Apache-2.0
"""What is tried on GPUs: with which options, when not, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.action.preflight import ActionModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.kept_probe import COLLECTIVES, KV
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules.probes import link_gib_s
from ansible_collections.pdlab.pdlab.plugins.module_utils.probe_options import probe_options, rank_counts

from .conftest import shipped_plan

MOVED = {"ok": True, "why": None, "gib_s": 48.0, "copy_gib_s": 51.0, "transport": "zero-copy cuda_ipc/cuda"}


@pytest.mark.parametrize(
    ("generation", "width", "gb_s"), [(1, 16, 4.0), (3, 16, 15.754), (4, 8, 15.754), (5, 16, 63.015), (6, 16, 118.0)]
)
def test_the_ceiling_of_a_link_is_what_its_lanes_carry_less_the_encoding(
    generation: int, width: int, gb_s: float
) -> None:
    found = link_gib_s({"pcie": {"generation_max": generation, "width": width}})
    assert found is not None
    assert found * 2**30 / 1e9 == pytest.approx(gb_s, rel=1e-3)


def test_a_link_that_cannot_be_read_has_no_ceiling() -> None:
    assert link_gib_s({}) is None
    assert link_gib_s({"pcie": {"generation_max": None, "width": 16}}) is None


def test_the_path_is_tried_from_prefill_to_decode_and_collectives_among_all() -> None:
    options = probe_options(shipped_plan("gpu"), "gpubox")
    assert options["kv"] is not None and options["collectives"] is not None
    assert options["kv"]["devices"] == [0, 4]
    assert len(options["kv"]["environments"]) == 2
    assert options["collectives"]["devices"] == list(range(8))
    assert options["collectives"]["ranks"] == [2, 3, 4, 8]


@pytest.mark.parametrize(
    ("gpus", "ranks"),
    [(1, []), (2, [2]), (3, [2, 3]), (4, [2, 3, 4]), (6, [2, 3, 4, 6]), (8, [2, 3, 4, 8]), (16, [2, 3, 4, 8, 16])],
)
def test_an_all_reduce_is_tried_at_every_size_that_tensor_parallelism_has_at_three_and_among_all(
    gpus: int, ranks: list[int]
) -> None:
    assert rank_counts(gpus) == ranks


def test_one_gpu_that_both_roles_share_is_tried_against_itself_and_alone_it_has_no_collectives() -> None:
    options = probe_options(shipped_plan("gpu-one-shared"), "gpubox")
    assert options["kv"] is not None
    assert options["kv"]["devices"] == [0, 0]
    assert options["collectives"] is None


class Tried:
    """The action with a module that notes what it is asked, and answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], check: bool = False) -> None:
        self.asked: list[str] = []
        self.action = ActionModule.__new__(ActionModule)
        self.action._task = SimpleNamespace(check_mode=check)

        def execute(module_name: str, **_rest: Any) -> dict[str, Any]:
            self.asked.append(module_name)
            return dict(answer)

        monkeypatch.setattr(self.action, "_execute_module", execute)

    def __call__(self, facts: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
        return self.action._tried(facts, plan, "gpubox", {})


@pytest.fixture
def ready(reference_facts: dict[str, Any]) -> dict[str, Any]:
    """The reference box with an engine and idle GPUs."""
    reference_facts["engine"] = {"sglang": "0.5.23", "torch": "2.14.1", "nixl": "1.5.1"}
    for gpu in reference_facts["gpu"]["gpus"]:
        gpu["processes"] = []
    return reference_facts


def test_idle_gpus_with_an_engine_are_tried(
    ready: dict[str, Any], reference_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Tried(monkeypatch, MOVED)
    assert tried(ready, reference_plan)["kv"] == MOVED
    assert tried.asked == ["pdlab.pdlab.kv_probe", "pdlab.pdlab.collectives_probe"]


def test_a_probe_that_fails_says_why(
    ready: dict[str, Any], reference_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Tried(monkeypatch, {"failed": True, "msg": "the probe is gone"})
    found = tried(ready, reference_plan)["collectives"]
    assert (found["ok"], found["why"]) == (False, "the probe is gone")


@pytest.mark.parametrize(
    ("obstacle", "said"),
    [
        (lambda facts: facts.update(engine=None), "the engine is not installed"),
        (lambda facts: facts["engine"].update(torch=None, nixl=None), "the engine has no torch and no nixl"),
        (lambda facts: facts["gpu"].update(gpus=[]), "there is no GPU"),
        (lambda facts: facts["gpu"]["gpus"][4].update(processes=[{"pid": 1, "own": True}]), "servers run on these"),
    ],
)
def test_nothing_is_started_where_it_cannot_tell_anything(
    ready: dict[str, Any], reference_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch, obstacle: Any, said: str
) -> None:
    obstacle(ready)
    tried = Tried(monkeypatch, MOVED)
    found = tried(ready, reference_plan)["kv"]
    assert found["ok"] is None
    assert said in found["why"]
    assert tried.asked == []


def test_an_engine_that_pdlab_did_not_build_keeps_its_fingerprint_below_the_root(
    ready: dict[str, Any], reference_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = reference_plan["hosts"]["gpubox"]
    for server in reference_plan["servers"]:
        server["python"] = host["engine_python"] = "/usr/local/bin/python3"
    ready["kept"] = {"environments": {host["root"] + "/engine": {"stamp": {"fingerprint": "ef"}}}}
    options = {**(probe_options(reference_plan, "gpubox")["kv"] or {}), "fingerprint": "ef"}
    document = {"key": KV.key(options, "this boot"), "result": {"ok": True, "of": "kept"}}
    ready["kept"][KV.name] = {"boot": "this boot", "document": document}
    assert Tried(monkeypatch, MOVED)(ready, reference_plan)["kv"] == {"ok": True, "of": "kept"}


def test_nothing_is_started_in_check_mode_or_for_a_rehearsal(
    ready: dict[str, Any],
    cpu_facts: dict[str, Any],
    cpu_plan: dict[str, Any],
    reference_plan: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = Tried(monkeypatch, MOVED, check=True)
    assert tried(ready, reference_plan)["kv"]["ok"] is None
    assert Tried(monkeypatch, MOVED).action._tried(cpu_facts, cpu_plan, "box1", {}) == {}
    assert tried.asked == []


def test_a_kept_result_of_this_boot_and_engine_is_taken_while_servers_run(
    ready: dict[str, Any], reference_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready["gpu"]["gpus"][4]["processes"] = [{"pid": 1, "own": True}]
    engine = reference_plan["hosts"]["gpubox"]["root"] + "/engine"
    ready["kept"] = {"environments": {engine: {"stamp": {"fingerprint": "ef"}}}}
    for name, probe in (("kv", KV), ("collectives", COLLECTIVES)):
        options = {**(probe_options(reference_plan, "gpubox")[name] or {}), "fingerprint": "ef"}
        document = {"key": probe.key(options, "this boot"), "result": {"ok": True, "of": name}}
        ready["kept"][probe.name] = {"boot": "this boot", "document": document}
    tried = Tried(monkeypatch, MOVED)
    assert tried(ready, reference_plan) == {
        "kv": {"ok": True, "of": "kv"},
        "collectives": {"ok": True, "of": "collectives"},
    }
    assert tried.asked == []
