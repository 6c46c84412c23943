# SPDX-License-Identifier: Apache-2.0
"""Moments in time as run.json keeps them: ISO 8601, UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """This moment in UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def epoch(moment: object) -> float | None:
    """An ISO 8601 time as Unix seconds; None when it is none."""
    if not isinstance(moment, str):
        return None
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def seconds_between(started: object, ended: object) -> float | None:
    """Seconds between two ISO times of run.json; None when one is missing."""
    first, last = epoch(started), epoch(ended)
    return None if first is None or last is None else max(0.0, last - first)
