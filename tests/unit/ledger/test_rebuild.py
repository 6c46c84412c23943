# SPDX-License-Identifier: Apache-2.0
"""A report is made again from its folder, byte for byte: elsewhere, later, by somebody else."""

from __future__ import annotations

import builtins
import hashlib
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pdlab.report import markdown, page, subject_of, write_report
from pdlab.store import FAILED, OK, RunFolder
from tests.unit.evidence import arms_run_factory as arms
from tests.unit.ledger.test_explain_figure import watched
from tests.unit.report import run_folder_factory as factory

ROOT = Path(__file__).resolve().parents[3]
NOBODY = 65534


def damaged_run(runs_dir: Path) -> RunFolder:
    folder = factory.good_run(runs_dir)
    (folder.path / "records" / "oracle.json").write_text('{"ok": true,}')
    (folder.path / "stages.jsonl").write_text("nonsense\n" + (folder.path / "stages.jsonl").read_text())
    return folder


def by_playbook(runs_dir: Path) -> RunFolder:
    """ansible-playbook writes no end, and this very process is its controller."""
    maker = factory.RunMaker(runs_dir)
    maker.start_now()
    maker.write_run(command=["ansible-playbook"])
    for stage in factory.STAGES:
        maker.stage(stage)
    return maker.folder


RUNS: list[Callable[[Path], RunFolder]] = [
    factory.good_run,
    factory.failed_point_run,
    factory.died_run,
    factory.veto_run,
    damaged_run,
    by_playbook,
    lambda runs_dir: arms.seeded_run(runs_dir, repeats=2, failed=[("tp2-r1", "short-c64-n40")]),
]


CODE = """
import hashlib, sys
from pathlib import Path
from pdlab.report import markdown, page, subject_of
from pdlab.store import RunFolder
for path in sys.argv[1:]:
    folder = RunFolder(Path(path))
    shown = subject_of(folder)
    section = markdown.section(shown.own.contents, shown.own.report, shown.evidence)
    print(hashlib.sha256((page(folder) + section).encode()).hexdigest())
"""


@pytest.mark.parametrize(
    ("zone", "words", "seed"), [("Pacific/Kiritimati", "C", "1"), ("America/St_Johns", "tr_TR.UTF-8", "4242")]
)
def test_a_report_and_its_findings_are_the_same_bytes_on_another_machine(
    tmp_path: Path, zone: str, words: str, seed: str
) -> None:
    first, copies = [], []
    tmp_path.chmod(0o755)
    for number, made in enumerate(RUNS):
        folder = made(tmp_path / f"here-{number}")
        write_report(folder)
        shown = subject_of(folder)
        section = markdown.section(shown.own.contents, shown.own.report, shown.evidence)
        assert section.strip() in folder.findings_path.read_text()
        first.append(hashlib.sha256(folder.report_path.read_bytes() + section.encode()).hexdigest())
        copies.append(tmp_path / "somewhere else" / f"copy {number}")
        shutil.copytree(folder.path, copies[-1])
        (copies[-1] / "report.html").unlink()
    # Everything that differs from one machine to the next, and must not be seen in the page.
    environment = {
        "PATH": os.environ["PATH"],
        "TZ": zone,
        "LC_ALL": words,
        "PYTHONHASHSEED": seed,
        "HOME": "/nonexistent",
        "USER": "somebody",
        "COLUMNS": "33",
        "PYTHONPATH": f"{ROOT}:{ROOT}/.collections",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    account = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if _may_be_nobody(tmp_path) else {}
    again = subprocess.run(
        [sys.executable, "-c", CODE, *copies],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        **account,  # type: ignore[call-overload]
    )
    assert again.stdout.split() == first


def one_after_the_other(values: Iterable[Any], start: Any = 0) -> Any:
    """sum() up to Python 3.11."""
    for value in values:
        start = start + value
    return start


def compensated(values: Iterable[Any], start: Any = 0) -> Any:
    """sum() from Python 3.12 on, and a little better."""
    listed = list(values)
    return (
        start + math.fsum(listed)
        if any(isinstance(one, float) for one in listed)
        else one_after_the_other(listed, start)
    )


@pytest.mark.parametrize("made", [watched, lambda runs_dir: arms.seeded_run(runs_dir, repeats=2)], ids=["run", "arms"])
def test_a_page_does_not_hang_on_how_a_python_adds_floats(
    made: Callable[[Path], RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path)
    pages = []
    for add in (one_after_the_other, compensated):
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "sum", add)
            pages.append(page(folder))
    assert pages[0] == pages[1], "use math.fsum or statistics.fmean for floats"


@pytest.mark.parametrize("made", RUNS)
def test_making_a_report_twice_changes_nothing(made: Callable[[Path], RunFolder], tmp_path: Path) -> None:
    folder = made(tmp_path)
    write_report(folder)
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    write_report(folder)
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize("status", [OK, FAILED])
def test_a_page_names_no_path_of_the_machine_that_made_it(tmp_path: Path, status: str) -> None:
    folder = factory.good_run(tmp_path)
    folder.finish(status, 0 if status == OK else 6)
    assert str(tmp_path) not in page(folder)


def _may_be_nobody(tmp_path: Path) -> bool:
    if os.geteuid() != 0:
        return False
    wanted = [Path(sys.executable).resolve(), tmp_path, ROOT / "pdlab"]
    return all(bool(folder.stat().st_mode & 0o001) for path in wanted for folder in path.parents)
