# SPDX-License-Identifier: Apache-2.0
"""Arms on the real engine: prefill and decode against one server that does both, cut in the middle and gone on with."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from .conftest import Done, Pdlab, wait_for

SHORT = {"points": [{"concurrency": 2, "prompts": 6}], "input_len": 64, "output_len": 16, "limit_s": 180}
LEG_LIMIT_S = 600


@pytest.fixture(scope="module")
def arms(pdlab: Pdlab, tmp_path_factory: pytest.TempPathFactory) -> Pdlab:
    return Pdlab(pdlab.root, tmp_path_factory.mktemp("arms"))


@pytest.fixture(scope="module")
def cut(arms: Pdlab) -> Path:
    """A run of arms whose controller is killed while its second leg measures."""
    argv = ["bench", "--arms", "pd,colocated", "--repeats", "2", "-e", json.dumps({"pd_benchmark": SHORT})]
    child = arms.start(arms.command(*argv))
    started = '"stage": "benchmark", "event": "start"'

    def measuring() -> bool:
        assert child.poll() is None, child.communicate()
        stages = [path.read_text() for path in arms.runs.glob("*/legs/001-colocated-r1/stages.jsonl")]
        return any(started in text for text in stages)

    wait_for(measuring, 2 * LEG_LIMIT_S, "the second leg measures")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    return arms.latest()


@pytest.fixture(scope="module")
def resumed(arms: Pdlab, cut: Path) -> Done:
    """The same run, gone on with."""
    return arms("bench", "--resume", cut.name, limit_s=5 * LEG_LIMIT_S)


def leg(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "legs" / name / "run.json").read_text())


def plan(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "legs" / name / "plan.json").read_text())


def test_a_run_that_was_killed_goes_on_with_what_is_missing(resumed: Done, cut: Path) -> None:
    assert resumed.status == 0, resumed.text
    names = sorted(path.name for path in (cut / "legs").iterdir())
    assert names == ["000-pd-r1", "001-colocated-r1", "002-colocated-r1", "003-colocated-r2", "004-pd-r2"]
    statuses = [leg(cut, name)["status"] for name in names]
    assert statuses == ["ok", "running", "ok", "ok", "ok"], "what was whole is kept, what was cut stays beside it"
    assert "4 of 4 legs are whole" in resumed.out


def test_each_leg_ran_its_arm_alone_with_its_repeats_seed(resumed: Done, cut: Path) -> None:
    roles = {"pd": ["prefill", "decode"], "colocated": ["colocated"]}
    for name, arm, seed in (
        ("000-pd-r1", "pd", 42),
        ("002-colocated-r1", "colocated", 42),
        ("003-colocated-r2", "colocated", 43),
        ("004-pd-r2", "pd", 43),
    ):
        written = plan(cut, name)
        assert written["arm"] == arm
        assert [server["role"] for server in written["servers"]] == roles[arm]
        assert [point["seed"] for point in written["benchmark"]["points"]] == [seed]
        (point,) = (cut / "legs" / name / "records").glob("point-*.json")
        assert json.loads(point.read_text())["ok"], name
        answers = json.loads((cut / "legs" / name / "records" / "answers.json").read_text())
        assert answers["ok"], name


def test_the_first_arm_is_back_and_nothing_of_the_other_is_left(resumed: Done, arms: Pdlab) -> None:
    status = arms("status", "--json").json()
    assert status["ok"]
    assert {service["name"] for service in status["services"]} == {"prefill-0", "decode-0", "router"}
    assert not list((arms.root / "supervisor").rglob("*colocated-0*"))


def test_a_run_that_is_whole_or_of_another_inventory_does_not_measure(resumed: Done, arms: Pdlab, cut: Path) -> None:
    again = arms("bench", "--resume", cut.name)
    assert again.status == 0, again.text
    assert len(list((cut / "legs").iterdir())) == 5
    document = json.loads((cut / "arms.json").read_text())
    document["fingerprints"]["pd"] = "another"
    (cut / "arms.json").write_text(json.dumps(document))
    refused = arms("bench", "--resume", cut.name)
    assert refused.status == 2
    assert "arm pd is another one now" in refused.err.replace("\n", " ")


def test_an_arm_that_is_deployed_by_hand_takes_the_place_of_the_other(resumed: Done, arms: Pdlab) -> None:
    done = arms("deploy", "-e", "pd_arm=colocated")
    assert done.status == 0, done.text
    status = arms("status", "--json", "-e", "pd_arm=colocated").json()
    assert {service["name"] for service in status["services"]} == {"colocated-0", "router"}
    assert status["ok"]
    down = arms("down")
    assert down.status == 0, down.text
    assert "colocated-0" in down.out
