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
    engine,
    gpu,
    iommu,
    limits,
    memory,
    network,
    nvidia_smi,
    pci,
    ports,
    system,
    tools,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Said, Source


class Files(Source):
    """A machine that has these files and links and nothing else."""

    def __init__(self, files: dict[str, str], links: dict[str, str] | None = None) -> None:
        self.files = files
        self.links = links or {}

    def data(self, path: str) -> bytes | None:
        text = self.files.get(path)
        return None if text is None else text.encode("latin-1")

    def link(self, path: str) -> str | None:
        return self.links.get(path)

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(path + "/") for name in self.files)

    def names(self, path: str) -> list[str]:
        below = [name[len(path) + 1 :] for name in (*self.files, *self.links) if name.startswith(path + "/")]
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

    facts = read_facts(Source(), {"paths": [str(tmp_path)], "root": str(tmp_path)})
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]["count"] >= facts["cpu"]["usable"] >= 1
    assert facts["memory"]["total_bytes"] > facts["memory"]["available_bytes"] > 0
    assert facts["root"] is (os.geteuid() == 0)


def test_a_machine_of_which_nothing_can_be_read_is_unknown_not_fine() -> None:
    source = Files({})
    facts = read_facts(source, {})
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
    assert facts["kernel"]["command_line"] is None
    assert facts["cpu"]["governor"] is None
    assert facts["iommu"] == {"enabled": None, "mode": None, "groups": 0}
    assert facts["ephemeral_ports"] is None
    assert facts["memory"]["thp"] is facts["memory"]["numa_balancing"] is facts["memory"]["hugepages"] is None
    for key in ("driver", "cuda_version", "mps", "topology", "p2p", "nvlink"):
        assert facts["gpu"][key] is None, key
    assert facts["engine"] is None


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
                "/sys/devices/system/node/node0/distance": "10 32 32",
                "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "16",
                "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages": "8",
                "/sys/devices/system/node/node10/cpulist": "",
                "/sys/devices/system/node/node2/cpulist": "3",
                "/sys/devices/system/node/possible": "0-10",
            }
        )
    )
    assert nodes is not None
    assert [node["node"] for node in nodes] == [0, 2, 10]
    assert nodes[0] == {
        "node": 0,
        "cpus": [0, 1, 2, 8],
        "memory_total_bytes": 2097152,
        "memory_free_bytes": 1048576,
        "distances": [10, 32, 32],
        "hugepages": {"2048kB": {"total": 16, "free": 8}},
    }
    assert nodes[2]["distances"] is nodes[2]["hugepages"] is None
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


SMI = """WARNING: infoROM is corrupted at gpu 0000:06:00.0
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>580.95.05</driver_version>
	<cuda_version>13.0</cuda_version>
	<attached_gpus>2</attached_gpus>
	<gpu id="00000000:06:00.0">
		<product_name>NVIDIA H200</product_name>
		<persistence_mode>Enabled</persistence_mode>
		<mig_mode>
			<current_mig>N/A</current_mig>
		</mig_mode>
		<uuid>GPU-a</uuid>
		<pci>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>5</max_link_gen>
					<current_link_gen>1</current_link_gen>
					<max_device_link_gen>5</max_device_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>16x</max_link_width>
					<current_link_width>16x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
		</pci>
		<performance_state>P8</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
		</clocks_event_reasons>
		<fb_memory_usage>
			<total>143771 MiB</total>
			<used>4623 MiB</used>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>262144 MiB</total>
		</bar1_memory_usage>
		<compute_mode>Default</compute_mode>
		<ecc_mode>
			<current_ecc>Enabled</current_ecc>
		</ecc_mode>
		<temperature>
			<gpu_temp>32 C</gpu_temp>
		</temperature>
		<gpu_power_readings>
			<current_power_limit>600.00 W</current_power_limit>
			<default_power_limit>700.00 W</default_power_limit>
			<max_power_limit>700.00 W</max_power_limit>
		</gpu_power_readings>
		<clocks>
			<sm_clock>345 MHz</sm_clock>
			<mem_clock>3201 MHz</mem_clock>
		</clocks>
		<max_clocks>
			<sm_clock>1980 MHz</sm_clock>
			<mem_clock>3201 MHz</mem_clock>
		</max_clocks>
		<processes>
			<process_info>
				<pid>490</pid>
				<type>C</type>
				<process_name>/opt/torch/bin/python3</process_name>
				<used_memory>4614 MiB</used_memory>
			</process_info>
			<process_info>
				<pid>7</pid>
				<type>M+C</type>
				<process_name>[Not Found]</process_name>
				<used_memory>N/A</used_memory>
			</process_info>
			<process_info>
				<pid>8</pid>
				<type>G</type>
				<process_name>/usr/lib/xorg/Xorg</process_name>
				<used_memory>4 MiB</used_memory>
			</process_info>
		</processes>
	</gpu>
	<gpu id="00000000:81:00.0">
		<product_name>NVIDIA H200</product_name>
		<processes>N/A</processes>
	</gpu>
</nvidia_smi_log>
"""


