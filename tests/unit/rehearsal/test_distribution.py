# SPDX-License-Identifier: Apache-2.0
"""The rehearsal distribution: what it promises SGLang, and that installing it is harmless."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pdlab_rehearsal import nixl_memory, nixl_progress, platform

FILES = Path(__file__).parents[3] / "roles" / "rehearsal" / "files"
PROJECT = tomllib.loads((FILES / "pyproject.toml").read_text())
GROUPS = PROJECT["project"]["entry-points"]


def test_the_platform_is_registered_under_the_name_that_inventories_use() -> None:
    assert GROUPS["sglang.srt.platforms"] == {"pdlab_cpu": "pdlab_rehearsal.platform:activate"}
    assert platform.NAME == "pdlab_cpu"


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, names in GROUPS.items() for name in names])
def test_every_entry_point_leads_to_a_function(group: str, name: str) -> None:
    assert callable(EntryPoint(name, GROUPS[group][name], group).load())


def test_it_brings_no_dependency_into_a_locked_environment() -> None:
    assert PROJECT["project"]["dependencies"] == []


def test_its_build_backend_is_the_one_inside_uv() -> None:
    assert PROJECT["build-system"]["build-backend"] == "uv_build"
    assert PROJECT["build-system"]["requires"] == ["uv_build>=0.8,<0.14"]


@pytest.mark.parametrize("value", [None, "", "cuda", "pdlab_cpu_2"])
def test_the_platform_is_none_unless_it_is_named(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    if value is not None:
        monkeypatch.setenv("SGLANG_PLATFORM", value)
    assert platform.activate() is None


@pytest.mark.parametrize("hook", [nixl_memory.register, nixl_progress.register])
def test_hooks_do_nothing_unless_the_platform_is_named(monkeypatch: pytest.MonkeyPatch, hook) -> None:
    monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    hook()  # would need sglang, which is not installed here


def test_an_sglang_that_does_not_fit_is_refused_with_the_versions_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLATFORM", "pdlab_cpu")
    with pytest.raises(RuntimeError, match=r"written for sglang 0\.5\.17 and 0\.5\.23, and .*sglang.* is installed"):
        platform.activate()


def test_importing_any_plug_in_imports_neither_sglang_nor_torch() -> None:
    code = (
        "import sys\nfrom pdlab_rehearsal import platform, nixl_memory, nixl_progress, canary\n"
        "print([m for m in ('sglang', 'torch', 'nixl', 'tokenizers') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(FILES / "src")}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == "[]"


def test_all_kv_memory_is_dram_and_the_original_still_checks_its_input() -> None:
    def original(kinds: list[str] | None, expected_len: int) -> list[str]:
        if kinds is not None and len(kinds) != expected_len:
            raise ValueError("length mismatch")
        return kinds or ["VRAM"] * expected_len

    assert nixl_memory.all_dram(original, None, 3) == ["DRAM"] * 3
    assert nixl_memory.all_dram(original, ["VRAM", "DRAM"], 2) == ["DRAM"] * 2
    with pytest.raises(ValueError, match="length mismatch"):
        nixl_memory.all_dram(original, ["VRAM"], 2)


def test_only_the_pause_of_a_nixl_agent_is_changed() -> None:
    class Real:
        DRAM_SEG = 7

        @staticmethod
        def nixlAgent(name: str, config) -> tuple[str, int]:
            return name, config.pthrDelay

    class Config:
        pthrDelay = 0

    bindings = nixl_progress.Bindings(Real)
    assert bindings.nixlAgent("a", Config()) == ("a", nixl_progress.PAUSE_US)
    assert bindings.DRAM_SEG == 7
