# SPDX-License-Identifier: Apache-2.0
"""What a person sees when a run of arms is over, at 80 columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pdlab.arms_closing import show_arms_closing
from pdlab.bench.arms_document import ArmsDocument
from pdlab.bench.schedule import schedule
from pdlab.exit_codes import Exit
from tests.unit.evidence.arms_run_factory import ARMS, seeded_run


def document() -> ArmsDocument:
    known: dict[str, Any] = {"limit": None, "extra_vars": [], "benchmark": None, "search": None, "inventory": "i"}
    order = [vars(leg) for leg in schedule(ARMS, 2, 42)]
    return ArmsDocument(
        arms=list(ARMS),
        repeats=2,
        seed=42,
        order=order,
        workloads=["short"],
        restore="pd",
        fingerprints={},
        sweep="0",
        **known,
    )


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def show(code: Exit, change: Any = None) -> str:
        folder = seeded_run(tmp_path, repeats=2)
        for part in folder.leg_folders():
            part.update(status="ok")
        if change:
            change(folder)
        show_arms_closing(Console(width=80, highlight=False), folder, document(), code)
        return capsys.readouterr().out

    return show


def test_every_leg_the_verdicts_and_the_paths_fit_80_columns(shown: Any) -> None:
    text = shown(Exit.OK)
    for leg in schedule(ARMS, 2, 42):
        assert leg.id in text
    assert "6 of 6 legs are whole" in text
    assert "report:" in text and "pdlab explain" in text
    assert "--resume" not in text
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 80


def test_what_failed_says_why_in_two_lines_and_how_to_go_on(shown: Any) -> None:
    def fail(folder: Any) -> None:
        folder.leg_folders()[1].update(status="failed", why="the engine did not start: " + "many words " * 40)

    text = shown(Exit.DEPLOY_FAILED, fail)
    assert "5 of 6 legs are whole" in text
    said = " ".join(text.split())
    assert "FAILED: the engine did not start" in said
    assert len(said.partition("the engine did not start")[2].partition("…")[0]) < 120
    assert "pdlab bench --resume" in text


def test_a_leg_that_never_ran_is_said_to_be_missing(shown: Any) -> None:
    def remove(folder: Any) -> None:
        last = folder.leg_folders()[-1]
        last.path.rename(folder.path / "elsewhere")

    text = shown(Exit.CANCELLED, remove)
    assert "not measured" in text
    assert "5 of 6 legs are whole" in text
