# SPDX-License-Identifier: Apache-2.0
"""Arms compared with each other at each load, from paired repeats. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from pdlab.analysis.comparison import Comparison, compare
from pdlab.analysis.decision import settled_claim
from pdlab.evidence.cells import PER_GPU, Sample, by_arm, figures_of
from pdlab.evidence.model import Arm, ComparisonRow, Load

# What is compared, and what a reader calls it. Goodput is compared by winners.py and verdicts.py.
QUANTITIES = {
    "output_tok_s": "output tok/s",
    PER_GPU: "output tok/s per GPU",
    "ttft_ms.mean": "mean TTFT, ms",
    "tpot_ms.mean": "mean TPOT, ms",
    "e2e_ms.mean": "mean E2E, ms",
}


def comparisons_of(samples: Sequence[Sample], arms: Sequence[Arm]) -> list[ComparisonRow]:
    """Every pair of arms at every load that both have, prefill/decode first in a pair, for each of QUANTITIES."""
    rows = []
    for (workload, load), group in by_arm(samples).items():
        figures = {
            arm: {repeat: figures_of(one.row.point, one.gpus) for repeat, one in repeats.items()}
            for arm, repeats in group.items()
        }
        for a, b in pairs_of(arms):
            for quantity, words in QUANTITIES.items():
                values = [
                    {repeat: found[quantity] for repeat, found in figures.get(arm, {}).items() if quantity in found}
                    for arm in (a, b)
                ]
                found = compare_repeats(f"{words} of {a} against {b} at {load_words(load)}", *values)
                if found:
                    rows.append(_row(workload, load, quantity, a, b, found))
    return rows


def pairs_of(arms: Sequence[Arm]) -> Iterator[tuple[str, str]]:
    """Every pair of arms by name, in order, with prefill/decode first."""
    ordered = sorted(arms, key=lambda arm: not arm.disaggregated)
    return itertools.combinations([arm.name for arm in ordered], 2)


def compare_repeats(name: str, a: Mapping[int, float], b: Mapping[int, float]) -> Comparison | None:
    """Two arms by the repeats that both have; None when they share none."""
    common = sorted(a.keys() & b.keys())
    return compare(name, [a[one] for one in common], [b[one] for one in common]) if common else None


def differences(a: Mapping[int, float], b: Mapping[int, float]) -> list[float]:
    """a - b for each repeat that both have, in order."""
    return [a[one] - b[one] for one in sorted(a.keys() & b.keys())]


def paired_means(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, float]:
    """The means of two arms over the repeats that both have, which a comparison of them rests on; there is one or more."""
    common = a.keys() & b.keys()
    mean_a, mean_b = (math.fsum(values[one] for one in common) / len(common) for values in (a, b))
    return mean_a, mean_b


def load_words(load: Load) -> str:
    """A load as a reader wants it: "16 requests at once" or "4 requests/s"."""
    if load.loop == "closed":
        number = "an unknown number of" if load.concurrency is None else f"{load.concurrency}"
        return f"{number} request{'s' if load.concurrency != 1 else ''} at once"
    return "an unknown rate" if load.rate_s is None else f"{load.rate_s:g} requests/s"


def finite(value: float | None) -> float | None:
    """The value; None where two repeats leave an end of an interval open (JSON has no infinity)."""
    return value if value is not None and math.isfinite(value) else None


def _row(workload: str, load: Load, quantity: str, a: str, b: str, found: Comparison) -> ComparisonRow:
    return ComparisonRow(
        workload=workload,
        load=load,
        quantity=quantity,
        a=a,
        b=b,
        pairs=found.pairs,
        difference=found.difference,
        low=found.low,
        high=found.high,
        ratio=finite(found.ratio),
        ratio_low=finite(found.ratio_low),
        ratio_high=finite(found.ratio_high),
        claim=settled_claim(found),
        words=found.words
        if settled_claim(found) == found.claim
        else f"{found.words}, but the ratio's interval includes 1",
    )
