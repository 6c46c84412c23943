# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine does while a point is measured: load, processor clock, and the GPUs where nvidia-smi is there.

Read every second beside a measurement, so each reading is a few small files; nvidia-smi, which takes much longer, runs
on as one process that writes a line a GPU and second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

# Fields of nvidia-smi --query-gpu; `nvidia-smi --help-query-gpu` explains them. The last was called
# clocks_throttle_reasons.active before driver 535, and newer drivers still know that name.
GPU_FIELDS = ("index", "clocks.sm", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active")
# Bits of the last field (NVML, nvmlClocksEventReasons). 1 is an idle GPU, 2 a clock that somebody set: no fault.
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def load_1m() -> float | None:
    """Processes that ran or wanted to, over the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def cpu_mhz(root: str = "/") -> float | None:
    """The mean clock of all processors: cpufreq's figure, else /proc/cpuinfo's; None where neither says."""
    directory = os.path.join(root, "sys/devices/system/cpu")
    found = []
    try:
        names = [name for name in os.listdir(directory) if name.startswith("cpu") and name[3:].isdigit()]
    except OSError:
        names = []
    for name in names:
        try:
            with open(os.path.join(directory, name, "cpufreq/scaling_cur_freq"), encoding="ascii") as stream:
                found.append(int(stream.read()) / 1000.0)
        except (OSError, ValueError):
            break
    if not found:
        try:
            with open(os.path.join(root, "proc/cpuinfo"), encoding="utf-8", errors="replace") as stream:
                lines = [line for line in stream if line.startswith("cpu MHz")]
            found = [float(line.partition(":")[2]) for line in lines]
        except (OSError, ValueError):
            return None
    return round(sum(found) / len(found), 1) if found else None


def gpu_row(line: str) -> dict[str, Any] | None:
    """One line of nvidia-smi's CSV (without header and units) as a GPU's state; None for anything else."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != len(GPU_FIELDS) or not parts[0].isdigit():
        return None
    sm_mhz, power_w, temperature_c = (_number(part) for part in parts[1:4])
    try:
        bits = int(parts[4], 16)
    except ValueError:
        bits = 0
    reasons = [reason for bit, reason in THROTTLE_REASONS.items() if bits & bit]
    return {
        "index": int(parts[0]),
        "sm_mhz": sm_mhz,
        "power_w": power_w,
        "temperature_c": temperature_c,
        "throttle_reasons": reasons,
    }


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]"


class GpuWatch:
    """nvidia-smi, which goes on and on; what it said last of each GPU. Nothing where there is none."""

    def __init__(self, every_s: float) -> None:
        self._latest: dict[int, dict[str, Any]] = {}
        self._process: subprocess.Popen[str] | None = None
        program = shutil.which("nvidia-smi")
        if program is None:
            return
        query = [f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
        try:
            self._process = subprocess.Popen(
                [program, *query, f"--loop-ms={max(100, int(every_s * 1000))}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            row = gpu_row(line)
            if row is not None:
                self._latest[row["index"]] = row

    def latest(self) -> list[dict[str, Any]]:
        """The last line of each GPU."""
        return [dict(self._latest[index]) for index in sorted(self._latest)]

    def close(self) -> None:
        """End nvidia-smi."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def reading(gpus: GpuWatch | None) -> dict[str, Any]:
    """The machine now: {"load_1m", "cpu_mhz", "gpus"}."""
    return {"load_1m": load_1m(), "cpu_mhz": cpu_mhz(), "gpus": gpus.latest() if gpus else []}


def figures(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A point's "box": least, mean and most of each quantity over the readings, by GPU where there are some.

    A throttle reason stands there when it was active in at least one reading.
    """
    rows: dict[int, list[Mapping[str, Any]]] = {}
    for item in readings:
        for gpu in item.get("gpus") or []:
            rows.setdefault(gpu["index"], []).append(gpu)
    return {
        "load_1m": spread([item.get("load_1m") for item in readings]),
        "cpu_mhz": spread([item.get("cpu_mhz") for item in readings]),
        "gpus": [
            {
                "index": index,
                **{name: spread([gpu.get(name) for gpu in seen]) for name in ("sm_mhz", "power_w", "temperature_c")},
                "throttle_reasons": list(dict.fromkeys(reason for gpu in seen for reason in gpu["throttle_reasons"])),
            }
            for index, seen in sorted(rows.items())
        ],
    }


def spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """{"min", "mean", "max"} of the values that are known."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    return {"min": min(known), "mean": round(sum(known) / len(known), 3), "max": max(known)}
