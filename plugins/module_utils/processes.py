# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a target, read from /proc, and children that never outlive who asked for them.

Linux only. A reader returns None or an empty list for a process that is gone or that this user may not
look at: a process may die between two reads, so that is no error.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PROC = Path("/proc")
TICK_S = 0.1
HEARTBEAT_S = 3.0
TAIL_BYTES = 64 * 1024
# State 0A in /proc/net/tcp: TCP_LISTEN (include/net/tcp_states.h).
_LISTEN = "0A"
_HANG_UP = select.POLLERR | select.POLLHUP


class ControllerGone(Exception):
    """Nobody reads this module's output any more: the controller, its worker or its ssh session ended."""


@dataclass(frozen=True)
class Process:
    """One row of /proc/PID/stat; `start_ticks` (clock ticks since boot) tells a PID's lives apart."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    start_ticks: int


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket; `pid` is None when its owner is another user's and cannot be seen."""

    port: int
    address: str
    pid: int | None
    command: str

    def describe(self) -> str:
        """Return who listens where, for a message."""
        owner = f"PID {self.pid} ({self.command})" if self.pid else "a process of another user (root can name it)"
        return f"port {self.port} on {self.address} is held by {owner}"


@dataclass(frozen=True)
class Outcome:
    """How a watched child ended. `rc` is negative for a signal; the texts are the last TAIL_BYTES of output."""

    rc: int
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float


def read_process(pid: int) -> Process | None:
    """Return the process with this PID, zombies included, or None."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0],
        start_ticks=int(fields[19]),
    )


def is_alive(pid: int, start_ticks: int | None = None) -> bool:
    """Tell whether this PID runs (a zombie does not), and is still the same life when `start_ticks` is given."""
    process = read_process(pid)
    if process is None or process.state in "ZX":
        return False
    return start_ticks is None or process.start_ticks == start_ticks


def started_since_boot_s(pid: int) -> float | None:
    """Return when the process started, in seconds since boot (CLOCK_BOOTTIME)."""
    process = read_process(pid)
    return None if process is None else process.start_ticks / os.sysconf("SC_CLK_TCK")


def started_at(pid: int) -> float | None:
    """Return when the process started, in seconds since the epoch."""
    since_boot_s = started_since_boot_s(pid)
    return None if since_boot_s is None else time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot_s


def all_processes() -> dict[int, Process]:
    """Return every process that /proc shows, by PID."""
    found = (read_process(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def process_tree(root: int, table: Mapping[int, Process] | None = None) -> list[int]:
    """Return `root` and all its living descendants, parents before children; empty when `root` is gone."""
    table = all_processes() if table is None else table
    if root not in table or table[root].state in "ZX":
        return []
    children: dict[int, list[int]] = {}
    for process in table.values():
        if process.state not in "ZX":
            children.setdefault(process.parent, []).append(process.pid)
    tree = [root]
    for pid in tree:
        tree.extend(sorted(children.get(pid, [])))
    return tree


def command_line(pid: int) -> list[str]:
    """Return the process's argv, empty for a kernel thread or when it cannot be read."""
    return _nul_separated(pid, "cmdline")


def environment(pid: int) -> dict[str, str] | None:
    """Return the environment that the process was started with, or None when it cannot be read.

    A process that sets its title (setproctitle) overwrites this memory; its environment then reads as empty
    or torn. Callers treat a missing name as "unknown", never as a difference.
    """
    items = _nul_separated(pid, "environ")
    if not items:
        return None
    return dict(item.split("=", 1) for item in items if "=" in item)


def _nul_separated(pid: int, name: str) -> list[str]:
    try:
        data = (PROC / str(pid) / name).read_bytes()
    except OSError:
        return []
    text = data.decode("utf-8", "surrogateescape")
    return text[:-1].split("\0") if text.endswith("\0") else text.split("\0") if text else []


def describe(pid: int, limit: int = 160) -> str:
    """Return a process's command line for a message, shortened to `limit` characters."""
    text = " ".join(command_line(pid)).strip() or _command_name(pid)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _command_name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "gone"


# --- listening ports -------------------------------------------------------------------------------------------------


def listeners(ports: Iterable[int]) -> list[Listener]:
    """Return who listens on any of these TCP ports, IPv4 and IPv6, in this network namespace."""
    sockets = _listening_sockets(set(ports))
    if not sockets:
        return []
    owners = _socket_owners({inode for _, _, inode in sockets})
    found = []
    for port, address, inode in sockets:
        pid = owners.get(inode)
        found.append(Listener(port, address, pid, describe(pid) if pid else ""))
    return found


def listening_ports(pids: Iterable[int]) -> set[int]:
    """Return the TCP ports that these processes listen on."""
    inodes = {inode for pid in pids for inode in _socket_inodes(pid)}
    return {port for port, _, inode in _listening_sockets(None) if inode in inodes}


def overlaps(wanted: str, held: str) -> bool:
    """Tell whether binding `wanted` would collide with a listener on `held` (both addresses, no names)."""
    try:
        first, second = ipaddress.ip_address(wanted), ipaddress.ip_address(held)
    except ValueError:
        return True  # a host name: assume the worst rather than resolve it
    return first.is_unspecified or second.is_unspecified or first == second


