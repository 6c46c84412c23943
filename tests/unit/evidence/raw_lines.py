# SPDX-License-Identifier: Apache-2.0
"""What the client's raw files say, counted without the project's code: what its figures are held against."""

from __future__ import annotations

import json
from pathlib import Path

TTFT_S = 2.0


def good_s(path: Path, tpot_ms: float) -> float:
    """Requests a second of one raw file whose first token came within TTFT_S and whose TPOT was `tpot_ms` at most."""
    raw = json.loads(path.read_text())
    rows = zip(raw["ttfts"], raw["itls"], raw["output_lens"], strict=True)
    kept = [ttft <= TTFT_S and sum(itls) / (length - 1) <= tpot_ms / 1000 for ttft, itls, length in rows]
    return sum(kept) / float(raw["duration"])
