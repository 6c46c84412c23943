# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a server really computes on the GPUs that it was given: asked of nvidia-smi for its live processes.

A server on another GPU answers as well and is as fast; it shares that GPU with the server that belongs there, and
every figure of both is wrong. A process may keep a small context on a GPU that is not its own (CUDA makes one where
peer memory or another GPU's properties are asked for), so that alone is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes

GPUS = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
APPS = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
TIMEOUT_S = 20.0

Ask = Callable[[Sequence[str]], "str | None"]


def ask(argv: Sequence[str]) -> str | None:
    """What a program prints; None when it is missing, hangs or fails."""
    try:
        done = processes.run_watched(list(argv), TIMEOUT_S)
    except OSError:
        return None
    return done.stdout if done.rc == 0 else None


def check(pids: Iterable[int], gpus: Sequence[int], said: Ask = ask) -> dict[str, Any]:
    """Hold the GPUs of a server's processes against `gpus` (indices).

    Returns {"wanted", "ok", "seen", "unknown"}: `seen` is the memory in MiB by GPU that the processes have there;
    `ok` is None, with a sentence in `unknown`, where nvidia-smi cannot say (a container hides the processes).
    """
    result: dict[str, Any] = {"wanted": sorted(gpus), "ok": None, "seen": {}, "unknown": None}
    listed, apps = said(GPUS), said(APPS)
    if listed is None or apps is None:
        return {**result, "unknown": "nvidia-smi does not answer"}
    index = {uuid: int(number) for number, uuid in _rows(listed, 2) if number.isdigit()}
    seen = _memory(_rows(apps, 3), index, set(pids))
    if not seen:
        return {**result, "unknown": "nvidia-smi lists no process of this server"}
    missing = [gpu for gpu in result["wanted"] if gpu not in seen]
    least = min((seen[gpu] for gpu in result["wanted"] if gpu in seen), default=0)
    strangers = [gpu for gpu in seen if gpu not in gpus and seen[gpu] > least]
    return {**result, "ok": not missing and not strangers, "seen": dict(sorted(seen.items()))}


def sentence(result: dict[str, Any]) -> str:
    """What `check` found, in words."""
    found = ", ".join(f"{mib} MiB on GPU {gpu}" for gpu, mib in result["seen"].items())
    return f"wanted GPU {', '.join(map(str, result['wanted']))}, its processes have {found}"


def _memory(rows: Iterable[Sequence[str]], index: dict[str, int], pids: set[int]) -> dict[int, int]:
    """MiB by GPU index of these processes; a process whose memory is not shown counts with 0."""
    found: dict[int, int] = {}
    for uuid, pid, memory in rows:
        if uuid in index and pid.isdigit() and int(pid) in pids:
            found[index[uuid]] = found.get(index[uuid], 0) + (int(memory) if memory.isdigit() else 0)
    return found


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) == columns]
