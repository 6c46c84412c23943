# SPDX-License-Identifier: Apache-2.0
"""What a reader is told to do next fits how the run ended."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from pdlab.report.next_steps import curl_line, next_steps
from pdlab.results.build import build_report
from pdlab.store import RunFolder
from tests.unit.report import run_folder_factory as factory


def commands(run: RunFolder) -> list[str | None]:
    contents = run.read()
    return [step.command for step in next_steps(contents, build_report(contents))]


def texts(run: RunFolder) -> str:
    contents = run.read()
    return "\n".join(step.text for step in next_steps(contents, build_report(contents)))


def test_after_a_good_run_the_api_can_be_asked_and_stopped(tmp_path: Path) -> None:
    found = commands(factory.good_run(tmp_path))
    assert str(found[0]).startswith("curl -s http://127.0.0.1:8000/v1/chat/completions ")
    assert found[1:] == ['pdlab ask "What is the capital of France?"', "pdlab init -o FOLDER", "pdlab down"]


def test_commands_name_the_inventory_of_the_run_and_gpus_are_not_offered_to_a_gpu_run(tmp_path: Path) -> None:
    found = commands(factory.good_run(tmp_path, rehearsal=False))
    assert found[-1] == "pdlab down -i inventory/gpu"
    assert not any("up -i" in str(command) for command in found)


def test_commands_lay_over_the_inventory_what_the_run_had_laid_over_it(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path, rehearsal=False)
    raw = json.loads((run.path / "run.json").read_text())
    raw["command"] = ["pdlab", "up", "-i", "gpu", "-e", "@my layer.yml", "--extra-vars=pd_arm=pd", "-eHF_TOKEN=secret"]
    (run.path / "run.json").write_text(json.dumps(raw))
    down = str(commands(run)[-1])
    assert down.startswith("pdlab down -i inventory/gpu -e '@my layer.yml' -e pd_arm=pd -e ")
    assert "secret" not in down


def test_the_curl_line_survives_quotes_in_the_question() -> None:
    plan = factory.plan() | {"answers": [{"prompt": 'It\'s "17" $HOME?', "expected": "x"}]}
    line = curl_line(plan)
    assert line is not None
    body = json.loads(shlex.split(line)[-1])
    assert body["messages"][0]["content"] == 'It\'s "17" $HOME?'
    assert body["model"] == "canary"
    assert curl_line(plan | {"router": None}) is None


def test_a_veto_says_each_cure_and_how_to_look_again(tmp_path: Path) -> None:
    run = factory.veto_run(tmp_path)
    assert "stop PID 811, or give prefill-0 another port in pd_servers" in texts(run)
    assert commands(run)[-1] == "pdlab preflight"


def test_a_failed_point_leads_to_the_logs_and_another_measurement(tmp_path: Path) -> None:
    assert commands(factory.failed_point_run(tmp_path)) == ["pdlab logs", "pdlab bench"]


def test_a_wrong_answer_forbids_the_use_of_what_runs(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.record("answers", factory.answers_record([("17 times 23?", "391", "392")]))
    run.stage("verify", ok=False)
    folder = run.end("failed", 5)
    assert "Do not use what runs now" in texts(folder)
    assert commands(folder) == ["pdlab rebuild", "pdlab verify"]


def test_a_server_that_did_not_start_leads_to_its_own_log(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.record("server-decode-0", {"name": "decode-0", "failed": True, "msg": "out of memory"})
    run.stage("deploy", ok=False)
    assert commands(run.end("failed", 4)) == ["pdlab logs decode-0", "pdlab up"]


def test_a_cancelled_or_dead_run_is_taken_up_again(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.stage("deploy", ok=None)
    run.write_run(controller={**run.run["controller"], "pid": factory.DEAD_PID})
    assert commands(run.folder)[-1] == "pdlab up"
    assert commands(run.end("cancelled", 130))[-1] == "pdlab up"


def test_a_running_run_is_only_watched(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.start_now()
    run.stage("deploy", ok=None)
    assert commands(run.folder) == ["pdlab status"]
