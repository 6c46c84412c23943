# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints and how it ends, without touching a host."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from pdlab import __version__
from pdlab.exit_codes import Exit
from pdlab.runner import Outcome, PlaybookOptions, TaskResult
from pdlab.session import Session

CHECKOUT = Path(__file__).resolve().parents[3]


def pdlab(*arguments: str, cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "pdlab"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_the_version_is_printed() -> None:
    done = pdlab("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"pdlab {__version__}")


def test_the_plan_is_one_json_document_that_keeps_its_schema_from_any_folder(tmp_path: Path) -> None:
    done = pdlab("plan", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    jsonschema.validate(plan, json.loads((CHECKOUT / "docs" / "schemas" / "plan.json").read_text()))
    for server in plan["servers"]:
        assert server["argv"] and server["environment"] and server["unit"]


def test_the_plan_fits_80_columns() -> None:
    done = pdlab("plan")
    assert done.returncode == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "http" not in line and "/" not in line)


def test_an_unknown_inventory_is_refused_with_what_there_is(tmp_path: Path) -> None:
    done = pdlab("plan", "-i", "nowhere", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "nowhere" in done.stderr and "local" in done.stderr


def test_every_fault_is_listed_and_no_run_folder_stays_behind_for_a_plan(tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "inventory" / "local", tmp_path / "inv")
    variables = tmp_path / "inv" / "group_vars" / "pdlab.yml"
    variables.write_text(variables.read_text().replace("port: 30001", "port: 30000") + "pd_modle: {}\n")
    done = pdlab("plan", "-i", "inv", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "pd_servers[1].port" in done.stderr and "pd_modle" in done.stderr and "pdlab.yml:" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_report_of_a_run_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    done = pdlab("report", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "pdlab up" in done.stderr and "Traceback" not in done.stderr


def test_the_document_of_a_run_of_arms_is_the_evidence_of_its_legs_whoever_prints_it(tmp_path: Path) -> None:
    from pdlab.run_document import run_document
    from pdlab.store import RunFolder

    run = CHECKOUT / "docs" / "evidence" / "h200x2" / "rag-repeats"
    done = pdlab("report", str(run), "--json", cwd=tmp_path)
    assert done.returncode == Exit.OK, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((CHECKOUT / "docs" / "schemas" / "evidence.json").read_text()))
    assert [arm["name"] for arm in document["arms"]] == ["pd", "tp2"]
    assert len(document["legs"]) == 6 and document["points"] and document["verdicts"]
    explained = json.loads(pdlab("explain", str(run), "--json", cwd=tmp_path).stdout)
    assert explained["evidence"] == document
    leg = run_document(RunFolder(run / "legs" / "000-pd-r1"))
    jsonschema.validate(leg, json.loads((CHECKOUT / "docs" / "schemas" / "report.json").read_text()))
    assert leg["points"]


def test_ask_without_servers_says_to_deploy(tmp_path: Path) -> None:
    done = pdlab("ask", "hello", "-e", json.dumps({"pd_router": {"port": 1025}}), cwd=tmp_path)
    assert done.returncode == Exit.ERROR
    assert "pdlab deploy" in done.stderr


def test_a_runs_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = pdlab("preflight", "--runs-dir", str(tmp_path / "file"), cwd=tmp_path)
    assert done.returncode == Exit.ERROR
    assert str(tmp_path / "file") in done.stderr and "Traceback" not in done.stderr


def failed(action: str, **result: object) -> Outcome:
    failure = TaskResult("h", "t", f"pdlab.pdlab.{action}", {"failed": True, **result})
    return Outcome(status="failed", return_code=2, failures=[failure], results=[failure])


@pytest.mark.parametrize(
    ("outcome", "stage", "status"),
    [
        (Outcome(status="successful", return_code=0), "report", Exit.OK),
        (failed("topology"), None, Exit.USAGE),
        (failed("preflight"), "preflight", Exit.VETO),
        (failed("pd_server"), "deploy", Exit.DEPLOY_FAILED),
        (failed("pd_ready"), "ready", Exit.DEPLOY_FAILED),
        (failed("pd_oracle"), "verify", Exit.WRONG_ANSWER),
        (failed("outcome", failed_points=["c1-n8"]), "report", Exit.BENCHMARK_FAILED),
        (failed("pd_answers"), "report", Exit.WRONG_ANSWER),
        (failed("run_lock", held_by={"pid": 1}), "preflight", Exit.BUSY),
        (Outcome(status="cancelled", return_code=99), "deploy", Exit.CANCELLED),
    ],
)
def test_the_exit_status_says_where_a_run_ended(outcome: Outcome, stage: str | None, status: Exit) -> None:
    from rich.console import Console

    session = Session(Console(), PlaybookOptions(CHECKOUT), CHECKOUT)
    session.outcome = outcome
    assert session._exit(stage) is status


def test_undo_says_what_became_of_each_setting() -> None:
    from pdlab.host_undo import undone, undone_lines

    setting = {"setting": "numa_balancing", "was": "1", "set": "0", "now": "0"}
    result = {
        "put_back": [setting],
        "left_alone": [{**setting, "setting": "swap", "now": "7"}],
        "gone": [{**setting, "setting": "gpu_persistence GPU-1"}],
        "already_back": [],
        "packages": ["numactl"],
    }
    outcome = Outcome(results=[TaskResult("box1", "t", "pdlab.pdlab.host_settings", result)])
    assert undone_lines(undone(outcome), check=False) == [
        "box1: put back: numa_balancing: 0 -> 1",
        "box1: is not there any more: gpu_persistence GPU-1",
        "box1: LEFT ALONE: swap: it was 1, pdlab set 0, somebody made it 7; `pdlab undo --force` puts 1 back",
        "box1: packages stay: numactl; remove by hand: sudo apt-get remove numactl",
    ]
    assert (
        undone_lines({"box1": undone(outcome)["box1"]}, check=True)[0] == "box1: would put back: numa_balancing: 0 -> 1"
    )
    removed = {"actions": ["remove pdlab_prometheus.service"], "data": "/opt/pdlab/monitoring/data"}
    outcome.results.append(TaskResult("box1", "t", "pdlab.pdlab.prometheus", removed))
    assert [line for line in undone_lines(undone(outcome), check=False) if "Prometheus" in line] == [
        "box1: removed: Prometheus, its unit and its files",
        "box1: stays: what Prometheus measured; remove by hand: sudo rm -r /opt/pdlab/monitoring/data",
    ]
    nothing = TaskResult("box2", "t", "pdlab.pdlab.host_settings", {})
    assert "nothing is remembered" in undone_lines(undone(Outcome(results=[nothing])), check=False)[0]
