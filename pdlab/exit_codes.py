# SPDX-License-Identifier: Apache-2.0
"""The exit statuses of `pdlab`. docs/exit-codes.md says the same in words; a test holds them together."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a status means to the caller of `pdlab`."""

    OK = 0
    ERROR = 1
    USAGE = 2
    VETO = 3
    DEPLOY_FAILED = 4
    WRONG_ANSWER = 5
    BENCHMARK_FAILED = 6
    BUSY = 7
    DIFFERS = 8
    ALTERED = 9
    CANCELLED = 130


# The status of a run by the stage that it failed in.
BY_STAGE = {
    "preflight": Exit.VETO,
    "deploy": Exit.DEPLOY_FAILED,
    "ready": Exit.DEPLOY_FAILED,
    "verify": Exit.WRONG_ANSWER,
    "benchmark": Exit.BENCHMARK_FAILED,
    "report": Exit.ERROR,
}
