# SPDX-License-Identifier: Apache-2.0
"""Random weights (load-format dummy): the speed of a model, and none of its answers."""

from __future__ import annotations

from typing import Any

from pdlab.topology import Plan

DUMMY = {"load-format": "dummy"}


def test_the_plan_says_so_and_asks_no_question(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of({**gpu_box, "pd_server_args": DUMMY})
    assert plan["model"]["weights"] == "dummy"
    assert plan["answers"] == []
    assert plan["oracle"]["enabled"] is False
    assert "weights" not in plan_of(gpu_box)["model"]


def test_an_answer_that_cannot_be_right_is_refused(gpu_box: dict[str, Any], faults_of: Any) -> None:
    answers = [{"prompt": "What is 6*7?", "expected": "42"}]
    found = faults_of({**gpu_box, "pd_server_args": DUMMY, "pd_answers": answers})
    assert "the weights are random" in found["pd_answers"]


def test_a_comparison_that_proves_nothing_is_refused(gpu_box: dict[str, Any], faults_of: Any) -> None:
    found = faults_of({**gpu_box, "pd_server_args": DUMMY, "pd_oracle": {"enabled": True}})
    assert "another prompt gives the same answer" in found["pd_oracle.enabled"]


def test_servers_with_different_weights_are_refused(gpu_box: dict[str, Any], faults_of: Any) -> None:
    gpu_box["pd_servers"][1]["args"] = DUMMY
    found = faults_of(gpu_box)
    assert "different weights" in found["pd_servers[0].args.load-format"]


def test_the_typed_plan_knows_whether_weights_are_real(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plans = [Plan.model_validate(plan_of({**gpu_box, "pd_server_args": args})) for args in (DUMMY, {})]
    assert [plan.model.weights for plan in plans] == ["dummy", "files"]
