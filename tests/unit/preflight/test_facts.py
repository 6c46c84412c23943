# SPDX-License-Identifier: Apache-2.0
"""Readers of facts: what they make of a machine, and of what is not there."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import (
    cpu,
    disk,
    gpu,
    limits,
    memory,
    ports,
    system,
    tools,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source
from ansible_collections.pdlab.pdlab.plugins.modules.box_facts import read_facts

ASKED: dict[str, Any] = {
    "ports": [],
    "paths": [],
    "root": None,
    "numa_nodes": [0],
    "pythons": [],
    "checkpoint": None,
    "timeout_s": 10.0,
}


class Files(Source):
    """A machine that has these files and nothing else."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(path + "/") for name in self.files)

    def names(self, path: str) -> list[str]:
        below = [name[len(path) + 1 :] for name in self.files if name.startswith(path + "/")]
        return sorted({name.split("/")[0] for name in below})

    def which(self, name: str) -> str | None:
        return None

    def file_system(self, path: str) -> dict[str, int | bool] | None:
        return None


@pytest.fixture
def listening() -> Any:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_the_whole_of_this_machine_is_read_with_nothing_but_json_in_it(tmp_path: Path) -> None:
    import json

    facts = read_facts(Source(), {**ASKED, "paths": [str(tmp_path)], "root": str(tmp_path)})
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]["count"] >= facts["cpu"]["usable"] >= 1
    assert facts["memory"]["total_bytes"] > facts["memory"]["available_bytes"] > 0
    assert facts["root"] is (os.geteuid() == 0)


def test_a_machine_of_which_nothing_can_be_read_is_unknown_not_fine() -> None:
    source = Files({})
    facts = read_facts(source, ASKED)
    assert facts["numa"] is None
    assert facts["shm"] is None
    assert facts["memory"]["available_bytes"] is None
    assert facts["distribution"] is None
    assert facts["cpu"]["flags"] is None
    assert facts["container"] is None
    assert facts["pythons"] == []
    assert facts["gpu"]["gpus"] is None
    assert facts["gpu"]["error"] == "nvidia-smi is not installed"
    assert facts["limits"]["services"] is None


def test_the_owner_of_a_port_is_named_with_pid_and_command(listening: int) -> None:
    (found,) = ports.read_ports(Source(), [listening], None)
    assert (found["port"], found["address"], found["pid"]) == (listening, "127.0.0.1", os.getpid())
    assert "python" in found["command"]
    assert found["own"] is False


def test_a_process_that_runs_from_below_the_root_is_pdlabs_own() -> None:
    serve = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin and child.stdout
        port = int(child.stdout.readline())
        (found,) = ports.read_ports(Source(), [port], str(Path(sys.executable).parent))
        child.stdin.close()
    assert found["own"] is True


def test_a_systemd_unit_of_pdlab_is_its_own_whatever_its_title() -> None:
    pid = os.getpid()
    assert ports.is_own(Files({f"/proc/{pid}/cgroup": "0::/system.slice/pdlab-router.service"}), pid, "/nowhere")
    assert not ports.is_own(Files({f"/proc/{pid}/cgroup": "0::/system.slice/nginx.service"}), pid, "/nowhere")


def test_a_path_that_does_not_exist_is_judged_by_the_directory_above_it(tmp_path: Path) -> None:
    found = disk.read_path(Source(), str(tmp_path / "a" / "b"))
    assert (found["exists"], found["at"], found["writable"]) == (False, str(tmp_path), True)
    assert found["free_bytes"] > 0


def test_a_directory_on_a_read_only_file_system_is_not_writable(tmp_path: Path) -> None:
    class ReadOnly(Source):
        def file_system(self, path: str) -> dict[str, int | bool] | None:
            return {"total_bytes": 1, "free_bytes": 1, "noexec": False, "read_only": True}

    assert disk.read_path(ReadOnly(), str(tmp_path / "a"))["writable"] is False


def test_numa_nodes_are_read_with_their_cpus_and_memory() -> None:
    nodes = cpu.read_nodes(
        Files(
            {
                "/sys/devices/system/node/node0/cpulist": "0-2,8",
                "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  2048 kB\nNode 0 MemFree:  1024 kB",
                "/sys/devices/system/node/node10/cpulist": "",
                "/sys/devices/system/node/node2/cpulist": "3",
                "/sys/devices/system/node/possible": "0-10",
            }
        )
    )
    assert nodes is not None
    assert [node["node"] for node in nodes] == [0, 2, 10]
    assert nodes[0] == {"node": 0, "cpus": [0, 1, 2, 8], "memory_total_bytes": 2097152, "memory_free_bytes": 1048576}
    assert nodes[2]["cpus"] == []
    assert nodes[2]["memory_total_bytes"] is None


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"/proc/self/cgroup": "0::/a", "/sys/fs/cgroup/a/memory.max": "1048576"}, 1048576),
        ({"/proc/self/cgroup": "0::/a", "/sys/fs/cgroup/a/memory.max": "max"}, None),
        (
            {"/proc/self/cgroup": "9:memory:/", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"},
            None,
        ),
        ({"/proc/self/cgroup": "9:memory:/x", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4096"}, 4096),
        ({}, None),
    ],
)
def test_a_cgroups_memory_limit_is_found_in_both_versions(files: dict[str, str], limit: int | None) -> None:
    assert memory.cgroup_limit(Files(files)) == limit


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/run/systemd/container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"/.dockerenv": ""}, "docker"),
        ({"/proc/1/cgroup": "0::/kubepods/burstable/pod1"}, "kubepods"),
        ({"/proc/1/cgroup": "0::/init.scope"}, "none"),
        ({}, None),
    ],
)
def test_a_container_is_told_from_a_machine(files: dict[str, str], kind: str | None) -> None:
    assert system.read_container(Files(files)) == kind


