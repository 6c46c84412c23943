# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that NIXL over UCX really moves registered memory between two processes of this host.

Run in the engine's Python, as a file or as ``-c SOURCE``: ``--memory dram|vram [--devices 0,1] [--bytes N]
[--initiator-env JSON] [--target-env JSON]``.
Stand-alone: the standard library at the top, nixl (and torch, for vram) inside the processes that need them.

Two processes, each in a session of its own, make a NIXL agent with a UCX backend and register memory of the kind
that the KV cache has. One WRITEs into the other, as prefill does into decode, and the other compares every byte.
The first write also makes the connection; of the others the fastest counts, as does that of as many plain copies of
the same bytes between the same memories, without NIXL.
Prints one JSON line: ok, memory, backend, bytes, seconds, gib_s, copy_gib_s (of the plain copy), nixl_version,
ucx_version, transport (what UCX says that it used, or null), why (null, or the cause in words). Exit status 0 when ok,
else 1; never leaves a process.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import Any

BACKEND = "UCX"
ERROR_LINES = 8
PIECE = 1 << 24  # bytes of the pattern made at a time; getrandbits takes fewer than 2^31 bits
TIMED = 5
PR_SET_PDEATHSIG = 1
# The causes that a reader can act on, by the words that NIXL, UCX or Python use for them.
CAUSES = (
    ("does not enable CUDA memory support", "UCX_TLS is set and leaves CUDA memory out; add cuda_copy, or cuda"),
    ("No module named 'nixl", "nixl is not installed in this Python"),
    ("is not installed", "the nixl package for this CUDA version is not installed"),
    ("detected as host by UCX", "this UCX was built without its CUDA module, so it takes GPU memory for host memory"),
    ("no usable transports", "UCX finds no transport that it may use; look at UCX_TLS and UCX_NET_DEVICES"),
    ("no NVIDIA driver", "there is no NVIDIA driver here, or it does not answer"),
    ("CUDA driver", "the CUDA driver does not answer"),
    ("No CUDA GPUs", "no GPU is visible"),
    ("invalid device ordinal", "there is no GPU of that number"),
    ("out of memory", "there is not enough memory for the probe"),
    ("No plugins available", "NIXL finds none of its plug-ins"),
)


class ProbeFailed(Exception):
    """The probe has no good result; the message is the cause in words."""


