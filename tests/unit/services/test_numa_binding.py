# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import numa_binding
from hypothesis import given
from hypothesis import strategies as st


@given(st.sets(st.integers(0, 300)))
def test_the_kernels_list_format_reads_back(numbers: set[int]) -> None:
    assert numa_binding.parse_list(numa_binding.format_list(numbers)) == numbers


def test_ranges_are_read_and_written() -> None:
    assert numa_binding.parse_list("0-2,8\n") == {0, 1, 2, 8}
    assert numa_binding.format_list({0, 1, 2, 8}) == "0-2,8"


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up machine: all our CPUs on node 0, some that nobody has on node 1."""
    for node, cpus in ((0, numa_binding.format_list(os.sched_getaffinity(0))), (1, "900-901")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cpus + "\n")
    monkeypatch.setattr(numa_binding, "NODES", tmp_path)
    return tmp_path


def test_an_unbound_process_is_found_and_said_what_it_is(two_nodes: Path) -> None:
    result = numa_binding.check([os.getpid()], 1)
    assert result["ok"] is False
    assert "may run on CPUs" in result["seen"][0]
    assert "memory policy default" in result["seen"][0]
    assert result["wanted"] == "node 1: CPUs 900-901, memory bind:1"


@pytest.mark.skipif(shutil.which("numactl") is None, reason="numactl is not installed")
def test_a_process_that_numactl_started_is_bound(two_nodes: Path) -> None:
    code = "import time; print('runs', flush=True); time.sleep(30)"
    command = ["numactl", "--cpunodebind=0", "--membind=0", sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        result = numa_binding.check([process.pid], 0)
    finally:
        process.kill()
        process.wait()
    assert result["ok"] is True, result
    assert "1 processes" in result["seen"][0]


def test_no_process_and_no_node_are_no_success(two_nodes: Path) -> None:
    assert numa_binding.check([], 0)["ok"] is False
    assert numa_binding.check([os.getpid()], 7)["ok"] is False


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("libnuma: Warning: node argument 1 is out of range", "correct numa_node"),
        ("set_mempolicy: Operation not permitted", "SYS_NICE"),
        ("No NUMA support available on this system.", "leave numa_node out"),
        ("", "by hand"),
    ],
)
def test_a_refusal_says_what_to_do(said: str, cure: str) -> None:
    assert cure in numa_binding.explain(said, 1, "0")


def test_a_missing_numactl_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa_binding, "numactl_prefix", lambda node: ["/no/such/numactl"])
    assert "not installed" in (numa_binding.trial(0) or "")


@pytest.mark.skipif(shutil.which("numactl") is None, reason="numactl is not installed")
def test_a_node_that_is_not_there_is_refused_without_numactls_usage() -> None:
    refusal = numa_binding.trial(63)
    assert refusal is not None
    assert "node 63" in refusal
    assert "--interleave" not in refusal
