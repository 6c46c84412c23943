# SPDX-License-Identifier: Apache-2.0
"""How many repeats would show an effect, if mean and spread of the differences stay as they were seen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pdlab.analysis.comparison import CONFIDENCE

# Beyond this an effect is too small for its noise to be worth the time.
MOST_REPEATS = 50


def repeats_needed(
    differences: Sequence[float], confidence: float = CONFIDENCE, most: int = MOST_REPEATS
) -> int | None:
    """The least number of pairs n at which Student's interval of the mean difference would leave out 0.

    n is the least with t(n - 1) * s / sqrt(n) < |mean|, s and mean as seen (W. S. Gosset's interval, solved for n).
    It is an estimate: s and the mean of a few repeats are themselves uncertain. None: more than `most`, no spread to
    go by (fewer than two pairs), or a mean of 0.
    """
    if len(differences) < 2:
        return None
    mean, spread = abs(statistics.fmean(differences)), statistics.stdev(differences)
    if mean == 0:
        return None
    from scipy import special

    for count in range(2, most + 1):
        if float(special.stdtrit(count - 1, (1 + confidence) / 2)) * spread / math.sqrt(count) < mean:
            return count
    return None
