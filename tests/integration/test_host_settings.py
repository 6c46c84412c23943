# SPDX-License-Identifier: Apache-2.0
"""The module host_settings on a host with a real systemd, PAM and tmpfs, run by a real Ansible over ssh.

The host is a container: its /proc/sys and /sys are read-only, so kernel settings are seen to be left out there, and
limits, /dev/shm and packages to be made, kept over a reboot, and undone.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Answer, Host, Target

FILES = (
    "/etc/security/limits.d/pdlab.conf /etc/sysctl.d/pdlab.conf /etc/tmpfiles.d/pdlab.conf "
    "/etc/systemd/system/pdlab-host.service /etc/systemd/system/multi-user.target.wants/pdlab-host.service"
)
SETTINGS: dict[str, Any] = {"shm_gib": 3, "limits": {"nofile": 3000}}
GIB = 1024**3


class HostUnderTest:
    """The host, and the module's ways to be called there."""

    def __init__(self, host: Host, target: Target) -> None:
        self.host, self.target = host, target

    def set(self, *flags: str, **settings: Any) -> Answer:
        return self.target.run("pdlab.pdlab.host_settings", {"root": "/srv/pdlab", "settings": settings}, *flags)

    def undo(self, *flags: str) -> Answer:
        return self.target.run("pdlab.pdlab.host_settings", {"root": "/srv/pdlab", "state": "restored"}, *flags)

    def shm_bytes(self) -> int:
        return int(self.host.run("df --output=size -B1 /dev/shm | tail -1"))

    def nofile(self) -> int:
        """The hard limit that a new login gets."""
        return int(self.host.run("ulimit -Hn"))

    def files(self) -> list[str]:
        return self.host.run(f"ls -d {FILES} 2>/dev/null || true").split()

    def state(self) -> tuple[int, int, list[str]]:
        return self.shm_bytes(), self.nofile(), self.files()

    def reboot(self) -> None:
        before = self.host.run("cat /proc/1/stat").split()[21]
        self.host.run("systemctl reboot", check=False)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.5)
            try:
                now = self.host.run("systemctl is-system-running --wait >/dev/null; cat /proc/1/stat", check=False)
            except subprocess.TimeoutExpired:
                continue
            if now and now.split()[21] != before:
                return
        raise AssertionError("the host did not come back within 60 s")


@pytest.fixture
def box(host: Host, systemd_target: Target) -> Iterator[HostUnderTest]:
    """The host, with nothing of these tests left there afterwards."""
    under_test = HostUnderTest(host, systemd_target)
    yield under_test
    under_test.undo()


def test_limits_and_dev_shm_are_made_outlast_a_reboot_and_are_put_back(box: HostUnderTest) -> None:
    before = box.state()
    assert before[0] < 3 * GIB
    said = box.set("--check", "--diff", **SETTINGS)
    assert said["changed"] is True
    assert "+root hard nofile 3000" in said["output"]
    assert box.state() == before, "check mode touches nothing"

    done = box.set(**SETTINGS)
    assert not done.failed, done.data
    assert done["changes"] == said["changes"]
    assert (box.shm_bytes(), box.nofile()) == (3 * GIB, 3000)
    assert box.set(**SETTINGS)["changed"] is False

    box.reboot()
    assert (box.shm_bytes(), box.nofile()) == (3 * GIB, 3000)
    assert box.host.run("systemctl show -p Result,ExecMainStatus --value pdlab-host.service").split() == [
        "success",
        "0",
    ]
    assert box.set(**SETTINGS)["changed"] is False

    undone = box.undo()
    assert (undone.failed, undone["left_alone"]) == (False, [])
    assert box.state() == before
    assert box.undo()["changed"] is False
    box.reboot()
    assert box.state() == before
    assert "pdlab-host" not in box.host.run("systemctl list-units --all --failed; systemctl list-unit-files")


def test_a_dev_shm_that_somebody_resized_since_is_left_alone(box: HostUnderTest) -> None:
    before = box.shm_bytes()
    box.set(shm_gib=3)
    box.host.run("mount -o remount,size=4g /dev/shm")
    (left,) = box.undo()["left_alone"]
    assert (left["set"], left["now"]) == ("3 GiB", "4 GiB")
    assert box.shm_bytes() == 4 * GIB
    assert box.files() == [], "it is not set at boot any more"
    box.host.run(f"mount -o remount,size={before} /dev/shm")
    assert len(box.undo()["already_back"]) == 1


def test_kernel_settings_of_a_container_are_explained_and_the_rest_is_done(box: HostUnderTest) -> None:
    now = box.host.run("cat /proc/sys/vm/swappiness /proc/sys/net/core/somaxconn").split()
    others = {"vm.swappiness": int(now[0]) + 1, "net.core.somaxconn": int(now[1]) + 1}
    answer = box.set(sysctl=others, limits={"nofile": 3000})
    assert not answer.failed, answer.data
    assert [skipped["setting"] for skipped in answer["skipped_settings"]] == [
        f"sysctl vm.swappiness: {now[0]} -> {int(now[0]) + 1}",
        f"sysctl net.core.somaxconn: {now[1]} -> {int(now[1]) + 1}",
    ]
    assert all("read-only here, as in a container" in skipped["why"] for skipped in answer["skipped_settings"])
    assert f"sysctl -w vm.swappiness={others['vm.swappiness']}" in answer["skipped_settings"][0]["cure"]
    assert box.files() == ["/etc/security/limits.d/pdlab.conf"]


def test_packages_that_are_there_ask_no_package_manager(box: HostUnderTest) -> None:
    arguments: dict[str, Any] = {"root": "/srv/pdlab", "commands": {"numactl": "numactl", "mount": "mount"}}
    answer = box.target.run("pdlab.pdlab.host_settings", arguments)
    assert (answer["changed"], answer["missing"]) == (False, [])
    assert answer["commands"]["mount"].endswith("bin/mount")
    arguments["commands"] = {"no-such-command": "no-such-package"}
    assert box.target.run("pdlab.pdlab.host_settings", arguments, "--check")["missing"] == ["no-such-package"]


def test_a_setting_of_a_real_kernel_is_made_and_put_back(supervisor_target: Target) -> None:
    """On this machine itself, since no container has a kernel of its own; a queue one longer harms nobody."""
    file = Path("/proc/sys/net/core/somaxconn")
    if not os.access(file, os.W_OK) or Path("/etc/sysctl.d/pdlab.conf").exists():
        pytest.skip("needs root over this machine's kernel, and no pdlab that has set it up")
    target, module, before = supervisor_target, "pdlab.pdlab.host_settings", file.read_text()
    other = str(int(before) + 1)
    arguments = {"root": target.root, "settings": {"sysctl": {"net.core.somaxconn": other}}}
    try:
        assert target.run(module, arguments)["changed"] is True
        assert file.read_text().strip() == other
        assert target.run(module, arguments)["changed"] is False
        (back,) = target.run(module, {"root": target.root, "state": "restored"}, "--check")["put_back"][-1:]
        assert (back["was"], back["now"]) == (before.strip(), other)
        assert file.read_text().strip() == other
    finally:
        undone = target.run(module, {"root": target.root, "state": "restored"})
    assert not undone.failed
    assert file.read_text() == before
    assert not Path("/etc/sysctl.d/pdlab.conf").exists()
