# SPDX-License-Identifier: Apache-2.0
"""A run of arms from the controller's side: order, failures, going on, putting back. What a leg does is played by a
stand-in for ansible-playbook, which leaves in the run folder what a real one would.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout
from ansible_collections.pdlab.pdlab.plugins.module_utils.workload_points import with_more
from rich.console import Console

from pdlab import session
from pdlab.analysis.measurement import Measurement, Requests
from pdlab.bench import search as searching
from pdlab.bench.arms_document import ArmsDocument, ArmsError, new_document, read_document
from pdlab.bench.arms_run import ArmsRun, begin, combined, go_on
from pdlab.exit_codes import Exit
from pdlab.runner import Outcome, PlaybookOptions, TaskResult
from pdlab.store import RunFolder
from tests.unit.analysis.points import point as measured_point

OPTIONS = PlaybookOptions(Path("inventory"))
COMMON = {"limit": None, "extra_vars": [], "benchmark": None, "search": None, "inventory": "inventory/local"}


def plan_of(fingerprint: str = "0", seed: int = 42) -> dict[str, Any]:
    server = {"name": "s", "role": "colocated", "host": "h", "gpus": []}
    arms = [
        {"name": name, "servers": [server], "router": "h", "differs": [], "fingerprint": name + fingerprint}
        for name in ("pd", "colocated", "dp2")
    ]
    points = [{"label": "c1-n4", "workload": "quick", "loop": "closed", "concurrency": 1, "prompts": 4, "seed": seed}]
    return {
        "rehearsal": True,
        "arms": arms,
        "arm": None,
        "servers": [],
        "benchmark": {"name": "quick", "points": points},
    }


class Box:
    """Stands in for ansible-playbook: notes what is played, and fails as a test wants it."""

    def __init__(self) -> None:
        self.played: list[tuple[str, str | None, str | None]] = []
        self.variables: list[Mapping[str, Any]] = []
        self.plan = plan_of()
        self.cancelled = 0
        self.logs_of: list[str | None] = []
        self.let_go_after: list[int] = []
        self.hosts: dict[str, Any] = {}
        self.fails: dict[tuple[str, str], Callable[[], Outcome]] = {}

    def __call__(self, playbook: str, options: PlaybookOptions, private: Path, **rest: Any) -> Outcome:
        variables = rest["variables"]
        folder = variables.get("pdlab_run_dir")
        arm = next((each.partition("=")[2] for each in options.extra_vars if each.startswith("pd_arm=")), None)
        self.logs_of += [arm] if playbook == "logs" else []
        self.cancelled += playbook == session.CANCEL_PLAYBOOK
        self.let_go_after += [len(self.played)] if playbook == session.LET_GO_PLAYBOOK else []
        if playbook not in ("site", "benchmark", "report"):
            return done()
        self.played.append((playbook, arm, options.tags))
        self.variables.append(variables)
        more = with_more(self.plan["benchmark"], variables.get("pdlab_more_points", ()))
        layout.write_json(os.path.join(folder, layout.PLAN), {**self.plan, "benchmark": more, "arm": arm})
        stage = TaskResult("h", "t", "pdlab.pdlab.stage", {"stage": "deploy", "state": "started"})
        rest["listener"].task_done(stage)
        fail = self.fails.pop((str(arm), Path(folder).name.partition("-")[2]), None)
        outcome = fail() if fail else done()
        seen = TaskResult("h", "t", "pdlab.pdlab.topology", {"plan": {"hosts": self.hosts}})
        outcome.results.append(seen)
        return outcome

    @property
    def arms(self) -> list[str | None]:
        """The arms that were measured, in order."""
        return [arm for _playbook, arm, tags in self.played if "benchmark" in (tags or "")]


def done() -> Outcome:
    ok = TaskResult("h", "t", "pdlab.pdlab.topology", {})
    return Outcome(status="successful", return_code=0, results=[ok])


def failed(action: str, **result: Any) -> Callable[[], Outcome]:
    def outcome() -> Outcome:
        failure = TaskResult("h", "t", f"pdlab.pdlab.{action}", {"failed": True, "msg": "no", **result})
        return Outcome(status="failed", return_code=2, failures=[failure], results=[failure])

    return outcome


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    stand_in = Box()
    monkeypatch.setattr(session, "run_playbook", stand_in)
    return stand_in


@pytest.fixture
def console() -> Console:
    return Console(file=open(os.devnull, "w", encoding="utf-8"), width=80)


def started(runs: Path, arms: list[str], repeats: int) -> tuple[RunFolder, ArmsDocument]:
    document = new_document(plan_of(), arms, repeats, **COMMON)
    return begin(runs, document), document


def run(console: Console, folder: RunFolder, document: ArmsDocument) -> Exit:
    return ArmsRun(console, OPTIONS, folder, document).run()


def legs(folder: RunFolder) -> list[tuple[str, str]]:
    return [(part.name, part.run_document()["status"]) for part in folder.leg_folders()]


def test_legs_lie_in_order_of_time_in_whole_run_folders_with_the_plan_of_their_arm(
    box: Box, console: Console, tmp_path: Path
) -> None:
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    assert run(console, folder, document) is Exit.OK
    names = ["000-pd-r1", "001-colocated-r1", "002-colocated-r2", "003-pd-r2"]
    assert legs(folder) == [(name, "ok") for name in names]
    assert [part.plan_document()["arm"] for part in folder.leg_folders()] == ["pd", "colocated", "colocated", "pd"]
    assert folder.run_document()["status"] == "ok"
    written = json.loads((folder.path / "arms.json").read_text())
    assert [leg["id"] for leg in written["order"]] == ["pd-r1", "colocated-r1", "colocated-r2", "pd-r2"]
    assert (written["restore"], written["workloads"], written["repeats"]) == ("pd", ["quick"], 2)


def test_every_leg_starts_afresh_with_its_repeats_seed_and_the_oracle_asks_each_arm_once(
    box: Box, console: Console, tmp_path: Path
) -> None:
    run(console, *started(tmp_path, ["pd", "colocated"], 2))
    assert [variables["pdlab_seed_offset"] for variables in box.variables] == [0, 0, 1, 1]
    assert all(variables["pdlab_fresh"] for variables in box.variables)
    assert ["verify_oracle" in variables for variables in box.variables] == [False, False, True, True]


def test_the_first_arm_is_put_back_only_when_another_one_is_there(box: Box, console: Console, tmp_path: Path) -> None:
    run(console, *started(tmp_path / "even", ["pd", "colocated"], 2))
    assert [tags for _playbook, _arm, tags in box.played if "benchmark" not in (tags or "")] == []
    box.played.clear()
    folder, document = started(tmp_path / "odd", ["pd", "colocated"], 1)
    run(console, folder, document)
    assert box.played[-1] == ("site", "pd", "preflight,deploy,ready")
    assert (folder.path / "restore" / "plan.json").is_file()


def test_a_leg_that_fails_does_not_lose_the_others_and_the_first_arm_comes_back(
    box: Box, console: Console, tmp_path: Path
) -> None:
    box.fails[("colocated", "colocated-r1")] = failed("pd_server")
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    assert run(console, folder, document) is Exit.DEPLOY_FAILED
    assert [status for _name, status in legs(folder)] == ["ok", "failed", "ok", "ok"]
    assert "colocated-r1" in folder.run_document()["why"]
    assert box.logs_of == ["colocated"], "what is kept of the servers' logs is the failed arm's"


def test_a_failed_point_alone_is_status_6(box: Box, console: Console, tmp_path: Path) -> None:
    box.fails[("pd", "pd-r2")] = failed("outcome", failed_points=["c1-n4"])
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    assert run(console, folder, document) is Exit.BENCHMARK_FAILED
    assert [status for _name, status in legs(folder)] == ["ok", "ok", "ok", "failed"]


@pytest.mark.parametrize("fails", [None, failed("pd_server")], ids=["whole", "failed"])
def test_other_machines_are_let_go_once_when_all_is_over(
    box: Box, console: Console, tmp_path: Path, fails: Callable[[], Outcome] | None
) -> None:
    if fails:
        box.fails[("pd", "pd-r2")] = fails
    box.hosts = {"here": {"local": True}}
    run(console, *started(tmp_path / "here", ["pd", "colocated"], 1))
    assert box.let_go_after == [], "a host that is the controller sees by itself that the run has ended"
    box.hosts = {"here": {"local": True}, "box1": {"local": False}}
    box.played.clear()
    run(console, *started(tmp_path / "there", ["pd", "colocated"], 2))
    assert box.let_go_after == [len(box.played)], "not between the legs: somebody else would take the host"


def test_a_host_that_another_run_holds_ends_it_at_once_and_nothing_is_put_back(
    box: Box, console: Console, tmp_path: Path
) -> None:
    box.fails[("pd", "pd-r1")] = failed("run_lock", held_by={"pid": 1})
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    assert run(console, folder, document) is Exit.BUSY
    assert len(box.played) == 1


def test_ctrl_c_ends_the_leg_and_puts_the_first_arm_back(box: Box, console: Console, tmp_path: Path) -> None:
    def interrupted() -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        return Outcome(status="cancelled")

    box.fails[("colocated", "colocated-r1")] = interrupted
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    assert run(console, folder, document) is Exit.CANCELLED
    assert [status for _name, status in legs(folder)] == ["ok", "cancelled"]
    assert box.played[-1] == ("site", "pd", "preflight,deploy,ready")
    assert folder.run_document()["status"] == "cancelled"


def test_a_second_ctrl_c_leaves_the_box_as_it_is(box: Box, console: Console, tmp_path: Path) -> None:
    def interrupted() -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return Outcome(status="cancelled")

    box.fails[("colocated", "colocated-r1")] = interrupted
    assert run(console, *started(tmp_path, ["pd", "colocated"], 2)) is Exit.CANCELLED
    assert box.arms == ["pd", "colocated"]
    assert len(box.played) == 2


def test_rates_are_searched_inside_the_leg_with_its_arm_and_a_repeat_asks_for_the_same_rates(
    box: Box, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_loop = {"loop": "open", "concurrency": None, "dataset": "random-ids", "limits": [{"ttft_ms": 100}]}
    points = [
        {"label": f"r{rate}-n4", "workload": "rag", "rate_s": rate, "prompts": 4, "seed": 42, **open_loop}
        for rate in (1, 2)
    ]
    box.plan = {**plan_of(), "benchmark": {"name": "rag", "points": points}}

    def measured(folder: RunFolder) -> dict[str, list[Measurement]]:
        rates = [float(point["rate_s"]) for point in folder.plan_document()["benchmark"]["points"]]
        return {"rag": [at_rate_kept(rate, rate <= 1.0) for rate in rates]}

    monkeypatch.setattr(searching, "by_workload", measured)
    document = new_document(box.plan, ["pd", "colocated"], 2, **{**COMMON, "search": True})
    folder = begin(tmp_path, document)
    assert run(console, folder, document) is Exit.OK
    assert [playbook for playbook, _arm, _tags in box.played] == ["site", "benchmark", "benchmark", "report"] * 4
    searched = [part.plan_document()["benchmark"]["searched"] for part in folder.leg_folders()]
    assert searched == [["r1.4-n4", "r1.2-n4"]] * 4
    inside = box.variables[1:4]
    assert [arm for _playbook, arm, _tags in box.played] == ["pd"] * 4 + ["colocated"] * 8 + ["pd"] * 4
    assert {variables["pdlab_seed_offset"] for variables in inside} == {0}
    assert {variables["pdlab_run_dir"] for variables in inside} == {str(folder.leg_folders()[0].path)}


def at_rate_kept(rate: float, good: bool) -> Measurement:
    requests = Requests((10.0 if good else 9999.0,) * 100, (1.0,) * 100)
    return measured_point(requests=requests, requested=100, rate_s=rate, concurrency=None)


# --- going on ----------------------------------------------------------------------------------------------------


def cut(box: Box, console: Console, tmp_path: Path) -> tuple[RunFolder, ArmsDocument]:
    """A run whose second leg failed and whose third died in the middle, with its controller."""
    box.fails[("colocated", "colocated-r1")] = failed("pd_server")
    box.fails[("colocated", "colocated-r2")] = failed("pd_server")
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    run(console, folder, document)
    dead = folder.leg_folders()[2]
    dead.update(status="running", ended=None)
    box.played.clear()
    box.variables.clear()
    return folder, read_document(folder.arms_document(), folder.name)


def test_a_run_that_was_cut_measures_what_is_missing_in_its_order_and_with_its_seeds(
    box: Box, console: Console, tmp_path: Path
) -> None:
    folder, document = cut(box, console, tmp_path)
    go_on(folder, document, plan_of(), OPTIONS)
    assert not (folder.path / "manifest.json").exists(), "what it says holds no longer"
    assert run(console, folder, document) is Exit.OK
    assert box.arms == ["colocated", "colocated"]
    assert [variables["pdlab_seed_offset"] for variables in box.variables[:2]] == [0, 1]
    assert legs(folder)[4:] == [("004-colocated-r1", "ok"), ("005-colocated-r2", "ok")]
    assert legs(folder)[1][1] == "failed", "a failed leg stays"
    run_document = folder.run_document()
    assert (run_document["status"], len(run_document["resumed"])) == ("ok", 1)
    assert (folder.path / "manifest.json").exists()


def test_a_run_that_is_whole_measures_nothing_again_and_puts_the_first_arm_back(
    box: Box, console: Console, tmp_path: Path
) -> None:
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    run(console, folder, document)
    box.played.clear()
    assert run(console, folder, document) is Exit.OK
    assert box.arms == []
    assert [arm for _playbook, arm, _tags in box.played] == ["pd"]


def test_what_a_killed_run_left_at_work_is_ended_before_it_goes_on(box: Box, console: Console, tmp_path: Path) -> None:
    folder, document = cut(box, console, tmp_path)
    waits = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); print(1, flush=True); time.sleep(60)"

    def playbook(run_dir: Path) -> subprocess.Popen[str]:
        variables = json.dumps({"pdlab_run_dir": str(run_dir)})
        argv = [sys.executable, "-c", waits, "ansible-playbook", "-e", variables]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdout is not None and child.stdout.readline() == "1\n"
        return child

    left, another = playbook(folder.leg_folders()[2].path), playbook(tmp_path / "another-run")
    try:
        reaper = threading.Thread(target=left.wait)
        reaper.start()
        go_on(folder, document, plan_of(), OPTIONS)
        # poll() knows nothing while another thread waits.
        reaper.join(20)
        assert left.returncode is not None
        assert another.poll() is None, "a playbook of another run is nobody's business here"
        assert box.cancelled == 1, "a benchmark that lives on under the service manager is ended, too"
    finally:
        for child in (left, another):
            child.kill()
            child.wait()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of("1"), "arm pd is another one now, arm colocated is another one now"),
        ({**plan_of(), "arms": plan_of()["arms"][:1]}, "arm colocated is gone"),
        ({**plan_of(), "benchmark": {"name": "x", "points": []}}, "the sweep is another one now"),
    ],
    ids=["another topology", "an arm less", "another sweep"],
)
def test_a_run_does_not_go_on_with_another_inventory(
    box: Box, console: Console, tmp_path: Path, plan: dict[str, Any], words: str
) -> None:
    folder, document = cut(box, console, tmp_path)
    with pytest.raises(ArmsError, match=words):
        go_on(folder, document, plan, OPTIONS)
    assert folder.run_document()["status"] == "failed", "nothing was touched"


def test_an_inventory_that_changes_while_the_run_goes_on_ends_it(box: Box, console: Console, tmp_path: Path) -> None:
    folder, document = started(tmp_path, ["pd", "colocated"], 2)
    box.plan = plan_of("1")
    assert run(console, folder, document) is Exit.USAGE
    assert legs(folder) == [("000-pd-r1", "failed")]


@pytest.mark.parametrize(
    ("arms", "repeats", "words"),
    [
        (["pd", "x"], 1, "there is no arm 'x'; there are pd, colocated, dp2"),
        (["pd"], 1, "of pd, colocated, dp2; pd alone is deployed and measured by `pdlab up -e pd_arm=pd`"),
        (["pd", "pd"], 1, "name two different arms or more"),
        ([], 1, "name two different arms or more, of pd, colocated, dp2$"),
        (["pd", "dp2"], 0, "0 is no number of repeats"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused_before_anything_is_touched(
    arms: list[str], repeats: int, words: str
) -> None:
    with pytest.raises(ArmsError, match=words):
        new_document(plan_of(), arms, repeats, **COMMON)


def test_an_inventory_without_arms_says_where_to_write_them() -> None:
    with pytest.raises(ArmsError, match="write pd_arms into it"):
        new_document({**plan_of(), "arms": []}, ["pd", "dp2"], 1, **COMMON)


def test_a_run_without_arms_cannot_go_on() -> None:
    with pytest.raises(ArmsError, match="is no run of arms"):
        read_document(None, "20260131T000000Z-aaaaaa")
    with pytest.raises(ArmsError, match="is not whole"):
        read_document({"arms": ["pd"]}, "20260131T000000Z-aaaaaa")


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], Exit.OK),
        ([Exit.OK, Exit.BENCHMARK_FAILED, Exit.OK], Exit.BENCHMARK_FAILED),
        ([Exit.BENCHMARK_FAILED, Exit.DEPLOY_FAILED, Exit.WRONG_ANSWER], Exit.DEPLOY_FAILED),
        ([Exit.DEPLOY_FAILED, Exit.CANCELLED], Exit.CANCELLED),
    ],
)
def test_the_status_of_a_run_of_arms(statuses: list[Exit], status: Exit) -> None:
    assert combined(statuses) is status
