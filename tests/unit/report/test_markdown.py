# SPDX-License-Identifier: Apache-2.0
"""findings.md: one section a run, other text untouched, nothing of a run acts as markup."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.report import markdown, write_report
from pdlab.report.markdown import section, with_section, write_section
from pdlab.report.markdown_text import fenced, text
from pdlab.store import StoreError
from tests.unit.report import run_folder_factory as factory

RUNS = ["20260131T120000Z-000001", "20260131T120000Z-000002", "20260131T120000Z-000003"]
# What stands around the sections: notes, stray marks, headings, odd line ends.
NOTES = st.lists(
    st.sampled_from(
        [
            "a note",
            "## heading",
            "",
            "<!-- pdlab run 20260131T120000Z-000001 begin -->",
            "<!-- pdlab run 20260131T120000Z-000002 end -->",
            "a | table",
            "windows\r",
            "ümläut \udcff",
        ]
    ),
    max_size=8,
).map(lambda lines: "\n".join(lines))


def test_a_section_says_what_ran_what_it_measured_and_where_the_report_is(tmp_path: Path) -> None:
    found = section(factory.good_run(tmp_path).read())
    assert found.startswith("## REHEARSAL: 20260131T120000Z-1a2b3c\n")
    assert "Rehearsal on CPU with the canary model: says nothing about any GPU" in found
    assert "- What is 17 times 23? Got: 391 (right)" in found
    assert "| 64          | 256 in, 128 out |    96/96 |        1,236 |" in found
    assert "(20260131T120000Z-1a2b3c/report.html)" in found


def test_a_failed_point_is_told_with_its_error_lines_and_no_figure(tmp_path: Path) -> None:
    found = section(factory.failed_point_run(tmp_path).read())
    row = next(line for line in found.splitlines() if line.startswith("| 16 "))
    assert [cell.strip() for cell in row.split("|")][4:-1] == ["**FAILED**", "", "", "", "", ""]
    assert "RuntimeError: <killed> & gone" in found
    assert "c16-n48 **FAILED**: 31 of 48 requests completed" in found


@pytest.mark.parametrize(
    ("loops", "heading", "cells"),
    [
        (["closed"], "concurrency", ["16"]),
        (["open"], "requests per s", ["8/s"]),
        (["closed", "open"], "load", ["16", "8/s"]),
    ],
)
def test_the_loads_of_points_stand_below_what_they_are(
    tmp_path: Path, loops: list[str], heading: str, cells: list[str]
) -> None:
    run = factory.RunMaker(tmp_path)
    if "closed" in loops:
        run.measure(16, 48)
    if "open" in loops:
        opened = {"label": "r8-n40", "loop": "open", "rate_s": 8.0, "concurrency": None}
        run.record("point-r8-n40", factory.point_record(factory.client_line(8, 40), factory.point(8, 40), **opened))
    tables = section(run.end("ok", 0).read()).split("\n\n")
    points = next(block for block in tables if block.startswith("|") and "TPOT p50 / p90 ms" in block)
    rows = [line.split("|")[1].strip() for line in points.splitlines()]
    assert rows[0] == heading and rows[2:] == cells


def test_every_row_of_a_table_has_the_same_columns(tmp_path: Path) -> None:
    run = factory.RunMaker(tmp_path)
    run.measure(1, 8)
    run.measure(16, 48, completed=3, why=["a | b\nc"])
    rows = [line for line in section(run.end("failed", 6).read()).splitlines() if line.startswith("|")]
    assert {row.count("|") - row.count("\\|") for row in rows} == {10}


def test_reporting_a_run_again_replaces_its_section_and_keeps_every_note(tmp_path: Path) -> None:
    first = factory.good_run(tmp_path, name=RUNS[0])
    second = factory.failed_point_run(tmp_path, name=RUNS[1])
    write_report(first)
    findings = tmp_path / "findings.md"
    findings.write_text(findings.read_text() + "\nMy own note, by hand.\n")
    write_report(second)
    before = findings.read_text()
    write_report(first)
    write_report(second)
    assert findings.read_text() == before
    assert before.count("## REHEARSAL: ") == 2
    assert before.index("My own note") < before.index(RUNS[1])


@given(NOTES, st.sampled_from(RUNS), st.lists(st.sampled_from(RUNS), max_size=3))
def test_adding_a_section_never_loses_text_and_is_idempotent(before: str, run: str, earlier: list[str]) -> None:
    for name in earlier:
        before = with_section(before, name, f"body of {name}") + "between\n"
    after = with_section(before, run, "new body")
    assert with_section(after, run, "new body") == after
    assert "new body" in after
    block = after.rindex(f"<!-- pdlab run {run} begin -->\nnew body")
    head = after[:block]
    tail = after[block:].split(f"<!-- pdlab run {run} end -->\n", 1)[1]
    if before.strip():
        assert before.startswith(head.rstrip("\n")) or head.startswith(before)
        assert before.endswith(tail)
        removed = before[len(head) : len(before) - len(tail)] if not head.startswith(before) else ""
        assert removed in (
            "",
            *(
                f"<!-- pdlab run {run} begin -->\n{kept}\n<!-- pdlab run {run} end -->\n"
                for kept in own_bodies(before, run)
            ),
        )


def own_bodies(before: str, run: str) -> list[str]:
    """What stood between the run's own marks, with no other mark between them."""
    parts = before.split(f"<!-- pdlab run {run} begin -->\n")[1:]
    return [
        body for part in parts if "<!-- pdlab run" not in (body := part.split(f"\n<!-- pdlab run {run} end -->")[0])
    ]


@given(st.text())
def test_any_text_stays_one_line_without_markup(value: str) -> None:
    found = text(value)
    assert len(found.splitlines()) <= 1
    for sign in "`*_[]<>|#":
        assert found.count(sign) == found.count("\\" + sign)


@given(st.text(alphabet="`~ab\n<!->"))
def test_a_code_block_ends_only_at_its_own_fence(value: str) -> None:
    found = fenced(value)
    fence = found[: found.index("t")]
    assert fence not in found[len(fence) : -len(fence)]
    assert "<!--" not in found


def test_bytes_that_are_no_utf8_and_the_files_mode_survive(tmp_path: Path) -> None:
    findings = tmp_path / "findings.md"
    findings.write_bytes(b"latin-1: \xe9\r\nnote\r\n")
    findings.chmod(0o600)
    write_section(findings, RUNS[0], "body")
    assert findings.read_bytes().startswith(b"latin-1: \xe9\r\nnote\r\n")
    assert stat.S_IMODE(findings.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [".findings.md.lock", "findings.md"]


def test_a_section_in_a_file_with_windows_line_ends_is_found_again() -> None:
    before = with_section("", RUNS[0], "old").replace("\n", "\r\n")
    after = with_section(before, RUNS[0], "new")
    assert after.count("begin -->") == 1
    assert "old" not in after


def test_several_pdlabs_at_once_lose_no_section(tmp_path: Path) -> None:
    findings = tmp_path / "findings.md"
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=write_section, args=(findings, f"20260131T120000Z-{number:06x}", f"body {number}"))
        for number in range(12)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    found = findings.read_text()
    assert [number for number in range(12) if f"body {number}\n" not in found] == []


def test_a_findings_file_that_cannot_be_written_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    findings = tmp_path / "findings.md"
    findings.write_text("note\n")
    monkeypatch.setattr(markdown, "_replace", full)
    with pytest.raises(StoreError, match=r"findings\.md.*full"):
        write_section(findings, RUNS[0], "body")
    assert findings.read_text() == "note\n"
