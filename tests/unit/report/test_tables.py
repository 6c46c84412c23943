# SPDX-License-Identifier: Apache-2.0
"""Terminal tables: within 80 columns, no figure for a failed point, plain without a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdlab.results.build import build_report
from pdlab.runner import Outcome, TaskResult
from pdlab.status import PartState, ServiceState, Status, build_status
from pdlab.store import RunFolder
from pdlab.tables import plain, plan_details, plan_table, results_table, stage_table, status_table, verdict_table
from tests.unit.report import run_folder_factory as factory


def results_text(run: RunFolder) -> str:
    return plain(results_table(build_report(run.read())))


def preflight_text(run: RunFolder, everything: bool = False) -> str:
    return plain(verdict_table(run.read().host_records("preflight")[factory.HOST], everything=everything))


@pytest.mark.parametrize("make", [factory.good_run, factory.failed_point_run, factory.died_run, factory.veto_run])
def test_no_table_is_wider_than_80_columns_or_cuts_a_figure(tmp_path: Path, make: object) -> None:
    run: RunFolder = make(tmp_path)  # type: ignore[operator]
    shown = results_text(run) + plain(stage_table(build_report(run.read()))) + preflight_text(run, True)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "…" not in shown
    assert "\x1b" not in shown


def test_figures_of_five_and_six_digits_still_fit(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path, rehearsal=False)
    line = factory.client_line(1024, 2048, output_len=2)
    run.measure(1024, 2048)
    label = factory.point(1024, 2048)["label"]
    big = line | {"output_throughput": 123456.7, "total_throughput": 987654.3, "max_output_tokens_per_s": 234567.0}
    factory.write_raw(run.path, label, big | {"ttfts": [21.0695] * 2048})
    shown = results_text(run.end("ok", 0))
    assert "…" not in shown
    for figure in ("123,457", "987,654", "234,567", "21,070", "2048/2048"):
        assert figure in shown


def test_a_failed_point_shows_failed_its_reason_and_no_figure(tmp_path: Path) -> None:
    shown = results_text(factory.failed_point_run(tmp_path))
    row = next(line for line in shown.splitlines() if "31/48" in line)
    assert row.split() == ["16", "31/48", "FAILED"]
    assert "c16-n48 FAILED: 31 of 48 requests completed; server prefill-0 ended" in shown
    assert "RuntimeError: <killed> & gone" in shown
    assert next(line for line in shown.splitlines() if "?/96" in line).split() == ["64", "?/96", "not", "run"]


def test_a_rehearsal_is_called_one_above_its_figures(tmp_path: Path) -> None:
    assert "REHEARSAL" in results_text(factory.good_run(tmp_path / "cpu"))
    assert "REHEARSAL" not in results_text(factory.good_run(tmp_path / "gpu", rehearsal=False))


def test_vetoes_come_first_with_their_cure_and_passed_checks_are_counted(tmp_path: Path) -> None:
    run = factory.veto_run(tmp_path)
    shown = preflight_text(run)
    assert shown.index("VETO") < shown.index("warning")
    assert "-> stop PID 811" in shown
    assert "3 of 5 checks passed" in shown
    assert "memory" not in shown
    assert "memory" in preflight_text(run, everything=True)


def test_control_codes_of_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.measure(1, 8, completed=1, why=["\x1b[31mred\x1b[0m"], error_lines=["\x1b]0;title\x07 \x1b[2Jgone"])
    run.preflight(factory.verdict_of("x", "veto", False, seen="\x1b[31mred", why="\x1b[1mwhy", cure="\x1b[1mcure"))
    folder = run.end("failed", 6)
    assert "\x1b" not in results_text(folder)
    assert "\x1b" not in preflight_text(folder)
    assert "FAILED: red" in results_text(folder)


def test_square_brackets_are_shown_and_not_taken_for_markup(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.stage("deploy", ok=False, why="[bold]flag [/x] unknown[/bold]")
    assert "[bold]flag [/x] unknown[/bold]" in plain(stage_table(build_report(run.end("failed", 4).read())))


def test_stages_show_what_did_not_finish(tmp_path: Path) -> None:
    shown = plain(stage_table(build_report(factory.died_run(tmp_path).read())))
    assert next(line for line in shown.splitlines() if "benchmark" in line).split() == [
        "benchmark",
        "n/a",
        "did",
        "not",
        "finish",
    ]


def test_a_wide_terminal_gets_more_columns(tmp_path: Path) -> None:
    report = build_report(factory.good_run(tmp_path).read())
    wide = plain(results_table(report, 120), 120)
    assert "E2E" in wide and "ITL" in wide
    assert "E2E" not in plain(results_table(report, 80))


def test_the_plan_shows_ports_devices_and_a_command_line_to_copy() -> None:
    shown = plain(plan_table(factory.plan(rehearsal=False)), 100)
    assert "GPU 4-7" in shown
    assert "bootstrap 8998" in shown
    details = plan_details(factory.plan(rehearsal=False)).plain
    assert "--disaggregation-mode decode" in details
    assert "pdlab-router" in details
    assert "NUMA: node 1: as the inventory says" in details
    assert "REHEARSAL" not in shown
    assert "REHEARSAL" in plain(plan_table(factory.plan()))


def test_status_names_what_differs_from_the_inventory() -> None:
    service: dict[str, Any] = {
        "role": "decode",
        "host": "box",
        "state": "running",
        "pid": 7,
        "url": None,
        "unit": None,
        "manager": "systemd",
    }
    status = Status(
        ok=False,
        services=[
            ServiceState(name="decode-0", as_declared=True, why=[], **service),
            ServiceState(name="decode-1", as_declared=False, why=["the command line changed"], **service),
        ],
        parts=[PartState(name="engine", host="box", as_declared=True, why=[])],
    )
    shown = plain(status_table(status))
    assert "systemd" in shown
    assert "decode-1 on box: the command line changed" in shown
    rows = {line.split()[0]: line.split()[-1] for line in shown.splitlines() if line.strip()}
    assert (rows["decode-0"], rows["engine"]) == ("yes", "yes")
    assert max(len(line) for line in shown.splitlines()) <= 80


def status_of(*results: TaskResult) -> Status:
    return build_status(Outcome(status="successful", return_code=0, results=list(results)))


def prometheus(**result: Any) -> TaskResult:
    unit = {"unit": "pdlab_prometheus.service", "url": "http://127.0.0.1:9090", "actions": [], "skipped_why": None}
    return TaskResult("box", "Prometheus", "pdlab.pdlab.prometheus", {**unit, **result})


def test_status_lists_a_prometheus_that_was_asked_for_as_it_lists_servers() -> None:
    status = status_of(prometheus(service={"state": "running", "pid": 4711}))
    (service,) = status.services
    assert (service.name, service.role, service.manager) == ("prometheus", "prometheus", "systemd")
    assert (service.state, service.pid, service.url, service.unit) == (
        "running",
        4711,
        "http://127.0.0.1:9090",
        "pdlab_prometheus.service",
    )
    assert status.ok and service.as_declared
    shown = plain(status_table(status))
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert not status_of().services, "nobody asked for one"


def test_status_says_why_a_prometheus_is_not_what_the_inventory_says() -> None:
    stopped = status_of(
        prometheus(changed=True, actions=["start pdlab_prometheus.service"], service={"state": "failed", "pid": None})
    )
    assert not stopped.ok
    assert "prometheus on box: a deployment would: start pdlab_prometheus.service" in plain(status_table(stopped), 120)
    nowhere = status_of(
        prometheus(skipped_why="systemd is not PID 1 here", url=None, service={"state": "absent", "pid": None})
    )
    assert not nowhere.ok and not nowhere.services[0].as_declared
    assert "prometheus on box: systemd is not PID 1 here" in plain(status_table(nowhere))


def test_the_plan_says_where_prometheus_would_listen_only_when_one_is_asked_for() -> None:
    wanted = {"install": True, "host": "box1", "address": "127.0.0.1", "port": 9090, "retention_days": 30}
    shown = plain(plan_table({**factory.plan(), "monitoring": wanted}))
    assert "Prometheus: 127.0.0.1:9090 on box1, keeps 30 days" in shown
    assert "Prometheus:" not in plain(plan_table({**factory.plan(), "monitoring": {**wanted, "install": False}}))
    assert "Prometheus:" not in plain(plan_table(factory.plan())), "a run of before has no such plan"