def test_gpus_and_their_processes_are_read_from_nvidia_smis_csv() -> None:
    # The lines are those of a driver 580 on an H200; names may hold commas in quotes.
    processes = gpu.parse_processes("GPU-a, 490, /opt/torch/bin/python3, 4614\nGPU-a, 7, [Not Found], [N/A]\n")
    gpus, driver = gpu.parse_gpus(
        "1, NVIDIA H200, GPU-b, 00000000:81:00.0, 143771, 0, 580.159.04\n"
        "0, NVIDIA H200, GPU-a, 00000000:06:00.0, 143771, 4623, 580.159.04\n",
        processes,
    )
    assert driver == "580.159.04"
    assert [(entry["index"], entry["pci"], entry["memory_used_mib"]) for entry in gpus] == [
        (0, "0000:06:00.0", 4623),
        (1, "0000:81:00.0", 0),
    ]
    assert gpus[0]["processes"][0] == {"pid": 490, "command": "/opt/torch/bin/python3", "memory_mib": 4614}
    assert gpus[0]["processes"][1]["memory_mib"] is None
    assert gpus[1]["processes"] == []


def program(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_driver_that_does_not_answer_is_an_error_within_the_time_limit(tmp_path: Path) -> None:
    source = Source()
    slow = program(tmp_path / "nvidia-smi", "sleep 30")
    began = time.monotonic()
    facts = gpu.read_gpus(source, (source.command([slow]), source.command([slow])), 0.2, lambda pid: False)
    assert time.monotonic() - began < 5
    assert facts["gpus"] is None
    assert "no answer in 0.2 s" in facts["error"]


def test_a_driver_that_fails_says_why(tmp_path: Path) -> None:
    source = Source()
    broken = program(
        tmp_path / "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    )
    facts = gpu.read_gpus(source, (source.command([broken]), source.command([broken])), 5, lambda pid: False)
    assert facts["error"] == "Failed to initialize NVML: Driver/library version mismatch"


def test_nvidia_cards_on_the_bus_are_seen_without_a_driver() -> None:
    card = "/sys/bus/pci/devices/0000:01:00"
    source = Files(
        {
            f"{card}.0/vendor": "0x10de",
            f"{card}.0/class": "0x030200",
            f"{card}.1/vendor": "0x10de",
            f"{card}.1/class": "0x040300",
            "/sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086",
            "/sys/bus/pci/devices/0000:02:00.0/class": "0x030000",
        }
    )
    assert gpu.pci_gpus(source) == ["0000:01:00.0"]


def test_an_interpreter_that_is_named_is_looked_at_first_and_each_file_once() -> None:
    source = Source()
    found = tools.read_pythons(tools.start_pythons(source, [sys.executable, os.path.realpath(sys.executable)]), 10)
    assert found[0]["path"] == sys.executable
    assert found[0]["version"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert len([entry for entry in found if os.path.realpath(entry["path"]) == os.path.realpath(sys.executable)]) == 1


def test_an_interpreter_that_does_not_answer_is_left_out_unless_it_was_asked_for(tmp_path: Path) -> None:
    shim = program(tmp_path / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    source = Source()
    assert tools.read_pythons({shim: source.command([shim])}, 10) == []
    missing = str(tmp_path / "nothing")
    found = tools.read_pythons({shim: source.command([shim])}, 10, [shim, missing])
    assert {entry["path"]: entry["version"] for entry in found} == {shim: None, missing: None}


def test_numactl_says_in_one_line_why_a_node_is_refused(tmp_path: Path) -> None:
    refusing = program(
        tmp_path / "numactl", "echo 'libnuma: Warning: node 1 is out of range\nusage: numactl' >&2; exit 1"
    )
    source = Source()
    answer = cpu.read_bindings(source, {1: source.command([refusing])}, 5)["nodes"]["1"]
    assert answer == {"ok": False, "said": "libnuma: Warning: node 1 is out of range"}


def test_limits_are_numbers_or_the_word_unlimited() -> None:
    read = limits.read_limits()
    assert set(read) == {"memlock_bytes", "nofile"}
    for pair in read.values():
        assert all(value == "unlimited" or isinstance(value, int) for value in pair.values())


def test_the_limits_of_systemds_services_are_read_from_its_answer(tmp_path: Path) -> None:
    answer = program(tmp_path / "systemctl", "echo DefaultLimitMEMLOCK=8388608; echo DefaultLimitNOFILE=infinity")
    source = Source()
    assert limits.read_service_limits(source.command([answer]), 5) == {"memlock_bytes": 8388608, "nofile": "unlimited"}
    assert limits.read_service_limits(None, 5) is None


def test_a_distribution_is_named_by_os_release() -> None:
    source = Files({"/etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'})
    assert system.read_distribution(source) == {
        "id": "debian",
        "version": "12",
        "name": "Debian GNU/Linux 12 (bookworm)",
    }
