# SPDX-License-Identifier: Apache-2.0
"""The stages of a run, from the start and end events that its stages.jsonl holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One stage of a run. `ended` is None when it never ended, `ok` is None unless it ended."""

    name: str
    started: float | None
    ended: float | None = None
    ok: bool | None = None
    why: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the stage came to an end, good or bad."""
        return self.ended is not None

    @property
    def seconds(self) -> float | None:
        """How long it took; None when one of its two events is missing."""
        if self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)


def pair_stages(events: Sequence[Mapping[str, Any]]) -> tuple[Stage, ...]:
    """Turn start and end events into stages, in the order in which they began.

    A stage that starts again while it is open leaves the first one unfinished; an end without a start is kept.
    """
    stages: list[Stage] = []
    for event in events:
        name, at = str(event.get("stage")), event.get("time")
        if not isinstance(at, int | float):
            continue
        if event.get("event") == "start":
            stages.append(Stage(name, float(at)))
        elif event.get("event") == "end":
            why = event.get("why")
            unfinished = [i for i, stage in enumerate(stages) if stage.name == name and not stage.finished]
            index = unfinished[-1] if unfinished else None
            started = stages[index].started if index is not None else None
            done = Stage(name, started, float(at), bool(event.get("ok")), str(why) if why else None)
            if index is None:
                stages.append(done)
            else:
                stages[index] = done
    return tuple(stages)
