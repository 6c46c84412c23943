# SPDX-License-Identifier: Apache-2.0
"""How a run went in one line, as the page and findings.md begin. Pure."""

from __future__ import annotations

from pdlab.evidence.model import Evidence
from pdlab.results.model import Report
from pdlab.results.outcome import verdict


def headline(report: Report, evidence: Evidence | None) -> str:
    """A run of arms that passed is told by its legs, since it has no stages of its own; all else by its stages."""
    if evidence is None or len(evidence.legs) < 2 or not report.ok:
        return verdict(report)
    good = sum(leg.ok for leg in evidence.legs)
    requested = sum(row.point.requested or 0 for row in evidence.points)
    completed = sum(row.point.completed or 0 for row in evidence.points)
    return f"Passed: {good} of {len(evidence.legs)} legs, {completed} of {requested} requests completed"