def test_gpus_and_their_processes_are_read_from_nvidia_smis_xml() -> None:
    answer = nvidia_smi.parse_query(SMI)
    assert (answer["driver"], answer["cuda_version"]) == ("580.95.05", "13.0")
    first, second = answer["gpus"]
    assert first["processes"] == [
        {"pid": 490, "command": "/opt/torch/bin/python3", "memory_mib": 4614, "type": "C"},
        {"pid": 7, "command": "[Not Found]", "memory_mib": None, "type": "M+C"},
    ]
    wanted = {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-a",
        "pci": "0000:06:00.0",
        "memory_total_mib": 143771,
        "memory_used_mib": 4623,
        "persistence": True,
        "performance_state": "P8",
        "power_limit_w": 600.0,
        "power_default_w": 700.0,
        "power_max_w": 700.0,
        "ecc": True,
        "mig": None,
        "compute_mode": "Default",
        "clocks_mhz": {"sm": 345, "sm_max": 1980, "memory": 3201, "memory_max": 3201},
        "throttle_reasons": ["gpu_idle"],
        "temperature_c": 32,
        "bar1_total_mib": 262144,
        "pcie": {"generation": 1, "generation_max": 5, "device_generation_max": 5, "width": 16, "width_max": 16},
    }
    assert {key: first[key] for key in wanted} == wanted
    assert set(first) == {*wanted, "processes"}
    unknown = {key for key, value in second.items() if value is None}
    assert unknown == set(first) - {"index", "name", "pci", "clocks_mhz", "pcie"}
    assert set(second["pcie"].values()) | set(second["clocks_mhz"].values()) == {None}


def test_the_matrices_of_nvidia_smi_are_read_with_their_underlined_headers_and_nics() -> None:
    # The lines are those of a driver 580 on two H200s, and of one with a network card beside.
    topology = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \tSYS\t0-31\t0\t\tN/A\nNIC0\tPIX\tSYS\t X \n"
        "\nLegend:\n\n  X    = Self\n"
    )
    assert nvidia_smi.parse_matrix(topology) == {"0-1": "NV18", "1-0": "NV18"}
    p2p = " \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tCNS\t\n GPU1\tOK\tX\t\n\nLegend:\n"
    assert nvidia_smi.parse_matrix(p2p) == {"0-1": "CNS", "1-0": "OK"}
    assert nvidia_smi.parse_matrix("\t\x1b[4mGPU0\tCPU Affinity\x1b[0m\nGPU0\t X \t0-31\n") == {}
    assert nvidia_smi.parse_matrix("Failed to get topology") is None


def test_a_compute_capability_belongs_to_its_pci_address() -> None:
    text = "00000000:06:00.0, 9.0\n00000000:C1:00.0, 12.0\n00000000:C2:00.0, [N/A]\n"
    assert nvidia_smi.parse_capabilities(text) == {"0000:06:00.0": "9.0", "0000:c1:00.0": "12.0"}


