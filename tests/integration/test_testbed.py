# SPDX-License-Identifier: Apache-2.0
"""The test hosts leave nothing behind, whatever becomes of the test that made them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from ..testbed.bed import TESTBED_SH, NoBedError, hosts
from ..testbed.skipping import skipping_without_a_bed

BED = f"x{os.getpid()}"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A bed of a name of its own; gone afterwards."""
    own = {**os.environ, "PDLAB_TESTBED": BED}
    yield own
    if os.geteuid() == 0:
        subprocess.run([TESTBED_SH, "down"], env=own, check=False, timeout=60)


def up(environment: dict[str, str]) -> None:
    done = subprocess.run([TESTBED_SH, "up", "1"], env=environment, capture_output=True, text=True, check=False)
    with skipping_without_a_bed():
        if done.returncode != 0:
            raise NoBedError(done.stderr)


def leftovers(environment: dict[str, str]) -> str:
    done = subprocess.run([TESTBED_SH, "leftovers"], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_bed_goes_down_by_itself_when_its_owner_is_killed(environment: dict[str, str]) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    try:
        up({**environment, "PDLAB_TESTBED_OWNER": str(owner.pid)})
        assert leftovers(environment) != ""
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    deadline = time.monotonic() + 30
    while leftovers(environment):
        assert time.monotonic() < deadline, leftovers(environment)
        time.sleep(0.2)


def test_a_bed_whose_files_are_lost_is_found_by_its_name_and_removed(environment: dict[str, str]) -> None:
    up(environment)
    subprocess.run(["umount", "--lazy", f"/run/{BED}-testbed"], check=True)
    os.rmdir(f"/run/{BED}-testbed")
    assert f"{BED}-host1" in leftovers(environment)
    subprocess.run([TESTBED_SH, "down"], env=environment, check=True, timeout=60)
    assert leftovers(environment) == ""


def test_a_second_bed_of_the_same_name_is_refused_and_the_first_lives_on(environment: dict[str, str]) -> None:
    up(environment)
    again = subprocess.run([TESTBED_SH, "up", "1"], env=environment, capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "is up already" in again.stderr
    there = subprocess.run(
        [TESTBED_SH, "run", "1", "echo here"], env=environment, capture_output=True, text=True, check=True
    )
    assert there.stdout == "here\n"


def test_hosts_see_each_other_a_made_up_numa_tree_and_none_of_this_machines_services() -> None:
    with skipping_without_a_bed(), hosts(2) as (first, second):
        assert first.run("systemctl is-system-running") == "running\n"
        assert "available: 2 nodes (0-1)" in first.run("numactl --hardware")
        assert (
            first.run(
                f"python3 -c 'import socket; print(len(socket.create_connection((\"{second.address}\", 22)).recv(3)))'"
            )
            == "3\n"
        )
        assert first.run("ls -A /root") == ".ssh\n"
