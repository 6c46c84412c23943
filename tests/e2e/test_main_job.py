# SPDX-License-Identifier: Apache-2.0
"""The main job and its two doors, on the real engine."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import yaml

from pdlab.ledger.figures import Ledger
from pdlab.store import RunFolder

from .conftest import BIN, CHECKOUT, Done, Pdlab

LLM_D = CHECKOUT / "tests/unit/data/llm-d-report-0.2/br_v0_2_json_schema.json"
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


def schema(name: str) -> dict:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def test_check_mode_before_a_first_deployment_goes_through_and_touches_nothing(pdlab: Pdlab, tmp_path: Path) -> None:
    assert pdlab("down").status == 0, "services of another root hold the ports, which is a veto"
    fresh = Pdlab(tmp_path / "root", tmp_path / "runs")
    done = fresh.playbook("site.yml", "--check", "--diff")
    assert done.status == 0, done.text
    assert "failed=0" in done.out
    assert not (tmp_path / "root").exists()


def test_up_passes_and_says_how_to_use_what_runs(first_up: Done, up_run: Path) -> None:
    assert first_up.status == 0, first_up.text
    for word in (
        "preflight",
        "deploy",
        "ready",
        "verify",
        "benchmark",
        "report",
        "http://127.0.0.1:8000",
        "curl",
        "ask",
    ):
        assert word in first_up.out
    assert str(up_run / "report.html") in first_up.out.replace("\n", "")


def test_the_three_answers_are_right_and_the_oracle_is_identical(up_run: Path, pdlab: Pdlab) -> None:
    document = pdlab("report", str(up_run), "--json").json()
    jsonschema.validate(document, schema("report"))
    assert document["ok"] and document["rehearsal"]
    assert [(answer["expected"], answer["ok"]) for answer in document["answers"]] == [
        ("391", True),
        ("Paris", True),
        ("2, 3, 5, 7, 11", True),
    ]
    assert document["oracle"]["cases"] >= 7
    assert document["oracle"]["identical"] == document["oracle"]["cases"]
    assert document["kv_transfer"]["bytes"] > 0
    assert document["kv_transfer"]["failed"] == 0


def test_every_point_of_the_sweep_completed(up_run: Path, pdlab: Pdlab) -> None:
    points = pdlab("report", str(up_run), "--json").json()["points"]
    assert [point["label"] for point in points] == ["c1-n4", "c4-n12"]
    for point in points:
        assert point["ok"], point
        assert point["completed"] == point["requested"]
        assert point["output_tok_s"] > 0
        assert point["ttft_ms"]["p50"] > 0


def test_the_run_is_whole_and_every_figure_of_its_report_leads_to_its_raw_line(up_run: Path, pdlab: Pdlab) -> None:
    verified = pdlab("verify-run", str(up_run), "--json").json()
    jsonschema.validate(verified, schema("verify-run"))
    assert verified["ok"], verified["faults"]
    assert verified["report"] == "same"
    shown = re.findall(r'data-figure="([^"]+)"', (up_run / "report.html").read_text())
    ledger = Ledger(RunFolder(up_run))
    assert len(shown) > 20
    for id in dict.fromkeys([*map(html.unescape, shown), *ledger.every_id()]):
        figure = ledger.explain(id)
        assert figure.agrees and figure.intact, id
    told = pdlab("explain", str(up_run), "pd-r0:c4-n12:engine.decode_running", "--json").json()
    jsonschema.validate(told, schema("figure"))


def test_every_export_of_a_real_run_is_valid(up_run: Path, pdlab: Pdlab) -> None:
    jsonschema.validate(pdlab("export", str(up_run), "--format", "json").json(), schema("export"))
    reports = list(yaml.safe_load_all(pdlab("export", str(up_run), "--format", "llm-d").out))
    assert len(reports) == 2
    for report in reports:
        jsonschema.validate(report, json.loads(LLM_D.read_text()))


def test_a_second_deploy_changes_nothing_at_either_door(standing: Pdlab) -> None:
    done = standing.playbook("site.yml", "--tags", "deploy")
    assert done.status == 0, done.text
    assert "changed=0" in done.out
    document = standing("deploy", "--json").json()
    assert document["ok"]


def test_plan_preflight_and_status_speak_their_published_schemas(standing: Pdlab) -> None:
    plan = standing("plan", "--json").json()
    jsonschema.validate(plan, schema("plan"))
    preflight = standing("preflight", "--json").json()
    jsonschema.validate(preflight, schema("preflight"))
    status = standing("status", "--json").json()
    jsonschema.validate(status, schema("status"))
    assert status["ok"]
    assert {service["name"] for service in status["services"]} == {"prefill-0", "decode-0", "router"}


def test_ask_answers_through_the_router(standing: Pdlab) -> None:
    done = standing("ask", "What is the capital of France? Answer in one word.")
    assert done.status == 0, done.text
    assert "Paris" in done.out


def test_the_router_has_not_loaded_the_engine(deployed: Pdlab) -> None:
    mapped = Path(f"/proc/{deployed.pid_of('router')}/maps").read_text(encoding="utf-8")
    assert "sglang_router_rs" in mapped
    assert "torch" not in mapped


def test_logs_show_each_servers_last_lines(standing: Pdlab) -> None:
    done = standing("logs", "prefill-0", "-n", "200")
    assert done.status == 0, done.text
    assert "prefill-0.log" in done.out


def test_a_changed_argument_restarts_that_server_alone(deployed: Pdlab) -> None:
    before = {name: deployed.pid_of(name) for name in ("prefill-0", "decode-0")}
    servers = deployed("plan", "--json").json()["servers"]
    change = [
        {key: server[key] for key in ("name", "role", "port", "bootstrap_port", "args") if server[key] is not None}
        for server in servers
    ]
    common = {"attention-backend", "sampling-backend", "disable-overlap-schedule", "max-total-tokens"}
    for server in change:
        server["args"] = {key: value for key, value in server["args"].items() if key not in common}
    change[1]["args"]["log-level"] = "warning"
    done = deployed("deploy", "-e", json.dumps({"pd_servers": change}))
    assert done.status == 0, done.text
    after = {name: deployed.pid_of(name) for name in ("prefill-0", "decode-0")}
    assert after["prefill-0"] == before["prefill-0"]
    assert after["decode-0"] != before["decode-0"]


def test_each_playbook_runs_alone(deployed: Pdlab) -> None:
    for name in ("preflight", "ready", "verify", "status"):
        done = deployed.playbook(f"playbooks/{name}.yml")
        assert done.status == 0, f"{name}: {done.text}"
        assert "changed=0" in done.out


def test_the_report_shows_in_a_browser_what_was_measured(up_run: Path, tmp_path: Path) -> None:
    page = up_run / "report.html"
    argv = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=5000",
        "--dump-dom",
        page.as_uri(),
    ]
    dom = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "rehearsal" in dom.lower()
    assert "391" in dom and "Paris" in dom
    assert "js-plotly-plot" in dom


def test_the_wheel_alone_deploys_from_another_folder(deployed: Pdlab, tmp_path: Path) -> None:
    uv, venv = str(BIN / "uv"), tmp_path / "venv"
    subprocess.run([uv, "build", "-q", "--wheel", "-o", str(tmp_path / "dist"), str(CHECKOUT)], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(venv)], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", str(venv / "bin" / "python"), str(wheel)], check=True)
    before = deployed.pid_of("decode-0")
    env = {key: value for key, value in deployed.env.items() if key != "ANSIBLE_CONFIG"}
    done = subprocess.run(
        [venv / "bin" / "pdlab", "deploy", "--json"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]
    assert deployed.pid_of("decode-0") == before, "what the checkout deployed was not what the wheel wants"
