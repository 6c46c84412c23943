# SPDX-License-Identifier: Apache-2.0
"""Stands where the benchmark client would: says what it says, in an event loop, and works as told.

python -m client_standin good|busy|blocked|late|silent|failing
"""

from __future__ import annotations

import asyncio
import sys
import time

IMPORTED = __name__


async def run(behaviour: str) -> None:
    sys.stderr.write("Generating prompts: 100%|##| 12/12 [00:09<00:00]\n")
    print("Starting main benchmark run...")
    await asyncio.sleep(0.1)
    if behaviour == "late":
        # As the client of sglang 0.5.17 does before its first request.
        time.sleep(0.8)
    if behaviour != "silent":
        sys.stderr.write("\r  0%|   | 0/12 [00:00<?]")
    end = time.perf_counter() + 0.6
    # Half a second of computing, however long a busy machine takes for it.
    computed = time.process_time() + (0.5 if behaviour == "busy" else 0)
    while time.perf_counter() < end or time.process_time() < computed:
        if behaviour == "busy":
            sum(range(20000))
            await asyncio.sleep(0)
        elif behaviour == "blocked":
            time.sleep(0.15)
            await asyncio.sleep(0.05)
        else:
            await asyncio.sleep(0.05)
    if behaviour != "silent":
        sys.stderr.write("\r100%|###| 12/12 [00:01<00:00]\n")
    # Adding up: no part of the measurement, however long it blocks the loop.
    time.sleep(0.4)
    print("============ Serving Benchmark Result ============")
    sys.stderr.write("99%|#| 1/1 [")


if __name__ == "__main__":
    print("arguments", sys.argv[1:], "in", __name__)
    asyncio.run(run(sys.argv[1]))
    if sys.argv[1] == "failing":
        sys.exit(7)