class Channel:
    """JSON messages, one a line, between two of the three processes."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.rest = b""

    def send(self, message: dict[str, Any]) -> None:
        self.link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next message; EOFError when the other side is gone."""
        while b"\n" not in self.rest:
            piece = self.link.recv(1 << 20)
            if not piece:
                raise EOFError("the other process ended")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class HostMemory:
    """``size`` bytes of host memory."""

    kind = "DRAM"
    device = 0

    def __init__(self, size: int, _device: int) -> None:
        self.buffer = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.buffer)
        self.size = size

    def fill(self, content: bytes) -> None:
        ctypes.memmove(self.address, content, self.size)

    def content(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def copy_seconds(self, _device: int) -> float:
        """The fastest of some plain copies of as many bytes, in seconds."""
        other = ctypes.create_string_buffer(self.size)
        return fastest(lambda: ctypes.memmove(ctypes.addressof(other), self.address, self.size))


class GpuMemory:
    """``size`` bytes on one GPU."""

    kind = "VRAM"

    def __init__(self, size: int, device: int) -> None:
        import torch

        self.torch = torch
        torch.cuda.set_device(device)  # before the backend: UCX looks for a current CUDA context
        self.tensor = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")
        torch.cuda.synchronize()
        self.address = int(self.tensor.data_ptr())
        self.device = device
        self.size = size

    def fill(self, content: bytes) -> None:
        self.tensor.copy_(self.torch.frombuffer(bytearray(content), dtype=self.torch.uint8))
        self.torch.cuda.synchronize()

    def content(self) -> bytes:
        self.torch.cuda.synchronize()
        result: bytes = self.tensor.cpu().numpy().tobytes()
        return result

    def copy_seconds(self, device: int) -> float:
        """The fastest of some plain copies of as many bytes to `device`, in seconds."""
        other = self.torch.empty_like(self.tensor, device=f"cuda:{device}")

        def copy() -> None:
            other.copy_(self.tensor)
            self.torch.cuda.synchronize(self.device)
            self.torch.cuda.synchronize(device)

        return fastest(copy)


def pattern(seed: int, size: int) -> bytes:
    """Bytes that both sides can make and that have no period, so that a misplaced block shows."""
    generator = random.Random(seed)
    pieces = [min(PIECE, size - start) for start in range(0, size, PIECE)]
    return b"".join(generator.getrandbits(8 * piece).to_bytes(piece, "little") for piece in pieces)


def fastest(action: Any) -> float:
    """Seconds of the fastest of TIMED runs, after one that is not counted."""
    times = []
    for _ in range(TIMED + 1):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def endpoint(role: str, memory: Any) -> tuple[Any, Any]:
    """A NIXL agent with a UCX backend that has ``memory`` registered, and the registration."""
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(role, nixl_agent_config(backends=[]))
    if BACKEND not in agent.get_plugin_list():
        raise ProbeFailed(f"NIXL has no {BACKEND} plug-in, only {agent.get_plugin_list()}")
    agent.create_backend(BACKEND, {})
    registered = agent.register_memory([(memory.address, memory.size, memory.device, "")], memory.kind)
    if not registered:
        raise ProbeFailed(f"NIXL did not register {memory.kind} memory")
    return agent, registered


def be_target(args: argparse.Namespace, peer: Channel, parent: Channel) -> None:
    """Offer memory, let it be written, say whether each byte is right."""
    memory = make_memory(args, 1)
    agent, registered = endpoint("pdlab-probe-target", memory)
    peer.send({"metadata": agent.get_agent_metadata().hex(), "address": memory.address, "device": memory.device})
    for seed in range(TIMED + 1):
        peer.receive()
        if memory.content() != pattern(seed, args.bytes):
            raise ProbeFailed("the write was reported as done, but the bytes on the target are not those sent")
        peer.send({"right": seed})
    peer.receive()  # the initiator has let go of this agent
    agent.deregister_memory(registered)
    parent.send({"right": True})


def be_initiator(args: argparse.Namespace, peer: Channel, parent: Channel) -> None:
    """Write several times and say how long the fastest but the first one took."""
    from importlib.metadata import version

    memory = make_memory(args, 0)
    agent, registered = endpoint("pdlab-probe-initiator", memory)
    offer = peer.receive()
    name = agent.add_remote_agent(bytes.fromhex(offer["metadata"]))
    name = name.decode() if isinstance(name, bytes) else name
    here = agent.get_xfer_descs([(memory.address, args.bytes, memory.device)], memory.kind)
    there = agent.get_xfer_descs([(offer["address"], args.bytes, offer["device"])], memory.kind)
    times = []
    for seed in range(TIMED + 1):
        memory.fill(pattern(seed, args.bytes))
        write = agent.initialize_xfer("WRITE", here, there, name)
        start = time.perf_counter()
        state = agent.transfer(write)
        while state == "PROC":
            state = agent.check_xfer_state(write)
        times.append(time.perf_counter() - start)
        if state != "DONE":
            raise ProbeFailed(f"NIXL ended the write as {state}")
        agent.release_xfer_handle(write)
        peer.send({"written": seed})
        peer.receive()
    agent.remove_remote_agent(name)
    agent.deregister_memory(registered)
    peer.send({"done": True})
    copied = memory.copy_seconds(offer["device"])
    parent.send({"seconds": min(times[1:]), "copy_seconds": copied, "nixl_version": version("nixl")})


def make_memory(args: argparse.Namespace, side: int) -> Any:
    return (GpuMemory if args.memory == "vram" else HostMemory)(args.bytes, args.devices[side])


class Child:
    """One side as the parent sees it."""

    def __init__(self, pid: int, channel: Channel, log: Any) -> None:
        self.pid = pid
        self.channel = channel
        self.log = log
        self.said: dict[str, Any] | None = None

    def text(self) -> str:
        self.log.seek(0)
        return str(self.log.read().decode(errors="replace"))

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it may not have reached setsid yet
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


ROLES = {"target": be_target, "initiator": be_initiator}


def start(role: str, args: argparse.Namespace, peer: socket.socket, others: list[socket.socket]) -> Child:
    """Fork one side (a key of ROLES) into a session of its own; its stdout and stderr, UCX's among them, go to a file."""
    ours, theirs = socket.socketpair()
    log = tempfile.TemporaryFile()  # noqa: SIM115 (read by the parent when the child has ended)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return Child(pid, Channel(ours), log)
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # also when the parent is killed outright
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for link in [*others, ours]:
            link.close()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os.environ.update(args.environments[role])
        # What UCX says of itself is wanted, but a choice that the caller made stays.
        os.environ.setdefault("UCX_LOG_LEVEL", "info")
        os.environ.setdefault("UCX_PROTO_INFO", "y")
        ROLES[role](args, Channel(peer), Channel(theirs))
        status = 0
    except ProbeFailed as error:
        Channel(theirs).send({"why": str(error)})
    except EOFError:
        pass  # the other side has the cause
    except BaseException as error:
        # The error alone: where in this script it arose helps nobody.
        print("".join(traceback.format_exception_only(type(error), error)), file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without Python's or NIXL's own clean-up: whatever matters has been sent, and a clean-up can hang.
        os._exit(status)


def collect(children: list[Child], limit_s: float) -> None:
    """Wait until each child has spoken or ended; ProbeFailed after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    with selectors.DefaultSelector() as waiting:
        for child in children:
            waiting.register(child.channel.link, selectors.EVENT_READ, child)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ProbeFailed(f"the write was not done within {limit_s:g} s")
            for key, _events in ready:
                child = key.data
                with contextlib.suppress(EOFError):
                    child.said = child.channel.receive()
                waiting.unregister(key.fileobj)


def explain(children: list[Child]) -> str | None:
    """Why there is no good result, or None when there is one."""
    told = [child.said["why"] for child in children if child.said and "why" in child.said]
    if told:
        return str(told[0])
    if all(child.said for child in children):
        return None
    lines = error_lines([child for child in children if not child.said])
    whole = "\n".join(lines)
    cause = next((words for sign, words in CAUSES if sign in whole), "a process of the probe ended without a result")
    return with_tail(cause, lines)


def error_lines(children: list[Child]) -> list[str]:
    """What the children printed beyond UCX's chatter, each line once (both sides often fail alike)."""
    lines = [line.strip() for child in children for line in child.text().splitlines()]
    return list(dict.fromkeys(line for line in lines if line and not is_chatter(line)))


def with_tail(cause: str, lines: list[str]) -> str:
    tail = " / ".join(line[:300] for line in lines[-ERROR_LINES:])
    return f"{cause}: {tail}" if tail else cause


def is_chatter(line: str) -> bool:
    """Whether a line says only that things go as they should."""
    return any(mark in line for mark in (" UCX  INFO ", " UCX  DIAG ", " NIXL INFO ")) or bool(
        re.search(r"\] +[|+]", line)
    )


def ucx_version(log: str) -> str | None:
    """The version of the UCX that was loaded, out of its own log; None when it did not say."""
    found = re.search(r"UCX +INFO +Version (\S+)", log)
    return found.group(1) if found else None


def transport(log: str, size: int, memory: str) -> str | None:
    """How UCX says that it does a write of ``size`` bytes, as "description config"; None when it did not say.

    UCX_PROTO_INFO=y prints a table for each operation, pair of endpoints and kinds of memory. The last one for writes
    from the probe's memory ("dram", "vram") to another process is the probe's, and its row for ``size`` was used.
    """
    kind = "cuda" if memory == "vram" else "host"
    source, target = f"from {kind}", f" to {kind}"
    answer = None
    table = elsewhere = False
    for line in log.splitlines():
        cells = [cell.strip() for cell in line.partition("|")[2].rstrip("| \n").split("|")]
        heading = cells[0] if cells else ""
        if "cfg#" in heading:
            table = False
            elsewhere = " self cfg#" not in heading
        if "remote memory write by ucp_put" in heading:
            table = elsewhere and source in heading and target in heading
        elif table and len(cells) == 3 and ".." in cells[0]:
            low, _, high = cells[0].partition("..")
            if int(low) <= size and (high == "inf" or size <= int(high)):
                answer = f"{cells[1]} {cells[2]}".strip()
    return answer


def probe(args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides; the document to print."""
    document: dict[str, Any] = {
        "ok": False,
        "memory": args.memory.upper(),
        "backend": BACKEND,
        "bytes": args.bytes,
        "seconds": None,
        "gib_s": None,
        "copy_gib_s": None,
        "nixl_version": None,
        "ucx_version": None,
        "transport": None,
        "why": None,
    }
    children: list[Child] = []
    try:
        left, right = socket.socketpair()
        children.append(start("target", args, left, [right]))
        children.append(start("initiator", args, right, [left, children[0].channel.link]))
        left.close()
        right.close()
        collect(children, args.timeout_s)
        document["why"] = explain(children)
    except ProbeFailed as error:
        document["why"] = with_tail(str(error), error_lines(children))
    finally:
        for child in children:
            child.end()
    log = "\n".join(child.text() for child in children)
    document["ucx_version"] = ucx_version(log)
    if len(children) == 2:
        document["transport"] = transport(children[1].text(), args.bytes, args.memory)
        document.update({k: v for k, v in (children[1].said or {}).items() if k in ("seconds", "nixl_version")})
    if document["why"] is None:
        document["ok"] = True
        document["gib_s"] = round(args.bytes / 2**30 / document["seconds"], 3)
        document["copy_gib_s"] = round(args.bytes / 2**30 / (children[1].said or {})["copy_seconds"], 3)
    return document


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments; SystemExit 2 with a message on stderr when they make no sense."""
    parser = argparse.ArgumentParser(prog="nixl_probe")
    parser.add_argument("--memory", choices=["dram", "vram"], required=True)
    parser.add_argument("--devices", default="", help="vram: two GPU numbers, FROM,TO; the same twice is allowed")
    parser.add_argument("--bytes", type=int, default=64 * 1024 * 1024)
    parser.add_argument("--timeout-s", type=float, default=60.0)
    parser.add_argument("--initiator-env", type=json.loads, default={}, help="JSON object of environment variables")
    parser.add_argument("--target-env", type=json.loads, default={}, help="the same for the other side")
    args = parser.parse_args(argv)
    args.environments = {"initiator": args.initiator_env, "target": args.target_env}
    try:
        args.devices = [int(number) for number in args.devices.split(",") if number.strip()]
    except ValueError:
        parser.error("--devices takes GPU numbers, as in 0,1")
    if args.memory == "dram" and not args.devices:
        args.devices = [0, 0]
    if len(args.devices) != 2 or min(args.devices) < 0:
        parser.error("--memory vram needs --devices with two GPU numbers, as in 0,1")
    if args.bytes < 1:
        parser.error("--bytes takes a number above 0")
    return args


def stop(_number: int, _frame: Any) -> None:
    raise ProbeFailed("the probe was told to stop")


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
