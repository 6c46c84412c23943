# SPDX-License-Identifier: Apache-2.0
"""What lies in the page cache is known, and what does not is read. Linux."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import page_cache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the page cache of Linux")


def dropped(path: Path) -> Path:
    """A file whose pages have left the page cache, as far as the file system plays along."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if page_cache.resident_share(str(path)):
        pytest.skip("this file system keeps its pages")
    return path


def test_a_cold_file_is_read_and_is_warm_then(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(5 << 20))
    dropped(path)
    assert page_cache.cold([str(path)]) == [str(path)]
    assert page_cache.read_slice([str(path)], None, lambda: None) == [str(path)]
    assert page_cache.resident_share(str(path)) == 1
    assert page_cache.cold([str(path)]) == []


@pytest.mark.parametrize("size", [1, 4096, 5000, 64 << 20, (64 << 20) + 1, 5 << 30])
def test_what_is_looked_at_of_a_file_lies_in_it_and_takes_in_both_its_ends(size: int) -> None:
    windows = page_cache._windows(size)
    assert windows[0][0] == 0
    assert size - 4096 < sum(windows[-1]) <= size
    assert all(offset % 4096 == 0 and 0 < offset + length <= size for offset, length in windows)
    assert sum(length for _, length in windows) <= 64 << 20


def test_an_empty_file_is_warm_and_a_slice_of_no_time_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert page_cache.cold([str(tmp_path / "empty")]) == []
    assert page_cache.read_slice([str(tmp_path / "empty")], 0, lambda: None) == []


def test_available_memory_is_read_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable:    7 kB\n")
    assert page_cache.available_bytes(str(tmp_path / "meminfo")) == 7 * 1024
    assert page_cache.available_bytes(str(tmp_path / "none")) is None
