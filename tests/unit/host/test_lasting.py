# SPDX-License-Identifier: Apache-2.0
"""The files that outlast a reboot, and the values of sysctls as the kernel spells them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.host import lasting, values
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.sysctls import SYSCTLS, port_list

MEMORY = "/opt/pdlab/state/host.json"
THP, SWAPPINESS = values.THP, "/proc/sys/vm/swappiness"


def test_each_kind_of_value_goes_to_the_place_that_is_made_for_it() -> None:
    settings = {SWAPPINESS: "1", THP: "never", values.SHM: "4096", values.SWAP: "off", "gpu GPU-1": "off"}
    files = lasting.boot_files(settings, MEMORY)
    assert str(files[lasting.SYSCTL]).splitlines()[2:] == ["vm.swappiness = 1"]
    assert str(files[lasting.TMPFILES]).splitlines()[2:] == [f"w {THP} - - - - never"]
    commands = [line for line in str(files[lasting.UNIT]).splitlines() if line.startswith("ExecStart")]
    assert commands == [
        "ExecStart=-systemd-tmpfiles --create /etc/tmpfiles.d/pdlab.conf",
        "ExecStart=-mount -o remount,size=4096 /dev/shm",
        "ExecStart=-nvidia-smi -i GPU-1 -pm 0",
        "ExecStart=-swapoff -a",
    ]


def test_a_file_that_nothing_needs_is_not_written() -> None:
    assert lasting.boot_files({SWAPPINESS: "1"}, MEMORY)[lasting.UNIT] is None
    assert set(lasting.boot_files({}, MEMORY).values()) == {None}


def test_every_file_says_whose_it_is_and_another_file_does_not() -> None:
    texts = [lasting.limits_text({"nofile": 9}, MEMORY), *lasting.boot_files({THP: "never"}, MEMORY).values()]
    assert [lasting.memory_of(text) for text in texts] == [MEMORY, None, MEMORY, MEMORY]
    assert lasting.memory_of("# The sysctls of this box\n") is None


def test_limits_of_all_are_those_of_root_too_and_memlock_is_in_kib() -> None:
    lines = lasting.limits_text({"user": "*", "memlock_gib": "2", "nofile": 9}, MEMORY).splitlines()[2:]
    assert lines == ["* - memlock 2097152", "* hard nofile 9", "root - memlock 2097152", "root hard nofile 9"]
    assert lasting.limits_text({"user": "@gpu", "memlock_gib": "unlimited"}, MEMORY).splitlines()[2:] == [
        "@gpu - memlock unlimited"
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / lasting.UNIT_NAME
    unit.write_text(
        str(lasting.boot_files({THP: "never", values.SHM: "4096", values.SWAP: "off"}, MEMORY)[lasting.UNIT])
    )
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert not [line for line in done.stderr.splitlines() if lasting.UNIT_NAME in line]


@pytest.mark.parametrize(
    ("written", "kernel"),
    [("8998,8000", "8000,8998"), ("30001, 30000", "30000-30001"), (8000, "8000"), ("1-3,2-9,11", "1-9,11")],
)
def test_ports_are_spelt_as_the_kernel_will_spell_them(written: object, kernel: str) -> None:
    assert port_list(written) == kernel


@pytest.mark.parametrize("written", ["", "x", "5-", "9-3", "0", "70000", "1,,2"])
def test_what_is_no_list_of_ports_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="ports and ranges"):
        port_list(written)


def test_every_sysctl_has_a_reason_and_an_example_that_it_takes() -> None:
    for name, sysctl in SYSCTLS.items():
        assert sysctl.canonical(sysctl.example) == sysctl.example, name
        assert sysctl.why
