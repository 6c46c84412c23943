# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files lie in the page cache, and reading those that do not. Linux.

mincore(2) tells it page by page. To a process that neither owns the file nor may write to it the kernel says that
all is there (Linux 5.2 and later), so such a file counts as unknown.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence

BLOCK_BYTES = 8 * 1024 * 1024
# A file that lies in memory up to this share is warm: the kernel drops a page here and there.
WARM_SHARE = 0.99
WORKERS = 4
WINDOWS = 64
WINDOW_BYTES = 1024 * 1024
_LOWEST_BIT = bytes(value & 1 for value in range(256))
_PROT_READ = 1
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value


def resident_share(path: str) -> float | None:
    """The share of a file that is in the page cache, 0 to 1; None when the kernel would not tell. Raises OSError.

    Of a file of more than WINDOWS megabytes as many pieces of one are looked at, evenly spaced: the kernel looks for
    every page one by one, and takes a second for 30 GiB.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if os.geteuid() not in (0, status.st_uid) and not os.access(path, os.W_OK):
            return None
        if status.st_size == 0:
            return 1.0
        address = libc.mmap(None, status.st_size, _PROT_READ, _MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            return None
        try:
            there = looked_at = 0
            for offset, length in _windows(status.st_size):
                pages = (length + mmap.PAGESIZE - 1) // mmap.PAGESIZE
                vector = ctypes.create_string_buffer(pages)
                if libc.mincore(address + offset, length, vector) != 0:
                    return None
                # The lowest bit of each byte counts; the others are reserved.
                there += vector.raw.translate(_LOWEST_BIT).count(1)
                looked_at += pages
            return there / looked_at
        finally:
            libc.munmap(address, status.st_size)
    finally:
        os.close(descriptor)


def _windows(size: int) -> list[tuple[int, int]]:
    """(offset, length) of what is looked at of a file; offsets are a page's beginning."""
    if size <= WINDOWS * WINDOW_BYTES:
        return [(0, size)]
    last = (size - WINDOW_BYTES) // mmap.PAGESIZE
    return [(last * index // (WINDOWS - 1) * mmap.PAGESIZE, WINDOW_BYTES) for index in range(WINDOWS)]


def cold(paths: Sequence[str]) -> list[str]:
    """The files that are not (or not known to be) in the page cache. Raises OSError."""
    shares = {path: resident_share(path) for path in paths}
    return [path for path, share in shares.items() if share is None or share < WARM_SHARE]


def available_bytes(meminfo: str = "/proc/meminfo") -> int | None:
    """MemAvailable: what can be filled without swapping, page cache that may be dropped included."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(meminfo, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def read_slice(paths: Sequence[str], slice_s: float | None, tick: Callable[[], None]) -> list[str]:
    """Read files from their beginnings until `slice_s` is over (None: all); returns those that were read.

    A file that was begun is finished. `tick` is called often; what it raises ends the work. Raises OSError.
    """
    deadline = None if slice_s is None else time.monotonic() + slice_s
    stop = threading.Event()
    done: list[str] = []

    def one(path: str) -> None:
        if not stop.is_set() and (deadline is None or time.monotonic() < deadline):
            _read(path, stop)
            done.append(path)

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(one, path) for path in paths]
        try:
            while not all(future.done() for future in futures):
                concurrent.futures.wait(futures, timeout=0.2)
                tick()
        except BaseException:
            stop.set()
            raise
    for future in futures:
        future.result()
    return [path for path in paths if path in done]


def _read(path: str, stop: threading.Event) -> None:
    block = bytearray(BLOCK_BYTES)
    with open(path, "rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while stream.readinto(block) and not stop.is_set():
            pass