def _listening_sockets(ports: set[int] | None) -> list[tuple[int, str, int]]:
    """Return (port, address, inode) of the listening sockets on `ports`, or on any port for None."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] != _LISTEN:
                continue
            address, _, port = fields[1].rpartition(":")
            if ports is None or int(port, 16) in ports:
                found.append((int(port, 16), _address(address), int(fields[9])))
    return found


def _address(text: str) -> str:
    """Turn the kernel's spelling (32-bit words in host byte order) into an address; v4-mapped becomes v4."""
    words = bytes.fromhex(text)
    little = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
    address = ipaddress.ip_address(little)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _socket_owners(inodes: set[int]) -> dict[int, int]:
    owners: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            for inode in _socket_inodes(int(entry.name)) & inodes:
                # The lowest PID is the one that opened it; children only inherit it.
                owners[inode] = min(int(entry.name), owners.get(inode, int(entry.name)))
    return owners


def _socket_inodes(pid: int) -> set[int]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


# --- children that end with their controller -------------------------------------------------------------------------


def controller_gone(descriptor: int = 1) -> bool:
    """Tell whether the reader of this module's output (a pipe, a socket or a terminal) has gone.

    Asks poll() for no event at all: it still reports an error or a hang-up of the other end.
    """
    poller = select.poll()
    try:
        poller.register(descriptor, 0)
        return any(event & _HANG_UP for _, event in poller.poll(0))
    except OSError:
        return False


def stop_if_controller_gone() -> None:
    """Raise ControllerGone when nobody reads this module's output any more. To be called often while waiting."""
    _beat.give()
    if controller_gone():
        raise ControllerGone


class _Beat:
    """Writes an empty line now and then, so that a reader that has silently gone is found out.

    A shared ssh connection keeps a killed worker's pipes open, and only a failing write tells it so. Ansible skips
    what stands before a module's JSON.
    """

    def __init__(self, every_s: float, descriptor: int = 1) -> None:
        self._every_s = every_s
        self._descriptor = descriptor
        self._last = time.monotonic()

    def give(self) -> None:
        if time.monotonic() - self._last < self._every_s:
            return
        self._last = time.monotonic()
        with contextlib.suppress(OSError):
            mode = os.fstat(self._descriptor).st_mode
            writable = select.select([], [self._descriptor], [], 0)[1]
            if writable and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                os.write(self._descriptor, b"\n")


_beat = _Beat(HEARTBEAT_S)


def end_group(group: int, grace_s: float = 5.0) -> None:
    """End a process group: SIGTERM, then SIGKILL to what is left after `grace_s` seconds."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 2.0)):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            return
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if not any(p.group == group and p.state not in "ZX" for p in all_processes().values()):
                return
            time.sleep(0.05)


class _Tail:
    """Keeps the last TAIL_BYTES of a stream that a thread drains, so that a talkative child never blocks."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._data = bytearray()
        self._thread = threading.Thread(target=self._drain, args=(stream,), daemon=True)
        self._thread.start()

    def _drain(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(stream.fileno(), 65536):
                self._data += chunk
                del self._data[:-TAIL_BYTES]

    def text(self) -> str:
        # A daemonised grandchild may hold the pipe open for ever: do not wait for its end.
        self._thread.join(timeout=1.0)
        return bytes(self._data).decode("utf-8", "replace")


def with_pythonpath(folders: Sequence[str]) -> dict[str, str] | None:
    """Our own environment with folders in front of a Python child's path; None, which inherits ours, without any."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)} if folders else None


def run_watched(
    argv: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    log_path: str | None = None,
    stdin: str | None = None,
    on_tick: Callable[[], None] | None = None,
    before: Callable[[], None] | None = None,
) -> Outcome:
    """Run a child in its own session; end its whole group on time-out or when the controller is gone.

    `env` is the whole environment (None inherits ours). With `log_path` both streams are appended to that file
    and `stdout` is the tail of what this run wrote there. `on_tick` is called about ten times a second;
    `before` runs in the child just before the program does (to set limits, say).

    Raises ControllerGone after the group has been ended; OSError when the program cannot be started.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        log: IO[bytes] | None = None
        if log_path is not None:
            log = stack.enter_context(open(log_path, "ab"))
            log_start = log.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=log if log else subprocess.PIPE,
            stderr=subprocess.STDOUT if log else subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=before,
        )
        timed_out = False
        try:
            tails = [_Tail(stream) for stream in (child.stdout, child.stderr) if stream is not None]
            if stdin is not None:
                threading.Thread(target=_feed, args=(child, stdin.encode()), daemon=True).start()
            while child.poll() is None:
                stop_if_controller_gone()
                if time.monotonic() - began > timeout_s:
                    timed_out = True
                    break
                if on_tick is not None:
                    on_tick()
                _await_exit(child, TICK_S)
        finally:
            if child.poll() is None:
                end_group(child.pid)
            child.wait()
        texts = [tail.text() for tail in tails]
        if log_path is not None:
            texts = [_file_tail(log_path, log_start), ""]
    return Outcome(child.returncode, texts[0], texts[1], timed_out, time.monotonic() - began)


def _await_exit(child: subprocess.Popen[bytes], wait_s: float) -> None:
    """Wait at most `wait_s` for a child. Popen.wait with a time-out polls, and would be up to 50 ms late."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except (OSError, AttributeError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
        return
    try:
        select.select([descriptor], [], [], wait_s)
    finally:
        os.close(descriptor)


def _feed(child: subprocess.Popen[bytes], data: bytes) -> None:
    if child.stdin is not None:
        with contextlib.suppress(OSError), child.stdin as stream:
            stream.write(data)


def _file_tail(path: str, start: int) -> str:
    with open(path, "rb") as stream:
        stream.seek(max(start, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
        return stream.read().decode("utf-8", "replace")
