# SPDX-License-Identifier: Apache-2.0
"""Failures in words: what a person reads when a playbook did not go through."""

from __future__ import annotations

from pdlab.runner import Outcome

OUTPUT_TAIL_LINES = 25


def failure_lines(outcome: Outcome) -> list[str]:
    """One block of lines per failed task: where it failed, then the module's own message.

    A playbook that failed without a failed task (unknown inventory, syntax) gives the tail of Ansible's output.
    """
    lines: list[str] = []
    for failure in outcome.failures:
        lines.append(f"{failure.host}: {failure.task.replace('pdlab.pdlab.', '')}")
        lines += ["  " + line for line in failure.message.splitlines()]
    for failure in outcome.unreachable:
        lines.append(f"{failure.host}: unreachable")
        lines += ["  " + line for line in failure.message.splitlines()]
    if not lines and not outcome.ok and outcome.status != "cancelled":
        lines = outcome.output.strip().splitlines()[-OUTPUT_TAIL_LINES:] or ["ansible-playbook failed and said nothing"]
    return lines


def first_line(outcome: Outcome) -> str | None:
    """The shortest honest reason why a run failed, for run.json."""
    failures = [*outcome.failures, *outcome.unreachable]
    if failures:
        # A first line that only announces a list says nothing without the list's first line.
        lines = failures[0].message.splitlines()
        return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    lines = failure_lines(outcome)
    return lines[-1] if lines else None
