# SPDX-License-Identifier: Apache-2.0
"""The locks: one set of versions for every accelerator, every file hashed, nothing of the machine that made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "roles" / "engine" / "files" / "locks"
CPU, CUDA = LOCKS / "cpu.txt", LOCKS / "cuda13.txt"
ALL = [CPU, CUDA, ROOT / "roles" / "servers" / "files" / "supervisor.txt"]


def requirements(lock: Path) -> dict[str, list[str]]:
    """Requirement line → its hashes."""
    found: dict[str, list[str]] = {}
    for line in lock.read_text().splitlines():
        if re.match(r"[a-z0-9]", line):
            last = line.rstrip(" \\")
            found[last] = []
        elif "--hash=" in line:
            found[last].append(line.strip(" \\"))
    return found


def names(lock: Path) -> set[str]:
    return {re.split("[=; ]", line)[0] for line in requirements(lock)}


@pytest.mark.parametrize("lock", ALL, ids=lambda path: path.stem)
def test_every_requirement_is_an_exact_version_with_hashes(lock: Path) -> None:
    for requirement, hashes in requirements(lock).items():
        assert re.match(r"[a-z0-9.-]+==\S+", requirement)
        assert hashes, requirement


@pytest.mark.parametrize("lock", ALL, ids=lambda path: path.stem)
def test_no_lock_mentions_an_index_or_a_path_of_the_machine_that_made_it(lock: Path) -> None:
    assert not re.findall(r"https?://|file:|index-url|find-links|(?:^|\s)/\w+", lock.read_text())


def test_cpu_and_gpu_have_the_same_versions() -> None:
    assert set(requirements(CPU)) <= set(requirements(CUDA))


def test_the_cpu_lock_leaves_out_exactly_what_is_listed() -> None:
    listed = {
        line.strip() for line in (LOCKS / "cpu-leaves-out.txt").read_text().splitlines() if re.match(r"[a-z]", line)
    }
    assert names(CUDA) - names(CPU) == listed


@pytest.mark.parametrize("lock", [CPU, CUDA], ids=lambda path: path.stem)
def test_the_pins_are_in_the_locks(lock: Path) -> None:
    pins = [line for line in (LOCKS / "engine.in").read_text().splitlines() if re.match(r"[a-z]", line)]
    assert len(pins) == 4
    assert set(pins) <= set(requirements(lock))
