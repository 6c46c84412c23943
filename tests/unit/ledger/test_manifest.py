# SPDX-License-Identifier: Apache-2.0
"""manifest.json and `pdlab verify-run`: every ended run has one, and no changed byte goes unseen."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import run_folder as layout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pdlab.cli import app
from pdlab.exit_codes import Exit
from pdlab.ledger import made_by, sealing
from pdlab.ledger.manifest import ManifestError, manifest_of, parse, text_of
from pdlab.ledger.verify import RunVerification, lines, verify
from pdlab.report import page, write_report
from pdlab.store import CANCELLED, FAILED, OK, RunFolder, StoreError
from tests.unit.report import run_folder_factory as factory


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that ended well and has its report."""
    folder = factory.good_run(tmp_path / "runs")
    (folder.path / "ansible" / "artifacts" / "site").mkdir(parents=True)
    (folder.path / "ansible" / "artifacts" / "site" / "stdout").write_text("PLAY [all]\n")
    folder.finish(OK, 0)
    write_report(folder)
    return folder


def looked_at(folder: RunFolder) -> RunVerification:
    return verify(folder, page)


def faults(folder: RunFolder) -> dict[str, str]:
    return {fault.path: fault.what for fault in looked_at(folder).faults}


@pytest.mark.parametrize(("status", "code"), [(OK, 0), (FAILED, 6), (CANCELLED, 130)])
def test_every_end_of_a_run_leaves_a_manifest_of_all_files(tmp_path: Path, status: str, code: int) -> None:
    folder = factory.RunMaker(tmp_path).folder
    folder.finish(status, code)
    manifest = sealing.read(folder.path / "manifest.json")
    assert manifest is not None
    on_disk = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*") if path.is_file()}
    assert {one.path for one in manifest.files} == on_disk - {"manifest.json"}
    assert looked_at(folder).ok


def test_an_untouched_run_is_whole_and_its_report_can_be_made_again(run: RunFolder) -> None:
    found = looked_at(run)
    assert found.ok
    assert found.report == "same"
    assert "ansible/artifacts/site/stdout" in {one.path for one in sealing.read(run.manifest_path).files}  # type: ignore[union-attr]


def test_a_changed_byte_a_missing_and_an_added_file_are_named(run: RunFolder) -> None:
    raw = run.raw_path("c16-n48")
    data = bytearray(raw.read_bytes())
    data[len(data) // 2] ^= 1
    raw.write_bytes(data)
    (run.path / "records" / "oracle.json").unlink()
    (run.path / "bench" / "c99-n1.jsonl").write_text("{}\n")
    found = looked_at(run)
    assert {fault.path: fault.what for fault in found.faults} == {
        "bench/c16-n48.jsonl": "changed",
        "records/oracle.json": "missing",
        "bench/c99-n1.jsonl": "added",
    }
    assert found.report == "not looked at"
    assert "NOT" in lines(found)[-1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_one_changed_byte_of_any_file_is_found(run: RunFolder, data: st.DataObject) -> None:
    paths = sorted(path for path in run.path.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(paths))
    whole = path.read_bytes()
    at, other = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ other]) + whole[at + 1 :])
    try:
        assert faults(run) == {path.relative_to(run.path).as_posix(): "changed"}
    finally:
        path.write_bytes(whole)


def test_a_manifest_that_was_taken_away_is_missed_and_not_written_anew(run: RunFolder) -> None:
    run.manifest_path.unlink()
    write_report(run)
    assert faults(run) == {"manifest.json": "missing"}
    assert "there was one" in looked_at(run).faults[0].words


def test_a_report_that_was_replaced_together_with_its_manifest_is_found_by_making_it_again(run: RunFolder) -> None:
    run.write_derived("report.html", run.report_path.read_text().replace("tok/s", "Tok/s"))
    found = looked_at(run)
    assert not found.ok
    assert found.report == "differs"
    assert "report.html" in lines(found)[0]


