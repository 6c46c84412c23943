# SPDX-License-Identifier: Apache-2.0
"""What legs show, as blocks of Markdown for findings.md: the same that report.html says, in text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pdlab.evidence.model import Evidence, WinnerCell
from pdlab.evidence.verdicts import with_steps
from pdlab.report import formatting
from pdlab.report.arm_tables import WorkloadTable, workload_tables
from pdlab.report.checks import doubt_rows, failed_checks
from pdlab.report.loads import limit_words, load_words
from pdlab.report.markdown_text import code, table, text
from pdlab.report.next_steps import around_command
from pdlab.report.request_time import PARTS, request_times
from pdlab.report.winners import how_won, rates

MOST_DOUBTS = 12
MOST_PLACES = 3


def evidence_blocks(evidence: Evidence) -> list[str]:
    """Verdicts first, then arms side by side, who wins where, rates, failed checks and doubts. Empty parts are left out.

    Of a lone arm there is nothing to compare: its points stand in the run's own section.
    """
    several = len(evidence.arms) > 1
    label = "REHEARSAL: " if evidence.rehearsal else ""
    blocks = [label + _verdicts(evidence)] if several and evidence.verdicts else []
    for workload in workload_tables(evidence):
        if several:
            blocks.append(label + _arms(workload))
        blocks += [label + block for block in _times(workload, evidence)]
    if evidence.winners:
        blocks.append(label + _winners(evidence.winners, how_won(evidence)))
    if found := rates(evidence):
        lines = (f"- {text(one.workload)}, {text(one.limits)}: {text(one.words)}" for one in found)
        blocks.append(f"{label}Highest rates:\n\n" + "\n".join(lines))
    if found_checks := failed_checks(evidence.points):
        blocks.append(
            "Checks that failed:\n\n"
            + "\n".join(
                f"- {text(check.id)} ({check.grade}) at {_some(check.points)}: {text('; '.join(check.seen))}"
                f", wanted {text(check.wanted)}"
                for check in found_checks
            )
        )
    if doubts := doubt_rows(evidence):
        lines = (
            f"- {text(one.id)}: {text(one.seen)}, wanted {text(one.wanted)} ({_some(one.where)})"
            for one in doubts[:MOST_DOUBTS]
        )
        more = f"\n- and {len(doubts) - MOST_DOUBTS} more in the full report" if len(doubts) > MOST_DOUBTS else ""
        blocks.append("What the numbers cannot support:\n\n" + "\n".join(lines) + more)
    return blocks


def _verdicts(evidence: Evidence) -> str:
    lines = [
        f"- **{text(row.workload)}, {text(limit_words(row.limits))}**: {text(row.sentence)}"
        + (f" Next: {_advice(step)}" if step else "")
        for row, step in with_steps(evidence.verdicts)
    ]
    return "Verdicts:\n\n" + "\n".join(lines)


def _advice(step: str) -> str:
    """What to measure next: a command that stands between backticks is code, to be copied as it is."""
    said, command, after = around_command(step)
    return " ".join(part for part in (text(said), command and code(command), text(after)) if part)


def _arms(workload: WorkloadTable) -> str:
    header = ["load", "arm", "repeats", *(f"{heading} {unit}" for _field, heading, unit in workload.columns), "bound"]
    rows = [
        [
            text(group.title),
            text(row.arm),
            f"{row.repeats}" + (f" (-{row.out})" if row.out else ""),
            *("n/a" if figure is None else figure.text for figure in row.figures),
            text(row.bound or ""),
        ]
        for group in workload.groups
        for row in group.rows
    ]
    title = (
        f"{text(workload.name)} ({text(workload.lengths)}, {workload.loop} loop), mean over repeats ± 95 % interval:"
    )
    return title + "\n\n" + table(header, rows, left=(0, 1, len(header) - 1))


def _times(workload: WorkloadTable, evidence: Evidence) -> list[str]:
    found = request_times(workload.counting, evidence.points, [arm.name for arm in evidence.arms])
    if not found:
        return []
    rows = []
    for one in found:
        parts = [one.part(name) for name in PARTS]
        known = ["-" if part is None else formatting.rounded(part.ms) for part in parts]
        rows.append([load_words(one.cell.load), text(one.cell.arm), *known, formatting.rounded(one.ms)])
    title = f"{text(workload.name)}, where the time of a request goes, ms:"
    return [title + "\n\n" + table(["load", "arm", *PARTS, "E2E"], rows, left=(0, 1))]


def _winners(cells: Sequence[WinnerCell], how: str) -> str:
    lines = []
    for cell in cells:
        goods = ", ".join(
            f"{text(arm)} {formatting.amount(figure.mean, figure.low, figure.high)}"
            for arm, figure in cell.goodput.items()
        )
        nobody = all(figure.mean == 0 for figure in cell.goodput.values())
        winner = "nobody keeps them" if nobody else text(cell.winner or "no difference shown")
        place = f"{text(cell.workload)}, {load_words(cell.load)}, {text(limit_words(cell.limits))}"
        lines.append(f"- {place}: **{winner}** ({goods})")
    return f"Who wins where, requests per second that met the limits. {how}\n\n" + "\n".join(lines)


def _some(places: Sequence[str]) -> str:
    shown = "; ".join(text(place) for place in places[:MOST_PLACES])
    return shown if len(places) <= MOST_PLACES else f"{shown} and {len(places) - MOST_PLACES} more"
