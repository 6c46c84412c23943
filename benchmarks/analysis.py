# SPDX-License-Identifier: Apache-2.0
"""analysis.py COUNT: seconds that the analysis of COUNT points takes in a fresh process, imports included."""

from __future__ import annotations

import random
import sys
import time


def main(count: int) -> None:
    """Print the seconds. Half of the points are of a closed loop, half of an open one with 200 requests each."""
    started = time.perf_counter()
    from pdlab.analysis.comparison import compare
    from pdlab.analysis.goodput import Limits
    from pdlab.analysis.measurement import Measurement, Requests
    from pdlab.analysis.sweep import analyse

    loaded = time.perf_counter() - started
    draw = random.Random(1)  # noqa: S311 - figures, not secrets
    points = []
    for number in range(count):
        load = (1, 4, 16, 64)[number % 4]
        ttft, tpot = 20.0 * load * draw.uniform(0.9, 1.1), (5 + 0.05 * load) * draw.uniform(0.95, 1.05)
        closed = number < count / 2
        times = tuple(ttft * draw.uniform(0.5, 1.5) for _ in range(200))
        points.append(
            Measurement(
                label=f"p{number}",
                arm=f"arm{number % 3}",
                request_s=1000 * load / (ttft + 127 * tpot),
                input_len=256 * (1 + number % 2),
                output_len=128,
                ttft_ms=ttft,
                tpot_ms=tpot,
                concurrency=load if closed else None,
                rate_s=None if closed else float(load),
                requested=200,
                completed=200,
                duration_s=60.0,
                requests=None if closed else Requests(times, tuple(tpot for _ in times)),
            )
        )
    started = time.perf_counter()
    arms = analyse(points, Limits(ttft_ms=500, tpot_ms=8))
    rates = [[one.point.request_s for one in arm.points][:50] for arm in arms]
    compare("request_s", rates[0], rates[1])
    print(f"{loaded + time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
