# SPDX-License-Identifier: Apache-2.0
"""The NIXL probe without NIXL: arguments, what it reads out of UCX's log, and that it says why and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.module_utils import nixl_probe

SCRIPT = Path(nixl_probe.__file__)

# Lines as UCX 1.23 prints them.
INFO = "[1795969727.096578] [vm:3939 :0]     ucp_context.c:2753 UCX  INFO  Version 1.23.0 (loaded from x)"
PROTO = """
[1.5] [vm:1 :0]   | probe self cfg#0                                       |
[1.5] [vm:1 :0]   | remote memory write by ucp_put* from host memory to host |
[1.5] [vm:1 :0]   | 0..inf        | short       | cuda_copy/cuda             |
[1.6] [vm:1 :0]   | probe intra-node cfg#1                                 |
[1.6] [vm:1 :0]   | remote memory write by ucp_put* from host memory to host |
[1.6] [vm:1 :0]   | 0..5000       | copy-in     | tcp/lo                     |
[1.6] [vm:1 :0]   | 5001..inf     | zero-copy   | cma/memory                 |
[1.7] [vm:1 :0]   | probe intra-node cfg#2                                               |
[1.7] [vm:1 :0]   | remote memory write by ucp_put*(multi) from cuda/GPU0 to cuda/dev[3] |
[1.7] [vm:1 :0]   | 0..inf | zero-copy   | cuda_ipc/cuda                                 |
[1.8] [vm:1 :0]   | probe intra-node cfg#2                                          |
[1.8] [vm:1 :0]   | remote memory write by ucp_put* from host memory to cuda/dev[3] |
[1.8] [vm:1 :0]   | 0..inf | software emulation | tcp/lo                            |
"""


def run(*arguments: str, python: str = sys.executable, env: dict[str, str] | None = None):
    return subprocess.run(
        [python, "-c", SCRIPT.read_text(), *arguments], capture_output=True, text=True, timeout=60, env=env
    )


@pytest.fixture
def sleepy_nixl(tmp_path: Path) -> dict[str, str]:
    """An environment whose nixl hangs on import, to see what the time limit leaves behind."""
    package = tmp_path / "nixl"
    package.mkdir()
    (package / "__init__.py").write_text(
        f"import os, time, pathlib\npathlib.Path({str(tmp_path)!r}, f'pid.{{os.getpid()}}').touch()\ntime.sleep(600)\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path), "PIDS": str(tmp_path)}


def test_missing_nixl_is_named_as_the_cause(tmp_path: Path) -> None:
    (tmp_path / "nixl.py").write_text("raise ModuleNotFoundError(\"No module named 'nixl'\")\n")
    done = run("--memory", "dram", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert document["ok"] is False
    assert document["why"].startswith("nixl is not installed in this Python: ModuleNotFoundError")


def test_the_document_is_one_line_with_the_agreed_keys(sleepy_nixl: dict[str, str]) -> None:
    done = run("--memory", "dram", "--bytes", "7", "--timeout-s", "0.2", env=sleepy_nixl)
    assert len(done.stdout.splitlines()) == 1
    document = json.loads(done.stdout)
    assert set(document) == {
        "ok", "memory", "backend", "bytes", "seconds", "gib_s", "copy_gib_s", "nixl_version", "ucx_version", "transport", "why",
    }  # fmt: skip
    assert (document["memory"], document["backend"], document["bytes"]) == ("DRAM", "UCX", 7)


def test_the_time_limit_ends_the_probe_and_leaves_no_process(sleepy_nixl: dict[str, str]) -> None:
    done = run("--memory", "dram", "--timeout-s", "2", env=sleepy_nixl)
    assert "not done within 2 s" in json.loads(done.stdout)["why"]
    pids = [int(path.suffix[1:]) for path in Path(sleepy_nixl["PIDS"]).glob("pid.*")]
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_stopped_probe_leaves_no_process(sleepy_nixl: dict[str, str]) -> None:
    with subprocess.Popen([sys.executable, str(SCRIPT), "--memory", "dram"], env=sleepy_nixl, stdout=-1) as probe:
        folder = Path(sleepy_nixl["PIDS"])
        while len(list(folder.glob("pid.*"))) < 2:
            assert probe.poll() is None
        probe.terminate()
        out, _ = probe.communicate(timeout=30)
    assert "told to stop" in json.loads(out)["why"]
    assert not [path for path in folder.glob("pid.*") if Path(f"/proc/{path.suffix[1:]}").exists()]


@pytest.mark.parametrize("arguments", [["--memory", "vram"], ["--memory", "vram", "--devices", "0"], ["--memory", "x"]])
def test_arguments_that_make_no_sense_are_refused_before_anything_starts(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_one_gpu_may_be_named_twice() -> None:
    assert nixl_probe.parse(["--memory", "vram", "--devices", "3,3"]).devices == [3, 3]


def test_nothing_heavy_is_imported_by_the_parent() -> None:
    code = f"import sys, runpy; runpy.run_path({str(SCRIPT)!r}); print('torch' in sys.modules, 'nixl' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]


def test_the_ucx_version_is_read_from_its_log() -> None:
    assert nixl_probe.ucx_version(INFO) == "1.23.0"
    assert nixl_probe.ucx_version("silence") is None


@pytest.mark.parametrize(("size", "used"), [(100, "copy-in tcp/lo"), (1 << 20, "zero-copy cma/memory")])
def test_the_transport_is_that_of_the_size_and_of_the_other_process(size: int, used: str) -> None:
    assert nixl_probe.transport(PROTO.partition("[1.7]")[0], size, "dram") == used


def test_the_transport_of_gpu_memory_is_not_taken_from_a_write_of_host_memory() -> None:
    assert nixl_probe.transport(PROTO, 1 << 26, "vram") == "zero-copy cuda_ipc/cuda"


def test_no_transport_is_claimed_when_ucx_did_not_say() -> None:
    assert nixl_probe.transport(INFO, 100, "dram") is None


@pytest.mark.parametrize("size", [1, nixl_probe.PIECE, 3 * nixl_probe.PIECE + 1])
def test_the_pattern_has_the_asked_size(size: int) -> None:
    assert len(nixl_probe.pattern(1, size)) == size


def test_the_pattern_has_no_period() -> None:
    content = nixl_probe.pattern(1, 1 << 16)
    assert len({content[i : i + 64] for i in range(0, 1 << 16, 64)}) == 1 << 10
    assert content != nixl_probe.pattern(2, 1 << 16)
