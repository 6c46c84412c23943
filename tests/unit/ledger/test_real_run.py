# SPDX-License-Identifier: Apache-2.0
"""Figures of a real run on two H200s, worked out again: an engine's metrics are all there, and no lone request is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdlab.ledger.figures import Ledger
from pdlab.report.request_time import PREFILL, UNKNOWN, request_times
from pdlab.store import RunFolder

RUN = Path(__file__).parents[3] / "docs" / "evidence" / "h200x2" / "rag-repeats"


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return Ledger(RunFolder(RUN))


def test_every_figure_of_a_real_run_follows_from_its_raw_lines(ledger: Ledger) -> None:
    """Requests that have yet to meet decode wait, too: a page and its ledger count the same queues."""
    ids = list(ledger.every_id())
    assert "time:pd:rag:r8:queue" in ids
    assert [id for id in ids if not ledger.explain(id).agrees] == []


def test_without_a_lone_request_no_time_is_called_prefill(ledger: Ledger) -> None:
    """The engine's queues do not hold all that waits: what they leave of TTFT may be prefill or not."""
    evidence = ledger.evidence
    times = request_times(evidence.cells, evidence.points, ["pd", "tp2"])
    assert len(times) == 2
    for one in times:
        unknown = one.part(UNKNOWN)
        assert one.part(PREFILL) is None and unknown and unknown.ms > 0
        assert "no lone request" in one.why
        assert sum(part.ms for part in one.parts) == pytest.approx(one.ms)
