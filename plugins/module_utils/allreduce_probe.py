# SPDX-License-Identifier: GPL-3.0-or-later
"""Time an all-reduce among the first 2, 3 … of some GPUs, and find out when one hangs.

Run in the engine's Python, as a file or as ``-c SOURCE``: ``--backend nccl|gloo --ranks 2,3,8 [--devices 0,1,2,…]``.
Stand-alone: the standard library at the top, torch inside the processes that need it.

GPUs whose peer-to-peer copies are redirected by an IOMMU or by ACS let a collective hang for ever, at 100 % load and
without an error (NCCL issues 1999 and 2079), so each group of ranks has a time limit, and its processes are ended.
Prints one JSON line: ok, backend, library_version, groups (one for each number of ranks: ranks, devices, ok,
latency_us of 8 KiB, bus_gib_s of 64 MiB, why), why. Exit status 0 when ok, else 1; never leaves a process.

bus_gib_s is the bytes of the buffer over the time, times 2(n-1)/n: what each link carries in a ring of n ranks
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import Any

SMALL_BYTES, SMALL_RUNS = 8 * 1024, 50
LARGE_BYTES, LARGE_RUNS = 64 * 1024 * 1024, 5
STEPS = ("start", "join", "first all-reduce", "timing")
PR_SET_PDEATHSIG = 1


class Stopped(Exception):
    """The probe was told to stop."""


def be_rank(args: argparse.Namespace, rank: int, size: int, store: str, say: Any) -> None:
    """Join the group, reduce, check the sum, time it. `say` takes the step that comes next, or the result."""
    os.environ.update(args.env)
    import torch
    import torch.distributed as dist

    device = torch.device("cpu")
    if args.backend == "nccl":
        device = torch.device("cuda", args.devices[rank])
        torch.cuda.set_device(device)
    say({"step": 1})
    dist.init_process_group(args.backend, init_method="file://" + store, rank=rank, world_size=size)

    def done() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    say({"step": 2})
    ones = torch.full((1024,), rank + 1.0, device=device)
    dist.all_reduce(ones)
    done()
    if not bool((ones == size * (size + 1) / 2).all()):
        raise RuntimeError(f"the sum is wrong: {ones[0].item()} instead of {size * (size + 1) / 2}")
    say({"step": 3})
    seconds = {}
    for name, count, runs in (("small", SMALL_BYTES, SMALL_RUNS), ("large", args.large_bytes, LARGE_RUNS)):
        buffer = torch.zeros(count // 4, device=device)
        dist.all_reduce(buffer)
        done()
        start = time.perf_counter()
        for _ in range(runs):
            dist.all_reduce(buffer)
        done()
        seconds[name] = (time.perf_counter() - start) / runs
    say({**seconds, "library": library_version(torch, args.backend)})


def library_version(torch: Any, backend: str) -> str | None:
    """Version of NCCL as torch has it; None for another backend."""
    return ".".join(map(str, torch.cuda.nccl.version())) if backend == "nccl" else None


class Rank:
    """One process as the parent sees it."""

    def __init__(self, number: int, pid: int, link: socket.socket, log: Any) -> None:
        self.number = number
        self.pid = pid
        self.link = link
        self.log = log
        self.step = 0
        self.result: dict[str, Any] | None = None
        self.rest = b""

    def hear(self) -> bool:
        """Take what it says; False when it has nothing more to say."""
        piece = self.link.recv(65536)
        *lines, self.rest = (self.rest + piece).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.step = message.get("step", self.step)
            if "small" in message:
                self.result = message
        return bool(piece) and self.result is None

    def error(self) -> str:
        """The last line that it printed."""
        self.log.seek(0)
        lines = [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "it ended without a word"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        # A process that is stuck in the driver cannot be waited for.
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline and os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            time.sleep(0.01)


def start(args: argparse.Namespace, rank: int, size: int, store: str) -> Rank:
    """Fork one rank; its output goes to a file."""
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115 (read by the parent when the child has ended)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return Rank(rank, pid, ours, log)
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        ours.close()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        be_rank(args, rank, size, store, lambda message: theirs.sendall(json.dumps(message).encode() + b"\n"))
        status = 0
    except BaseException as error:
        print("".join(traceback.format_exception_only(type(error), error)), file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without torch's own clean-up, which waits for the others.
        os._exit(status)


def listen(ranks: list[Rank], limit_s: float) -> None:
    """Hear the ranks until each has a result or has ended, at most `limit_s`."""
    deadline = time.monotonic() + limit_s
    with selectors.DefaultSelector() as waiting:
        for rank in ranks:
            waiting.register(rank.link, selectors.EVENT_READ, rank)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for key, _events in ready:
                if not key.data.hear():
                    waiting.unregister(key.fileobj)
                    if key.data.result is None:
                        return  # one that failed leaves the others waiting for it


def group(args: argparse.Namespace, size: int) -> dict[str, Any]:
    """One group of `size` ranks: its row of the document, with the library's version."""
    row: dict[str, Any] = {
        "ranks": size,
        "devices": args.devices[:size],
        "ok": False,
        "latency_us": None,
        "bus_gib_s": None,
        "why": None,
    }
    ranks: list[Rank] = []
    with tempfile.TemporaryDirectory(prefix="pdlab-allreduce-") as directory:
        try:
            for number in range(size):
                ranks.append(start(args, number, size, os.path.join(directory, "store")))
            listen(ranks, args.timeout_s)
            failed = [rank for rank in ranks if rank.result is None]
            row["why"] = explain(failed, args)
        finally:
            for rank in ranks:
                rank.end()
    results = [rank.result for rank in ranks if rank.result]
    if row["why"] is None:
        slowest = {name: max(result[name] for result in results) for name in ("small", "large")}
        row["ok"] = True
        row["latency_us"] = round(slowest["small"] * 1e6, 1)
        row["bus_gib_s"] = round(args.large_bytes / 2**30 / slowest["large"] * 2 * (size - 1) / size, 3)
        row["library_version"] = results[0]["library"]
    return row