def test_a_report_of_another_pdlab_is_called_that_and_not_tampering(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = made_by.made_by()
    monkeypatch.setattr(sealing, "made_by", lambda: {**ours, "pdlab": "0.0.1", "source_sha256": "0" * 64})
    run.write_derived("report.html", "<p>as an older pdlab wrote it</p>")
    found = looked_at(run)
    assert found.ok
    assert found.report == "made by another pdlab"
    assert "pdlab 0.0.1, here" in found.report_words


def test_the_digest_of_a_run_outlives_its_report_and_nothing_else(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = looked_at(run).digest
    monkeypatch.setattr(sealing, "made_by", lambda: {"pdlab": "9.9.9"})
    run.write_derived("report.html", "<p>as a newer pdlab writes it</p>")
    assert looked_at(run).digest == before
    (run.path / "plan.json").write_text("{}")
    run.seal()
    assert looked_at(run).digest != before


def test_making_the_report_again_hides_no_changed_file(run: RunFolder) -> None:
    (run.path / "plan.json").write_text("{}")
    write_report(run)
    assert faults(run) == {"plan.json": "changed"}


def test_a_run_that_goes_on_gets_its_manifest_later_and_says_so(tmp_path: Path) -> None:
    maker = factory.RunMaker(tmp_path)
    maker.start_now()
    write_report(maker.folder)
    assert not maker.folder.sealed
    with pytest.raises(StoreError, match="goes on"):
        looked_at(maker.folder)


def test_a_run_whose_controller_was_killed_is_sealed_by_its_report(tmp_path: Path) -> None:
    folder = factory.died_run(tmp_path)
    write_report(folder)
    assert looked_at(folder).ok


def test_a_run_that_goes_on_after_its_end_has_no_manifest_until_it_ends_again(run: RunFolder) -> None:
    layout.append_stage(str(run.path), "report", "start")
    assert not run.manifest_path.exists()
    run.finish(OK, 0)
    assert looked_at(run).ok


def test_one_manifest_covers_all_legs_of_a_run_of_arms(run: RunFolder) -> None:
    leg = factory.good_run(run.path / layout.LEGS, name="20260131T130000Z-0a0b0c")
    leg.finish(OK, 0)
    assert not (leg.path / layout.MANIFEST).exists()
    assert not run.sealed, "a leg that was made anew takes the old manifest away"
    run.finish(OK, 0)
    assert looked_at(run).ok
    assert looked_at(leg).run == run.name, "a leg is verified as part of its run"
    digest = looked_at(run).digest
    for _ in range(2):
        write_report(leg)
        assert looked_at(run).ok, "a leg's report that is made later is entered"
    assert looked_at(run).digest == digest
    (leg.path / "plan.json").write_text("{}")
    assert faults(run) == {"legs/20260131T130000Z-0a0b0c/plan.json": "changed"}


def test_links_pipes_and_names_that_are_no_text_are_kept_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a\n\x1b[31m%").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
    manifest = manifest_of(tmp_path, "run")
    assert [one.path for one in manifest.files] == ["%FF", "a%0A%1B[31m%25", "link", "pipe"]
    assert parse(text_of(manifest)) == manifest
    before = manifest.files[2]
    (tmp_path / "link").unlink()
    (tmp_path / "link").write_text("/nowhere")
    after = manifest_of(tmp_path, "run").files[2]
    assert before.sha256 == after.sha256
    assert before != after


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema_version": 2, "run": "x", "files": []}', "\x00"])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        parse(text)


def test_a_manifest_in_another_layout_was_changed(run: RunFolder) -> None:
    document = json.loads(run.manifest_path.read_text())
    with pytest.raises(ManifestError, match="not written as"):
        parse(json.dumps(document))


@pytest.mark.parametrize("runs", ["runs", ".", "../here/runs", "runs/../runs"])
def test_a_run_that_is_named_by_a_relative_path_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str
) -> None:
    folder = factory.good_run(tmp_path / "here" / "runs")
    monkeypatch.chdir(folder.path.parent if runs == "." else tmp_path / "here")
    for arguments in (["report"], ["verify-run"], ["explain", "pd-r0:c16-n48:ttft_ms.p50"], ["export"]):
        done = CliRunner().invoke(app, [*arguments, "--runs-dir", runs])
        assert done.exit_code == 0, (arguments, done.output, done.exception)


def test_the_command_has_a_status_of_its_own_and_a_document(run: RunFolder) -> None:
    arguments = ["verify-run", run.name, "--runs-dir", str(run.path.parent)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert "is whole" in done.stdout
    run.raw_path("c1-n8").write_text("{}\n")
    assert CliRunner().invoke(app, arguments).exit_code == Exit.ALTERED
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert RunVerification.model_validate(told).faults[0].path == "bench/c1-n8.jsonl"
    shutil.rmtree(run.path)
    assert CliRunner().invoke(app, arguments).exit_code == Exit.USAGE
