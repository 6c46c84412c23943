# SPDX-License-Identifier: Apache-2.0
"""The report of a run: report.html in its folder, its section in findings.md one level up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdlab.results.model import Report
from pdlab.store import RunFolder

if TYPE_CHECKING:
    from pdlab.evidence.legs import Leg
    from pdlab.evidence.model import Evidence


@dataclass(frozen=True)
class Subject:
    """What a report is about: the run read as one leg, its legs, and what they show."""

    own: Leg
    legs: Sequence[Leg]
    evidence: Evidence


def write_report(folder: RunFolder) -> tuple[Report, Path]:
    """Write report.html and the run's section of findings.md; safe to repeat. Returns the results and the page's path.

    Raises StoreError when either cannot be written.
    """
    # Loaded where a page is made: tables on a terminal can do without.
    from pdlab.report import markdown

    # An ended run looks the same to every reader only when it is sealed.
    folder.seal_if_over()
    subject = subject_of(folder)
    path = folder.write_report(_render(subject))
    own = subject.own
    # Around a leg lies its run, which may be sealed: what a leg shows is told with the run.
    if not folder.within_a_run:
        section = markdown.section(own.contents, own.report, subject.evidence)
        markdown.write_section(folder.findings_path, folder.name, section)
    return own.report, path


def page(folder: RunFolder) -> str:
    """report.html as this pdlab makes it from the folder: the same text on every machine. Writes nothing."""
    return _render(subject_of(folder))


def subject_of(folder: RunFolder) -> Subject:
    """A run as a report shows it. Never raises for what is missing or damaged inside the folder."""
    from pdlab.evidence.build import build_evidence
    from pdlab.evidence.legs import legs_of, read_leg

    legs = legs_of(folder)
    # A plain run is its own only leg; a run of arms that died before its first leg has nothing else to show.
    own = legs[0] if len(legs) == 1 and legs[0].path == "." else read_leg(folder)
    legs = legs or (own,)
    return Subject(own, legs, build_evidence(legs, own.contents.name))


def read_samples(legs: Sequence[Leg], evidence: Evidence) -> dict[str, list[Mapping[str, Any]]]:
    """The samples over time of the points whose queues the page draws, by point id; only those that were kept."""
    from pdlab.report.charts import watched_points

    folders = {leg.id: RunFolder(leg.contents.path) for leg in legs}
    rows = {row.id: row for row in evidence.points}
    found = {id: folders[rows[id].leg].read_samples(rows[id].point.label) for id in watched_points(evidence)}
    return {id: list(lines) for id, lines in found.items() if lines}


def _render(subject: Subject) -> str:
    from pdlab.report import html

    samples = read_samples(subject.legs, subject.evidence)
    return html.render(subject.legs, subject.evidence, own=subject.own, samples=samples)
