# SPDX-License-Identifier: Apache-2.0
"""One thing seen, held against a threshold, speaking for or against a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bound = Literal["prefill-bound", "decode-bound", "KV-bound", "transfer-bound", "latency-bound", "cannot say"]
Side = Literal["for", "against", "not seen"]


@dataclass(frozen=True)
class Evidence:
    """`value` held against `threshold`; None and "not seen" where the measurement does not tell.

    Between a threshold for a bound and one against it, an observation speaks against: a name has to be earned.
    """

    bound: Bound
    name: str
    value: float | None
    threshold: float
    side: Side
    words: str

    @property
    def speaks_for(self) -> bool:
        """Whether it supports the bound."""
        return self.side == "for"


def at_least(bound: Bound, name: str, value: float | None, threshold: float, words: str) -> Evidence:
    """For the bound when value >= threshold. `words` may hold {value} and {threshold}."""
    return _judged(bound, name, value, threshold, value is not None and value >= threshold, words)


def at_most(bound: Bound, name: str, value: float | None, threshold: float, words: str) -> Evidence:
    """For the bound when value <= threshold."""
    return _judged(bound, name, value, threshold, value is not None and value <= threshold, words)


def _judged(bound: Bound, name: str, value: float | None, threshold: float, good: bool, words: str) -> Evidence:
    side: Side = "not seen" if value is None else "for" if good else "against"
    shown = "unknown" if value is None else f"{value:.3g}"
    return Evidence(bound, name, value, threshold, side, words.format(value=shown, threshold=f"{threshold:g}"))
