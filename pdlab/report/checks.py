# SPDX-License-Identifier: Apache-2.0
"""Which checks failed at which points, and what the numbers cannot support. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdlab.evidence.model import Evidence, PointRow
from pdlab.results.model import Check


@dataclass(frozen=True)
class FailedCheck:
    """One check and the points that failed it alike."""

    id: str
    grade: str
    points: tuple[str, ...]
    seen: tuple[str, ...]
    wanted: str


@dataclass(frozen=True)
class DoubtRow:
    """One doubt and the places that share it."""

    id: str
    where: tuple[str, ...]
    seen: str
    wanted: str


def failed_checks(rows: Sequence[PointRow]) -> list[FailedCheck]:
    """The failed checks, faults first, each with its points."""
    groups: dict[tuple[str, str, str], list[tuple[PointRow, Check]]] = {}
    for row in rows:
        for check in row.point.checks:
            if not check.ok:
                groups.setdefault((grade_of(check), check.id, check.wanted), []).append((row, check))
    return [
        FailedCheck(
            id=id,
            grade=grade,
            points=tuple(row.id for row, _check in found),
            seen=tuple(dict.fromkeys(check.seen for _row, check in found)),
            wanted=wanted,
        )
        for (grade, id, wanted), found in sorted(groups.items(), key=lambda item: item[0][0] != "fault")
    ]


def grade_of(check: Check) -> str:
    """What a failed check means: "fault" (no figures) or "doubt" (figures that no verdict rests on)."""
    return str(getattr(check, "grade", "fault"))


def doubt_rows(evidence: Evidence) -> list[DoubtRow]:
    """The doubts, those that say the same joined."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for doubt in evidence.doubts:
        groups.setdefault((doubt.id, doubt.seen, doubt.wanted), []).append(doubt.where)
    return [DoubtRow(id, tuple(dict.fromkeys(where)), seen, wanted) for (id, seen, wanted), where in groups.items()]
