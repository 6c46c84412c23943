# SPDX-License-Identifier: Apache-2.0
"""Preflight verdicts as a reader wants them: what forbids a deployment first, what passed last. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdlab.loose import as_rows, as_text
from pdlab.plain_text import plain_text

_ORDER = {"veto": 0, "warn": 1, "info": 2}


@dataclass(frozen=True)
class Verdict:
    """One verdict of one host."""

    host: str
    id: str
    severity: str
    ok: bool
    seen: str
    wanted: str
    why: str
    cure: str

    @property
    def word(self) -> str:
        """What the verdict says in one word."""
        return "ok" if self.ok else {"veto": "VETO", "warn": "warning"}.get(self.severity, "note")


def verdicts(records: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """The verdicts of preflight records by host: failed vetoes first, then warnings, notes, and what passed."""
    found = [
        Verdict(
            host=as_text(record.get("host")) or host,
            id=str(row.get("id")),
            severity=as_text(row.get("severity")) or "info",
            ok=bool(row.get("ok")),
            **{name: plain_text(as_text(row.get(name)) or "") for name in ("seen", "wanted", "why", "cure")},
        )
        for host, record in records.items()
        for row in as_rows(record.get("verdicts"))
    ]
    return sorted(found, key=lambda verdict: (verdict.ok, _ORDER.get(verdict.severity, 3)))
