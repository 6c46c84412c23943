# SPDX-License-Identifier: Apache-2.0
"""How a run ended, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.results.model import Report


def verdict(report: Report) -> str:
    """The run in one line: passed, or failed and where it stopped."""
    if report.status == "running":
        return f"Running: in {report.stopped_at or 'its first stage'}"
    right = sum(answer.ok for answer in report.answers)
    counts = []
    if report.answers:
        counts.append(f"{right} of {len(report.answers)} answers right")
    requested = sum(point.requested or 0 for point in report.points)
    if requested:
        counts.append(f"{sum(point.completed or 0 for point in report.points)} of {requested} requests completed")
    if report.ok:
        stages = f"{len(report.stages)} stage{'s' if len(report.stages) != 1 else ''}"
        return "Passed: " + ", ".join([stages, *counts])
    where = report.stopped_at
    what = {
        "cancelled": "Cancelled",
        # ansible-playbook writes no end of its own, whether it failed or was killed.
        "died": "Stopped" if by_playbook(report.command) else "Died",
        "unknown": "Unknown: run.json is missing or damaged; it seems to have stopped",
    }.get(report.status, "Vetoed" if report.exit_code == 3 else "Failed")
    line = what + (f" at {where}" if where else "")
    return f"{line}: {why}" if (why := reason(report)) else line


def reason(report: Report) -> str | None:
    """Why the run did not pass, from the most telling place: the run, its stage, its first failed point."""
    stage = next((stage for stage in report.stages if not stage.ok), None)
    point = next((point for point in report.points if not point.ok), None)
    if report.why:
        return report.why
    if report.status == "died":
        said = next((first for failure in report.failures if (first := failure.message.strip().split("\n")[0])), None)
        return said or "its controller is gone and it wrote no end"
    if stage and stage.why:
        return stage.why
    if point:
        return f"point {point.label}: {'; '.join(point.why) or 'failed'}"
    return None


def by_playbook(command: Sequence[object]) -> bool:
    """Whether ansible-playbook made the run, without the `pdlab` command: it writes no end of its own."""
    return list(command[:1]) == ["ansible-playbook"]
