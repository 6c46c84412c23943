# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import box_telemetry


def test_the_clock_is_cpufreqs_and_cpuinfos_where_there_is_none(tmp_path: Path) -> None:
    for cpu, khz in (("cpu0", 2_000_000), ("cpu1", 3_000_000)):
        folder = tmp_path / "sys/devices/system/cpu" / cpu / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n")
    assert box_telemetry.cpu_mhz(str(tmp_path)) == 2500
    (tmp_path / "vm/proc").mkdir(parents=True)
    (tmp_path / "vm/proc/cpuinfo").write_text("model name\t: x\ncpu MHz\t\t: 2100.5\ncpu MHz\t\t: 2100.7\n")
    assert box_telemetry.cpu_mhz(str(tmp_path / "vm")) == pytest.approx(2100.6)
    assert box_telemetry.cpu_mhz(str(tmp_path / "nothing")) is None


def test_a_line_of_nvidia_smi_is_a_gpus_state_and_anything_else_is_not() -> None:
    assert box_telemetry.gpu_row("3, 1980, 412.50, 61, 0x0000000000000044") == {
        "index": 3,
        "sm_mhz": 1980.0,
        "power_w": 412.5,
        "temperature_c": 61.0,
        "throttle_reasons": ["power cap", "hardware thermal slowdown"],
    }
    idle = box_telemetry.gpu_row("0, 345, [N/A], 30, 0x0000000000000001")
    assert idle is not None and idle["power_w"] is None and idle["throttle_reasons"] == []
    assert box_telemetry.gpu_row("NVIDIA-SMI has failed because it couldn't communicate") is None


def test_a_box_without_nvidia_smi_has_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    watch = box_telemetry.GpuWatch(1.0)
    reading = box_telemetry.reading(watch)
    watch.close()
    assert reading["gpus"] == [] and reading["load_1m"] is not None


def test_nvidia_smi_runs_on_and_its_last_word_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho '0, 1000, 100, 50, 0x0'\necho '1, 1000, 90, 50, 0x0'\necho '0, 1500, 300, 60, 0x4'\n"
        'case "$*" in *--loop-ms=1000*) exec sleep 60;; esac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    watch = box_telemetry.GpuWatch(1.0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and [gpu["sm_mhz"] for gpu in watch.latest()] != [1500, 1000]:
        time.sleep(0.02)
    assert [gpu["power_w"] for gpu in watch.latest()] == [300, 90]
    watch.close()


def test_a_points_figures_are_least_mean_and_most_and_every_reason_that_was_seen() -> None:
    readings = [
        {
            "load_1m": load,
            "cpu_mhz": None,
            "gpus": [{"index": 0, "sm_mhz": mhz, "power_w": 1.0, "temperature_c": 2.0, "throttle_reasons": why}],
        }
        for load, mhz, why in ((1.0, 1000.0, []), (4.0, 2000.0, ["power cap"]))
    ]
    figures = box_telemetry.figures(readings)
    assert figures["load_1m"] == {"min": 1.0, "mean": 2.5, "max": 4.0} and figures["cpu_mhz"] is None
    (gpu,) = figures["gpus"]
    assert gpu["sm_mhz"] == {"min": 1000.0, "mean": 1500.0, "max": 2000.0} and gpu["throttle_reasons"] == ["power cap"]
    assert box_telemetry.figures([]) == {"load_1m": None, "cpu_mhz": None, "gpus": []}