def config(acs_control: int | None) -> str:
    """A configuration space with two extended capabilities, the second of which is ACS, or some other one."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    space[0x148:0x14C] = ((0x0019 if acs_control is None else 0x000D) | 1 << 16).to_bytes(4, "little")
    space[0x14E:0x150] = (acs_control or 0).to_bytes(2, "little")
    return space.decode("latin-1")


ROOT_PORT, SWITCH, CARD = "0000:40:01.1", "0000:42:00.0", "0000:43:00.0"


def card_below(files: dict[str, str]) -> Files:
    """One GPU below a switch, with these files below /sys/bus/pci/devices."""
    return Files(
        {f"{pci.DEVICES}/{path}": text for path, text in files.items()},
        {f"{pci.DEVICES}/{CARD}": f"../../../devices/pci0000:40/{ROOT_PORT}/0000:41:00.0/{SWITCH}/{CARD}"},
    )


def test_redirects_are_read_from_every_bridge_above_a_gpu() -> None:
    source = card_below({f"{ROOT_PORT}/config": config(0b0011101), "0000:41:00.0/config": config(None)})
    bridges = gpu.read_bridges(source, [CARD])
    assert list(bridges) == [ROOT_PORT, "0000:41:00.0", SWITCH]
    acs = bridges[ROOT_PORT]["acs"]
    assert [name for name, on in acs.items() if on] == [
        "source_validation",
        "request_redirect",
        "completion_redirect",
        "upstream_forwarding",
    ]
    assert bridges["0000:41:00.0"] == {"acs": None, "acs_readable": True}
    assert bridges[SWITCH] == {"acs": None, "acs_readable": False}


@pytest.mark.parametrize("length", [0, 64, 256])
def test_a_configuration_space_of_which_only_the_start_is_shown_says_nothing_of_redirects(length: int) -> None:
    source = card_below({f"{SWITCH}/config": config(0xFF)[:length]})
    assert gpu.read_bridges(source, [CARD])[SWITCH] == {"acs": None, "acs_readable": False}


@pytest.mark.parametrize("garbage", ["\xff" * 4096, "\0" * 4096, "\0" * 256 + "\x01\x00\x01\x10" + "\0" * 3836])
def test_a_configuration_space_without_capabilities_or_with_a_loop_of_them_ends(garbage: str) -> None:
    assert pci.read_acs(garbage.encode("latin-1")) is None


def gpu_of(source: Source, xml: str = SMI) -> dict[str, Any]:
    said = Said(0, xml, "")
    started: Any = {name: Answered(said if name == "query" else Said(1, "", "")) for name in SMI_QUESTIONS}
    found: dict[str, Any] = gpu.read_gpus(source, [], started, lambda: 1.0, lambda pid: pid == 490)
    return found


SMI_QUESTIONS = ("query", "capability", "topology", "read", "write")


class Answered:
    def __init__(self, said: Said) -> None:
        self.said = said

    def result(self, timeout_s: float) -> Said:
        return self.said


def test_a_link_can_be_no_faster_than_the_slot_above_it() -> None:
    xml = SMI.replace("00000000:06:00.0", f"0000{CARD}")
    source = card_below(
        {
            f"{CARD}/numa_node": "-1",
            f"{CARD}/max_link_speed": "32.0 GT/s PCIe",
            f"{CARD}/max_link_width": "16",
            f"{SWITCH}/max_link_speed": "16.0 GT/s PCIe",
            f"{SWITCH}/max_link_width": "8",
        }
    )
    source.links[f"{pci.DEVICES}/{CARD}/iommu_group"] = "../../../../kernel/iommu_groups/57"
    found = gpu_of(source, xml)["gpus"][0]
    assert found["pcie"] == {
        "generation": 1,
        "generation_max": 4,
        "device_generation_max": 5,
        "width": 16,
        "width_max": 8,
    }
    assert found["numa_node"] == -1
    assert found["iommu_group"] == 57
    assert found["bridges"] == [ROOT_PORT, "0000:41:00.0", SWITCH]
    assert [process["own"] for process in found["processes"]] == [True, False]


def test_what_nvidia_smi_does_not_answer_is_unknown_and_the_rest_stays() -> None:
    found = gpu_of(Files({}))
    assert found["driver"] == "580.95.05"
    assert found["topology"] is found["p2p"] is found["nvlink"] is None
    assert found["gpus"][0]["compute_capability"] is found["gpus"][0]["bridges"] is None


def test_mps_is_unknown_where_the_hosts_processes_are_not_seen() -> None:
    plain = SMI.replace("M+C", "C")
    assert gpu_of(Files({}))["mps"] is True, "a client of it is listed"
    assert gpu_of(Files({}), plain)["mps"] is None
    container = {"/proc/1/comm": "bash"}
    assert gpu_of(Files(container), plain)["mps"] is None
    host = {"/proc/1/comm": "systemd", "/proc/2/comm": "kthreadd"}
    assert gpu_of(Files(host), plain)["mps"] is False
    assert gpu_of(Files({**host, "/proc/99/comm": "nvidia-cuda-mps"}), plain)["mps"] is True


GROUP = "/sys/kernel/iommu_groups"


@pytest.mark.parametrize(
    ("types", "command_line", "enabled", "mode"),
    [
        ({"0": "identity", "57": "identity"}, "", True, "passthrough"),
        ({"0": "DMA", "57": "identity"}, "", True, "passthrough"),
        ({"0": "identity", "57": "DMA-FQ"}, "", True, "translated"),
        ({"0": "", "57": ""}, "ro iommu=pt", True, "passthrough"),
        ({"0": "", "57": ""}, "ro", True, None),
    ],
)
def test_the_iommus_mode_is_that_of_the_gpus_groups(
    types: dict[str, str], command_line: str, enabled: bool, mode: str | None
) -> None:
    source = Files({f"{GROUP}/{name}/type": kind for name, kind in types.items()})
    source.files["/proc/cmdline"] = command_line
    source.links[f"{pci.DEVICES}/{CARD}/iommu_group"] = "../../../../kernel/iommu_groups/57"
    assert iommu.read_iommu(source, [CARD]) == {"enabled": enabled, "mode": mode, "groups": 2}


def test_no_iommu_group_means_off_only_where_the_kernel_would_show_them() -> None:
    assert iommu.read_iommu(Files({f"{GROUP}/none": ""}), []) == {"enabled": False, "mode": "off", "groups": 0}


def test_network_cards_are_the_interfaces_of_pci_devices() -> None:
    net = "/sys/class/net"
    source = Files(
        {
            f"{net}/lo/mtu": "65536",
            f"{net}/docker0/mtu": "1500",
            f"{net}/ens3f0/mtu": "9000",
            f"{net}/ens3f0/speed": "100000",
            f"{net}/ens3f0/operstate": "up",
            f"{net}/ens3f0/device/infiniband/mlx5_0": "",
            f"{net}/ens4/speed": "-1",
            f"{net}/ens4/operstate": "down",
            f"{pci.DEVICES}/0000:81:00.0/numa_node": "1",
        },
        {
            f"{net}/docker0": "../../devices/virtual/net/docker0",
            f"{net}/ens3f0": "../../devices/pci0000:80/0000:80:01.1/0000:81:00.0/net/ens3f0",
            f"{net}/ens3f0/device/driver": "../../../../bus/pci/drivers/mlx5_core",
            f"{net}/ens4": "../../devices/pci0000:00/0000:00:03.0/virtio0/net/ens4",
        },
    )
    assert network.read_nics(source) == [
        {
            "name": "ens3f0",
            "pci": "0000:81:00.0",
            "numa_node": 1,
            "driver": "mlx5_core",
            "speed_mbps": 100000,
            "mtu": 9000,
            "up": True,
            "rdma": "mlx5_0",
        },
        {
            "name": "ens4",
            "pci": "0000:00:03.0",
            "numa_node": None,
            "driver": None,
            "speed_mbps": None,
            "mtu": None,
            "up": False,
            "rdma": None,
        },
    ]


def test_governors_are_counted_by_the_cpus_that_they_rule() -> None:
    policy = "/sys/devices/system/cpu/cpufreq/policy"
    files = {
        f"{policy}0/scaling_governor": "performance",
        f"{policy}0/affected_cpus": "0 1 2",
        f"{policy}3/scaling_governor": "powersave",
    }
    assert cpu.read_governors(Files(files)) == {"performance": 3, "powersave": 1}


def test_an_engine_is_read_from_its_files_alone() -> None:
    packages = "/opt/pdlab/engine/lib/python3.12/site-packages"
    files = {
        "/opt/pdlab/engine/bin/python": "",
        "/opt/pdlab/engine/pyvenv.cfg": "home = /usr/bin\nversion_info = 3.12.3",
        f"{packages}/sglang-0.5.23.dist-info/METADATA": "",
        f"{packages}/sglang_router-0.3.2.dist-info/METADATA": "",
        f"{packages}/torch-2.11.0.dist-info/METADATA": "",
        f"{packages}/torch/version.py": "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip = None",
        f"{packages}/nixl-1.5.1.dist-info/METADATA": "",
        f"{packages}/nixl_cu13-1.5.1.dist-info/METADATA": "",
        f"{packages}/nixl_cu13.libs/ucx/libuct_cma.so.0.0.0": "",
    }
    wanted = {
        "python": "3.12.3",
        "sglang": "0.5.23",
        "torch": "2.11.0",
        "nixl": "1.5.1",
        "cuda_build": "cu130",
        "ucx_cuda": False,
    }
    python = "/opt/pdlab/engine/bin/python"
    assert engine.read_engine(Files(files), python) == wanted
    files[f"{packages}/nixl_cu13.libs/ucx/libuct_cuda.so.0.0.0"] = ""
    files[f"{packages}/torch/version.py"] = "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n"
    assert engine.read_engine(Files(files), python) == {**wanted, "ucx_cuda": True, "cuda_build": None}
    assert engine.read_engine(Files({}), python) is None


def test_an_engine_that_somebody_else_made_is_read_from_its_folders_the_first_one_wins() -> None:
    files = {
        "/usr/bin/python3": "",
        "/usr/lib/python3.12/os.py": "",
        "/usr/local/lib/python3.12/dist-packages/torch-2.11.0.dist-info/METADATA": "",
        "/usr/local/lib/python3.12/dist-packages/torch/version.py": "cuda: Optional[str] = '13.0'",
        "/usr/local/lib/python3.12/dist-packages/sglang-0.5.10.dist-info/METADATA": "",
        "/srv/site/sglang-0.5.17.dist-info/METADATA": "",
        "/srv/site/nixl_cu13-1.5.1.dist-info/METADATA": "",
        "/srv/site/nixl_cu13.libs/ucx/libuct_cuda.so.0.0.0": "",
    }
    found = engine.read_engine(Files(files), "/usr/bin/python3", ["/srv/site"])
    assert found == {
        "python": "3.12",
        "sglang": "0.5.17",
        "torch": "2.11.0",
        "nixl": "1.5.1",
        "cuda_build": "cu130",
        "ucx_cuda": True,
    }


def program(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_driver_that_does_not_answer_is_an_error_within_the_time_limit(tmp_path: Path) -> None:
    source = Source()
    slow = program(tmp_path / "nvidia-smi", "sleep 30")
    began = time.monotonic()
    facts = gpu.read_gpus(source, [], {"query": source.command([slow])}, lambda: 0.2, lambda pid: False)
    assert time.monotonic() - began < 5
    assert facts["gpus"] is None
    assert "no answer in 0.2 s" in facts["error"]


def test_a_driver_that_fails_says_why(tmp_path: Path) -> None:
    source = Source()
    broken = program(
        tmp_path / "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    )
    facts = gpu.read_gpus(source, [], {"query": source.command([broken])}, lambda: 5.0, lambda pid: False)
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
    read = Source().limits()
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
