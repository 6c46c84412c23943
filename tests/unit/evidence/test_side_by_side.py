# SPDX-License-Identifier: Apache-2.0
"""Any runs side by side: repeats of one arm, other arms, and unlike runs that are refused with every reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdlab.evidence.build import build_evidence
from pdlab.evidence.model import Evidence
from pdlab.evidence.side_by_side import legs_side_by_side
from pdlab.store import RunFolder
from tests.unit.evidence.arms_run_factory import seeded_run

NAMES = ("20260131T120000Z-aaaaaa", "20260131T130000Z-bbbbbb")


def change(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def edit_all(run: RunFolder, file: str, edit: Callable[[dict[str, Any]], None]) -> None:
    for leg in run.leg_folders():
        for path in leg.path.glob(file):
            change(path, edit)


def two_runs(tmp_path: Path, arms=(("pd",), ("tp2",)), repeats: int = 2) -> list[RunFolder]:
    return [
        seeded_run(tmp_path, arms=names, repeats=repeats, name=name) for names, name in zip(arms, NAMES, strict=True)
    ]


def compared(runs, **more) -> Evidence:
    return build_evidence(legs_side_by_side(runs), "compared", **more)


def test_runs_of_two_arms_are_compared_as_if_they_were_one_run(tmp_path: Path) -> None:
    found = compared(two_runs(tmp_path))
    assert found.refused == []
    assert [leg.id for leg in found.legs] == ["pd-r0", "pd-r1", "tp2-r0", "tp2-r1"]
    assert {row.pairs for row in found.comparisons} == {2}
    for leg in found.legs:
        assert (tmp_path / leg.path / "run.json").is_file()


def test_the_same_arm_in_two_runs_is_repeated_and_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path, arms=(("pd", "tp2"), ("pd", "tp2")))
    found = compared([first, second, first])
    assert [arm.name for arm in found.arms] == ["pd", "tp2"]
    assert {row.pairs for row in found.comparisons} == {4}
    assert len({point.id for point in found.points}) == len(found.points)


def test_one_name_for_two_set_ups_makes_two_arms(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, arms=(("pd",), ("pd",)))

    def smaller_chunk(plan: dict[str, Any]) -> None:
        plan["servers"][0]["args"]["chunked-prefill-size"] = 1024

    edit_all(runs[1], "plan.json", smaller_chunk)
    found = compared(runs)
    assert [arm.name for arm in found.arms] == ["pd-aaaaaa", "pd-bbbbbb"]
    assert {(row.a, row.b) for row in found.comparisons} == {("pd-aaaaaa", "pd-bbbbbb")}


def advice(found: Evidence) -> set[str]:
    return {row.next_measurement for row in found.verdicts if " --arms " in (row.next_measurement or "")}


def inventory(**arms: str):
    """An edit that lets a plan come from an inventory with these arms, each with its fingerprint."""

    def edit(plan: dict[str, Any]) -> None:
        plan["arms"] = [{"name": name, "fingerprint": mark} for name, mark in arms.items()]

    return edit


def test_a_command_in_advice_takes_only_names_that_one_inventory_has(tmp_path: Path) -> None:
    runs = two_runs(tmp_path)
    for run in runs:
        edit_all(run, "plan.json", inventory(pd="1", tp2="2"))
    found = compared(runs)
    assert [arm.declared for arm in found.arms] == [True, True]
    assert advice(found) and not any("once" in text for text in advice(found))
    # Two inventories, each with one of them, or with another arm under that name.
    edit_all(runs[0], "plan.json", inventory(pd="1", tp2="other"))
    edit_all(runs[1], "plan.json", inventory(tp2="2"))
    for text in advice(compared(runs)):
        assert "`pdlab bench -i inventory/gpu --arms pd,tp2 " in text
        assert text.endswith(", once tp2 is declared in one inventory's pd_arms, beside pd")


def test_advice_on_plain_runs_says_that_their_arms_must_be_declared_first(tmp_path: Path) -> None:
    runs = two_runs(tmp_path)
    for run in runs:
        edit_all(run, "plan.json", lambda plan: plan.update(arm=None, arms=[]))
    found = compared(runs)
    assert [(arm.name, arm.declared) for arm in found.arms] == [("pd", False), ("tp2", False)]
    assert advice(found)
    for text in advice(found):
        assert text.endswith("once pd and tp2 are declared in one inventory's pd_arms")
    alone = build_evidence(legs_side_by_side(runs[:1]), "alone")
    for text in advice(alone):
        assert "`pdlab bench -i inventory/gpu --arms pd,NAME --repeats 5`, once pd and NAME are declared" in text


def test_advice_on_arms_that_were_renamed_says_that_no_inventory_has_these_names(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, arms=(("pd", "tp2"), ("pd", "tp2")))
    edit_all(runs[1], "plan.json", lambda plan: plan["router"].update(policy="random"))
    edit_all(runs[0], "plan.json", inventory(pd="1", tp2="2"))
    found = compared(runs)
    assert {arm.name for arm in found.arms} == {"pd-aaaaaa", "pd-bbbbbb", "tp2-aaaaaa", "tp2-bbbbbb"}
    assert not any(arm.declared for arm in found.arms)
    assert advice(found)
    for text in advice(found):
        assert "pd-aaaaaa,tp2-aaaaaa," in text and " are declared in one inventory's pd_arms" in text


UNLIKE = {
    "model": ("records/model-*.json", lambda record: record.update(fingerprint="other"), "other model: "),
    "engine": ("records/engine-*.json", lambda record: record.update(fingerprint="other"), "other engine: "),
    "gpus": ("plan.json", lambda plan: plan["servers"][0].update(gpus=[0, 1, 2, 3]), "other GPUs: "),
    "lengths": ("records/point-short-*.json", lambda record: record.update(input_len=512), "other workload short at"),
    "prompts": ("records/point-rag-*.json", lambda record: record.update(requested=99), "other workload rag at"),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_unlike_runs_are_not_compared_and_the_reason_is_given(tmp_path: Path, what: str) -> None:
    file, edit, said = UNLIKE[what]
    runs = two_runs(tmp_path)
    edit_all(runs[1], file, edit)
    found = compared(runs)
    assert found.refused and all(reason.startswith(said) for reason in found.refused)
    assert "pd-r0" in found.refused[0] and "tp2-r0" in found.refused[0]
    assert found.comparisons == [] and found.winners == []
    assert {row.answer for row in found.verdicts} == {"cannot tell"}
    assert all("the runs are not alike" in row.sentence for row in found.verdicts)
    assert found.cells and found.points


def test_unlike_runs_are_compared_when_told_and_each_reason_is_a_doubt(tmp_path: Path) -> None:
    runs = two_runs(tmp_path)
    for file, edit, _said in UNLIKE.values():
        edit_all(runs[1], file, edit)
    refused = compared(runs).refused
    assert len(refused) == 3 + 6
    found = compared(runs, allow_unlike=True)
    assert found.refused == [] and found.comparisons
    assert [doubt.seen for doubt in found.doubts if doubt.id == "unlike"] == refused


def test_arms_on_unlike_numbers_of_gpus_are_compared_per_gpu(tmp_path: Path) -> None:
    runs = two_runs(tmp_path, repeats=3)
    plain = {row.workload: row for row in compared(runs).verdicts}
    edit_all(runs[1], "plan.json", lambda plan: plan["servers"][0].update(gpus=[0]))
    found = {row.workload: row for row in compared(runs, allow_unlike=True).verdicts}
    assert found["rag"].quantity == "goodput_s_per_gpu"
    assert found["rag"].effect == pytest.approx(plain["rag"].effect / 2)
    assert found["short"].effect == pytest.approx(plain["short"].effect / 2)


def test_a_rehearsal_beside_gpus_is_refused(tmp_path: Path) -> None:
    runs = [
        seeded_run(tmp_path, arms=("pd",), repeats=1, name=NAMES[0]),
        seeded_run(tmp_path, arms=("tp2",), repeats=1, name=NAMES[1], rehearsal=True),
    ]
    assert any(reason.startswith("other kind of run: measured on GPUs (pd-r0)") for reason in compared(runs).refused)
