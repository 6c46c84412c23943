# SPDX-License-Identifier: Apache-2.0
"""report.html: opens offline, shows nothing that a run did not earn, escapes whatever a run contains."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdlab import explain
from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import Leg, read_leg
from pdlab.evidence.measured import measurements
from pdlab.report import html
from pdlab.report import page as whole_page
from pdlab.report.baseline import load_baselines
from pdlab.report.markdown import section
from pdlab.report.next_steps import next_steps
from pdlab.results.build import build_report
from pdlab.run_stages import Stage
from pdlab.store import PointFiles, RunContents, RunFolder
from pdlab.tables import plain, plan_details, plan_table, results_table, stage_table, verdict_table
from tests.unit.report import run_folder_factory as factory

HOSTILE = """<script>alert("x")</script> & 'quoted' </pre>{{ 7*7 }}"""
PD, TP4 = "PD, 1 prefill + 1 decode", "TP4 colocated"
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """The page as a reader gets it: visible text, links, captions; fails on tags that do not match."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.captions: list[str] = []
        self.unlabelled: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.addresses += [known[key] or "" for key in ("src", "href", "srcset", "action") if key in known]
        if known.get("id"):
            self.ids.append(str(known["id"]))
        if tag == "th" and "scope" not in known:
            self.unlabelled.append(str(self.getpos()))
        if tag == "caption":
            self.captions.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)
            if "caption" in self.open:
                self.captions[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def leg_of(contents: RunContents) -> Leg:
    report = build_report(contents)
    return Leg("pd-r0", "pd", 0, 0, contents, report, measurements(contents, report))


def rendered(leg: Leg) -> str:
    """The page of a plain run, without the baselines of other machines."""
    return html.render([leg], build_evidence([leg], leg.contents.name), own=leg, baselines=[])


def page(run: RunFolder) -> Page:
    return Page(whole_page(run))


def test_a_good_run_shows_its_verdict_figures_and_versions(tmp_path: Path) -> None:
    found = page(factory.good_run(tmp_path)).text
    assert "Passed: 6 stages, 3 of 3 answers right, 152 of 152 requests completed" in found
    for wanted in ("128.1", "873.7", "1,236", "96/96", "3f6c0d1e9ab27c55", "sglang", "0.5.23", "40.0 MiB", "8 of 8"):
        assert wanted in found


def test_the_page_is_whole_small_enough_and_asks_nothing_of_the_network(tmp_path: Path) -> None:
    source = whole_page(factory.good_run(tmp_path))
    assert len(source.encode()) < 6_000_000
    found = Page(source)
    assert [address for address in found.addresses if re.match(r"(?:[a-z]+:)?//", address)] == []
    assert "default-src 'none'" in source
    assert len(found.ids) == len(set(found.ids))
    assert [address for address in found.addresses if address.startswith("#") and address[1:] not in found.ids] == []


def test_every_table_has_a_caption_and_every_heading_cell_a_scope(tmp_path: Path) -> None:
    source = whole_page(factory.good_run(tmp_path))
    found = Page(source)
    assert source.count("<table") == len(found.captions)
    assert found.unlabelled == []


def test_every_table_chart_and_title_of_a_rehearsal_is_labelled(tmp_path: Path) -> None:
    source = rendered(read_leg(factory.good_run(tmp_path)))
    found = Page(source)
    assert [caption for caption in found.captions if "REHEARSAL" not in caption] == []
    assert "rehearsal on cpu with the canary model: says nothing about any gpu" in found.text.lower()
    assert "<title>REHEARSAL: " in source
    figures = re.findall(r"<figure.*?</figure>", source, re.DOTALL)
    drawn = [figure for figure in figures if 'class="plot"' in figure]
    assert len(drawn) >= 3
    assert len(drawn) < len(figures), "the drawing of the topology is a figure, too"
    for figure in figures:
        assert 'class="tag"' in figure.partition("</h4>")[0]
        assert "Rehearsal: " in figure


def test_a_rehearsal_is_called_what_it_was_wherever_it_shows(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    path = run.path / "plan.json"
    plan = json.loads(path.read_text())
    kinds = {
        ("cpu", "canary"): "rehearsal on CPU with the canary model: says nothing about any GPU",
        ("cpu", "local"): "rehearsal on CPU: says nothing about any GPU",
        ("cuda", "canary"): "rehearsal on GPUs with the canary model: says nothing about any other model",
        ("cuda", "hub"): "rehearsal on GPUs, declared so (pd_rehearsal): its figures are not meant to be used",
        (None, "canary"): "rehearsal: its figures are not meant to be used",
    }
    for (device, source), note in kinds.items():
        path.write_text(json.dumps({**plan, "device": device, "model": {**plan["model"], "source": source}}))
        leg = read_leg(run)
        evidence = build_evidence([leg], run.name)
        report = leg.report
        shown = {
            "page": Page(rendered(leg)).text,
            "findings": section(leg.contents, report, evidence),
            "results": plain(results_table(report)),
            "explain": "\n".join(explain.lines(explain.explain([leg], run.name), 120)),
            "plan": plain(plan_table(leg.contents.plan or {}), 200),
            "verdict": evidence.verdicts[0].sentence,
        }
        for where, text in shown.items():
            flat = " ".join(text.split()).lower()
            assert note.lower() in flat, (where, note)
            assert not [other for other in kinds.values() if other != note and other.lower() in flat], where


def test_after_a_rehearsal_the_next_step_is_the_one_that_it_lacks(tmp_path: Path) -> None:
    run = factory.good_run(tmp_path)
    path = run.path / "plan.json"
    plan = json.loads(path.read_text())
    commands = {}
    for device in ("cpu", "cuda"):
        path.write_text(json.dumps({**plan, "device": device}))
        leg = read_leg(run)
        commands[device] = " ".join(f"{step.text} {step.command}" for step in next_steps(leg.contents, leg.report))
    assert "pdlab init" in commands["cpu"]
    assert "pdlab init" not in commands["cuda"] and "pd_model" in commands["cuda"]


def test_a_run_on_gpus_is_not_called_a_rehearsal(tmp_path: Path) -> None:
    source = rendered(read_leg(factory.good_run(tmp_path, rehearsal=False)))
    body = source[: source.index("<script>")] + source[source.rindex("</script>") :]
    assert "rehearsal" not in body.lower()
    assert "GPU 0, 1, 2, 3, TP 4" in source
    assert "node 1 (checked on the live processes)" in source


def test_a_failed_point_shows_its_reasons_and_no_figure(tmp_path: Path) -> None:
    run = factory.failed_point_run(tmp_path)
    line = factory.client_line(16, 48, completed=31)
    found = page(run).text
    assert "FAILED : 31 of 48 requests completed; server prefill-0 ended during the point (signal 9)" in found
    assert "RuntimeError: <killed> & gone" in found
    assert "NOT RUN : the benchmark stopped before this point was measured" in found
    for figure in ("output_throughput", "total_throughput", "median_ttft_ms", "mean_tpot_ms"):
        for shown in (f"{line[figure]:.2f}", f"{line[figure]:.1f}", f"{line[figure]:,.0f}"):
            assert f" {shown} " not in found
    assert "Log of prefill-0" in found


def test_a_run_without_a_good_point_has_no_charts_and_no_plotly(tmp_path: Path) -> None:
    source = whole_page(factory.veto_run(tmp_path))
    assert len(source) < 100_000
    assert "No benchmark point was reached" in source
    found = Page(source).text
    assert found.index("port_taken") < found.index("not_root")
    assert "stop PID 811" in found
    assert "did not come to start them" in found


def test_a_run_that_died_says_where(tmp_path: Path) -> None:
    found = page(factory.died_run(tmp_path)).text
    assert "Died at benchmark" in found
    assert "did not finish" in found


def test_an_empty_or_damaged_run_still_makes_a_page(tmp_path: Path) -> None:
    (tmp_path / "20260131T120000Z-1a2b3c").mkdir()
    assert "run.json is missing" in page(RunFolder.find(tmp_path)).text
    damaged = factory.good_run(tmp_path, name="20260131T120000Z-4d5e6f")
    (damaged.path / "records" / "oracle.json").write_text("{")
    (damaged.path / "plan.json").write_text("{")
    found = page(damaged).text
    assert "records/oracle.json: cannot be read" in found
    assert "Oracle : not run" in found


def test_whatever_a_run_contains_is_shown_as_text(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.preflight(factory.verdict_of(HOSTILE, "veto", False, HOSTILE, HOSTILE, HOSTILE, HOSTILE))
    run.stage("preflight", ok=False, why=HOSTILE)
    run.record("answers", factory.answers_record([(HOSTILE, HOSTILE, HOSTILE)]))
    run.record(f"engine-{factory.HOST}", {"fingerprint": HOSTILE, "packages": {"sglang": HOSTILE}})
    run.record(
        "server-evil",
        {
            "failed": True,
            "msg": HOSTILE,
            "name": HOSTILE,
            "role": HOSTILE,
            "argv": [HOSTILE],
            "environment": {"A": HOSTILE},
        },
    )
    run.record("oracle", {"ok": False, "cases": 1, "identical": 0, "why": HOSTILE, "results": [{"length": HOSTILE}]})
    run.measure(1, 8)
    run.measure(16, 48, completed=3, why=[HOSTILE], error_lines=[HOSTILE])
    run.write_run(command=["pdlab", HOSTILE], inventory=HOSTILE)
    source = whole_page(run.end("failed", 3, HOSTILE))
    assert "<script>alert" not in source
    assert "{{ 7*7 }}" in source
    assert "alert(" in Page(source).text


def test_command_lines_can_be_copied_and_secrets_in_them_are_hidden(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.record(
        "server-x",
        {"name": "x", "argv": ["python", "--api-key", "k-123", "--port", "1"], "environment": {"HF_TOKEN": "hf_abc"}},
    )
    source = whole_page(run.end("ok", 0))
    assert "k-123" not in source
    assert "hf_abc" not in source
    assert 'aria-label="Copy: command line of x"' in source


def test_the_campaign_table_stands_beside_the_results_as_another_machines(tmp_path: Path) -> None:
    found = page(factory.good_run(tmp_path))
    assert "Another machine's results. Not measured by this run, and not comparable with a rehearsal." in found.text
    assert "ANOTHER MACHINE Hand-made campaign on 8× RTX PRO 6000" in [
        " ".join(caption.split()) for caption in found.captions
    ]


def test_the_campaign_figures_are_as_the_campaign_noted_them() -> None:
    (campaign,) = [baseline for baseline in load_baselines() if "campaign" in baseline.title]
    assert [(row.arm, row.figures) for row in campaign.rows] == [
        (PD, ("1", "8", "56.58", "67", "182.54", "153.56 (p50)", "14.96 (mean)")),
        (TP4, ("1", "8", "58.7", *(["not noted"] * 4))),
        (PD, ("16", "48", "280", *(["not noted"] * 3), "25.5 (?)")),
        (TP4, ("16", "48", "279", *(["not noted"] * 3), "43 (?)")),
        (PD, ("64", "96", "385.46", *(["not noted"] * 2), "5,391 (?)", "32 (?)")),
        (TP4, ("64", "96", "509", *(["not noted"] * 3), "88 (?)")),
    ]
    assert [row.remark[:16] for row in campaign.rows if row.remark] == ["TPOT gain 1.69×.", "TPOT gain 2.75×."]
    assert any("Versions, patches" in note for note in campaign.notes)


@pytest.mark.parametrize("make", [factory.good_run, factory.failed_point_run, factory.died_run, factory.veto_run])
def test_rendering_the_same_run_twice_gives_the_same_page(tmp_path: Path, make: object) -> None:
    run = make(tmp_path)  # type: ignore[operator]
    assert whole_page(run) == whole_page(run)


ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "<b>"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "ok", "url", "prompt", "a"]), inner)
    ),
    max_leaves=5,
)
RECORDS = ["preflight-h", "engine-h", "kv_probe-h", "model-h", "server-s", "ready", "answers", "oracle", "kv_transfer"]
KEYS = ["verdicts", "packages", "results", "answers", "argv", "environment", "gpus", "binding", "bytes", "gib_s", "msg"]
PLAN_KEYS = ["servers", "router", "model", "answers", "benchmark", "hosts", "rehearsal", "reference"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(RECORDS), st.dictionaries(st.sampled_from(KEYS), ODD_VALUES)),
    st.dictionaries(st.sampled_from(PLAN_KEYS), ODD_VALUES),
    st.dictionaries(st.sampled_from(["status", "controller", "command", "started", "exit_code"]), ODD_VALUES),
)
def test_no_run_however_odd_breaks_the_page_the_findings_or_the_tables(
    records: dict[str, dict[str, Any]], plan: dict[str, Any], run: dict[str, Any]
) -> None:
    contents = RunContents(
        name="20260131T120000Z-1a2b3c",
        path=Path("/runs/20260131T120000Z-1a2b3c"),
        run=run,
        plan=plan,
        stages=(Stage("benchmark", 0.0),),
        records=records,
        points=(PointFiles("c1-n8", None, None, None),),
        logs={},
        files=(),
        damaged=(),
        controller_alive=False,
    )
    assert Page(rendered(leg_of(contents))).text
    assert section(contents)
    report = build_report(contents)
    assert (
        plain(results_table(report)) + plain(stage_table(report)) + plain(plan_table(plan)) + plan_details(plan).plain
    )
    for record in contents.host_records("preflight").values():
        assert plain(verdict_table(record))
