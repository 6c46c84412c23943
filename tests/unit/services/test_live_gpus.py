# SPDX-License-Identifier: Apache-2.0
"""A server computes on its own GPUs, or the deployment fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.live_gpus import APPS, GPUS, Ask, ask, check, sentence

UUIDS = {index: f"GPU-0000000{index}" for index in range(4)}


def smi(*apps: tuple[int, int, str]) -> Ask:
    """nvidia-smi on a box of four GPUs, with (GPU, PID, MiB) of each process that computes."""
    answers = {
        GPUS: "".join(f"{index}, {uuid}\n" for index, uuid in UUIDS.items()),
        APPS: "".join(f"{UUIDS[gpu]}, {pid}, {mib}\n" for gpu, pid, mib in apps),
    }

    def said(argv: Sequence[str]) -> str | None:
        return answers[tuple(argv)]

    return said


@pytest.mark.parametrize(
    ("gpus", "apps", "ok"),
    [
        pytest.param([1], [(1, 11, "42000")], True, id="its own"),
        pytest.param([1], [(0, 11, "42000")], False, id="another one"),
        pytest.param([0, 1], [(0, 11, "42000"), (1, 12, "42000")], True, id="a rank on each"),
        pytest.param([0, 1], [(0, 11, "42000"), (0, 12, "42000")], False, id="two ranks on one"),
        pytest.param([2, 3], [(2, 11, "42000"), (1, 12, "42000")], False, id="one rank astray"),
        pytest.param([1], [(1, 11, "42000"), (0, 10, "520")], True, id="a small context elsewhere"),
        pytest.param([1], [(1, 10, "520"), (0, 11, "42000")], False, id="only a small context on its own"),
        pytest.param([1], [(1, 11, "[N/A]")], True, id="memory that is not shown"),
        pytest.param([1], [(0, 99, "42000")], None, id="nobody but a stranger"),
        pytest.param([1], [], None, id="no process is shown"),
    ],
)
def test_the_gpus_of_a_servers_processes(gpus: list[int], apps: list[tuple[int, int, str]], ok: bool | None) -> None:
    found = check([10, 11, 12], gpus, smi(*apps))
    assert found["ok"] is ok
    assert (found["unknown"] is None) is (ok is not None)


def test_what_was_found_is_said_in_words() -> None:
    found = check([11], [1], smi((0, 11, "42000")))
    assert sentence(found) == "wanted GPU 1, its processes have 42000 MiB on GPU 0"


def test_without_an_answer_nothing_is_claimed() -> None:
    assert check([11], [0], lambda _argv: None)["unknown"] == "nvidia-smi does not answer"
    assert ask(["/nowhere/nvidia-smi"]) is None
    assert ask(["false"]) is None