def explain(failed: list[Rank], args: argparse.Namespace) -> str | None:
    """Why a group has no result, or None when it has one."""
    if not failed:
        return None
    ended = [rank for rank in failed if os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]
    if ended:
        return f"rank {ended[0].number} failed at its {STEPS[ended[0].step]}: {ended[0].error()}"
    stuck = [f"rank {rank.number} (GPU {args.devices[rank.number]}) in its {STEPS[rank.step]}" for rank in failed]
    return f"it hangs: not done within {args.timeout_s:g} s: {', '.join(stuck)}"


def probe(args: argparse.Namespace) -> dict[str, Any]:
    """All groups, smallest first; a group that hangs ends the probe, since the GPUs may be stuck."""
    groups: list[dict[str, Any]] = []
    for size in args.ranks:
        groups.append(group(args, size))
        if not groups[-1]["ok"]:
            break
    versions = [row.pop("library_version", None) for row in groups]
    why = next((f"all-reduce among {row['ranks']} ranks: {row['why']}" for row in groups if not row["ok"]), None)
    return {
        "ok": why is None,
        "backend": args.backend,
        "library_version": versions[0],
        "groups": groups,
        "why": why,
    }


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments; SystemExit 2 with a message on stderr when they make no sense."""
    parser = argparse.ArgumentParser(prog="allreduce_probe")
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--ranks", default="2", help="numbers of ranks, as in 2,3,8")
    parser.add_argument("--devices", default="", help="GPU numbers, one for each rank of the largest group")
    parser.add_argument("--large-bytes", type=int, default=LARGE_BYTES)
    parser.add_argument("--timeout-s", type=float, default=60.0, help="for each group")
    parser.add_argument("--env", type=json.loads, default={}, help="JSON object of environment variables")
    args = parser.parse_args(argv)
    try:
        args.ranks = sorted({int(number) for number in args.ranks.split(",") if number.strip()})
        args.devices = [int(number) for number in args.devices.split(",") if number.strip()]
    except ValueError:
        parser.error("--ranks and --devices take numbers, as in 2,3")
    if not args.ranks or args.ranks[0] < 2:
        parser.error("--ranks takes numbers from 2 on")
    args.devices = args.devices or list(range(args.ranks[-1]))
    if len(set(args.devices)) < args.ranks[-1]:
        parser.error(f"--ranks {args.ranks[-1]} needs as many different --devices")
    return args


def stop(_number: int, _frame: Any) -> None:
    raise Stopped("the probe was told to stop")


def main() -> None:
    """Probe, print, and say by the exit status whether it went well."""
    args = parse(sys.argv[1:])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    document = probe(args)
    print(json.dumps(document), flush=True)
    sys.exit(0 if document["ok"] else 1)


if __name__ == "__main__":
    main()
