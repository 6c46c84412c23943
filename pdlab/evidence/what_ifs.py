# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain --what-if prefill=2`: one thing changed at each workload's highest closed-loop load. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pdlab.analysis.closed_loop import LoopState
from pdlab.analysis.refusal import RefusedError
from pdlab.analysis.what_if import Change, Prediction, fit_arm, what_if
from pdlab.evidence.cells import Sample, highest_loads
from pdlab.evidence.comparisons import load_words
from pdlab.evidence.model import Load
from pdlab.evidence.verdict_words import percent

KEYS = tuple(item.name for item in fields(Change))


@dataclass(frozen=True)
class WhatIf:
    """What a change would give one prefill/decode arm at one load. `prediction` is null when refused."""

    arm: str
    workload: str
    load: Load
    change: str
    prediction: Prediction | None
    words: str


def change_of(text: str) -> Change:
    """A change as it is typed: "prefill=2" or "output_len=512,concurrency=32". Raises ValueError."""
    values: dict[str, int] = {}
    for part in text.split(","):
        key, _equals, value = part.partition("=")
        name = key.strip().replace("-", "_")
        if name not in KEYS:
            raise ValueError(f"--what-if {text}: {key.strip()!r} cannot be changed; known are {', '.join(KEYS)}")
        if name in values:
            raise ValueError(f"--what-if {text}: {name} stands there twice")
        if not re.fullmatch(r"[0-9]{1,9}", value.strip()) or int(value) < 1:
            raise ValueError(f"--what-if {text}: {name} must be a whole number from 1 on, as in {name}=2")
        values[name] = int(value)
    return Change(**values)


def what_ifs_of(samples: Sequence[Sample], change: str) -> list[WhatIf]:
    """The change at each prefill/decode arm's highest closed-loop load of each workload.

    What the fitted curves do not reach is refused, and the words say why. Raises ValueError for no change, and where no
    arm has such a load: a question is not left without an answer.
    """
    wanted = change_of(change)
    made = []
    for arm in dict.fromkeys(one.row.arm for one in samples):
        own = [one for one in samples if one.row.arm == arm and one.row.counts]
        points = [one.measurement for one in own if one.measurement is not None]
        saturated = frozenset(one.row.point.label for one in own if one.row.bound == "prefill-bound")
        for workload, load, here in highest_loads(own):
            base = here[arm].measurement
            if base is None or not base.servers.disaggregated:
                continue
            found: Prediction | None = None
            try:
                found = what_if(fit_arm(points, saturated), base, wanted)
                said = _said(found)
            except RefusedError as error:
                said = f"refused: {error}"
            words = f"what if {change}, {workload}, {arm} at {load_words(load)}: {said}"
            made.append(WhatIf(arm, workload, load, change, found, words))
    if not made:
        raise ValueError(
            f"--what-if {change}: no arm of prefill and decode servers has a point that counts with two requests at once "
            "or more; measure one, as in `pdlab bench --workload short`"
        )
    return made


def _said(found: Prediction) -> str:
    return (
        f"the model says {found.rate_ratio:.2f} times the requests ({_state(found.before)} before, "
        f"{_state(found.after)} after); it meets this arm's own points within {percent(found.within)}"
    )


def _state(state: LoopState) -> str:
    return f"{state.request_s:.3g} requests/s, TTFT {state.ttft_ms:.4g} ms, TPOT {state.tpot_ms:.3g} ms"
