# SPDX-License-Identifier: Apache-2.0
"""Boxes that nobody recorded: written from data sheets, the kernel's and the driver's documentation.

    .venv/bin/python tests/boxes/from_documentation.py

writes their trees beside this file. The layout of nvidia-smi's output is that of drivers 570 to 580; what no document
gives (clocks of an idle card, free memory, process numbers) is plausible and nothing more.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1] / ".collections"))

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import recording  # noqa: E402 - the path first

GIB = 1024**3
PCI = "/sys/bus/pci/devices"
SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}


class Box:
    """The parts of a recording, and a few things that every box has."""

    def __init__(self, name: str, what: str, sources: str) -> None:
        self.name = name
        self.about = {"what": what, "kind": "documented", "from": sources}
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.said: list[tuple[list[str], str, str, int]] = []
        self.answers: dict[str, Any] = {**recording.ANSWERS, "clock_synchronised": True}

    def device(self, address: str, above: list[str], numa_node: int, kind: str, vendor: str, group: int | None) -> None:
        """A device on the PCI bus, below the bridges `above`."""
        path = "/".join([*above, address])
        self.links[f"{PCI}/{address}"] = f"../../../devices/pci{path[:7]}/{path}"
        self.files.update(
            {f"{PCI}/{address}/{name}": text for name, text in {"class": kind, "numa_node": str(numa_node)}.items()}
        )
        if vendor == "0x10de":
            self.files[f"{PCI}/{address}/vendor"] = vendor
        if group is not None:
            self.links[f"{PCI}/{address}/iommu_group"] = f"../../../../kernel/iommu_groups/{group}"

    def pcie_link(self, address: str, now: tuple[int, int], most: tuple[int, int]) -> None:
        """(generation, lanes) of a link."""
        for word, (generation, lanes) in {"current": now, "max": most}.items():
            self.files[f"{PCI}/{address}/{word}_link_speed"] = f"{SPEEDS[generation]} GT/s PCIe"
            self.files[f"{PCI}/{address}/{word}_link_width"] = str(lanes)

    def node(self, number: int, cpus: str, total: int, free: int, distances: str) -> None:
        """A NUMA node; sizes in bytes."""
        base = f"/sys/devices/system/node/node{number}"
        self.files[f"{base}/cpulist"] = cpus
        self.files[f"{base}/distance"] = distances
        self.files[f"{base}/meminfo"] = (
            f"Node {number} MemTotal: {total // 1024} kB\nNode {number} MemFree: {free // 1024} kB"
        )
        self.huge_pages(f"{base}/hugepages")

    def huge_pages(self, folder: str) -> None:
        """None reserved."""
        for size in ("2048kB", "1048576kB"):
            for kind in ("nr", "free"):
                self.files[f"{folder}/hugepages-{size}/{kind}_hugepages"] = "0"

    def command(self, words: str, stdout: str = "", stderr: str = "", rc: int = 0) -> None:
        self.said.append((words.split(), stdout, stderr, rc))

    def numactl(self, nodes: int) -> None:
        """Every node can be bound, and one more cannot."""
        for node in range(nodes):
            self.command(f"/usr/bin/numactl --cpunodebind={node} --membind={node} true")
        self.command(
            f"/usr/bin/numactl --cpunodebind={nodes} --membind={nodes} true",
            stderr=f"libnuma: Warning: node argument {nodes} is out of range\n\nusage: numactl\n",
            rc=1,
        )

    def python(self, path: str, version: str, headers: bool = True) -> None:
        """An interpreter, and whether its C headers are there."""
        self.answers["programs"] = {**self.answers["programs"], path: path, "python3": path}
        self.answers["compiled"] = [*self.answers["compiled"], path]
        self.command(f"{path} -I -S -c", json.dumps({"version": version, "headers": headers}) + "\n")

    def disk(self, path: str, total: int, free: int, writable: bool = True) -> None:
        """A directory with a file system of its own."""
        self.answers["directories"] = {**self.answers["directories"], path: {"writable": writable}}
        self.answers["file_systems"] = {
            **self.answers["file_systems"],
            path: {"total_bytes": total, "free_bytes": free, "noexec": False, "read_only": False},
        }

    def directories(self, *paths: str, writable: bool = True) -> None:
        more = {path: {"writable": writable} for path in paths}
        self.answers["directories"] = {**self.answers["directories"], **more}

    def tree(self) -> dict[str, str]:
        """{path in the recording: text}."""
        found = {f"{recording.ROOT}{path}": text.rstrip("\n") + "\n" for path, text in sorted(self.files.items())}
        index = []
        for argv, stdout, stderr, rc in self.said:
            name = "-".join(word.strip("-").replace("/", "") for word in [Path(argv[0]).name, *argv[1:]])
            entry: dict[str, Any] = {"argv": argv, "rc": rc, "stdout": None, "stderr": None}
            for stream, text in (("stdout", stdout), ("stderr", stderr)):
                if text:
                    entry[stream] = f"{name}.{stream[3:]}"
                    found[f"{recording.COMMANDS}/{entry[stream]}"] = text
            index.append(entry)
        documents = {recording.INDEX: index, recording.LINKS: self.links, recording.ANSWERS_FILE: self.answers}
        found.update({name: json.dumps(document, indent=1) + "\n" for name, document in documents.items()})
        found[recording.BOX] = recording.about_yaml(self.about)
        return found


def configuration_space(device_id: int, acs_control: int | None) -> str:
    """A PCI Express bridge's 4096 bytes: advanced error reporting, and ACS with this control register."""
    space = bytearray(4096)
    space[0:4] = (0x1000 | device_id << 16).to_bytes(4, "little")
    space[0x0E] = 1  # header type 1: a bridge
    following = 0 if acs_control is None else 0x148
    space[0x100:0x104] = (0x0001 | 2 << 16 | following << 20).to_bytes(4, "little")
    if acs_control is not None:
        space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x14C:0x14E] = (0x5F).to_bytes(2, "little")  # all but egress control can be switched on
        space[0x14E:0x150] = acs_control.to_bytes(2, "little")
    return recording.to_hex(bytes(space))


def smi_xml(driver: str, cuda: str, gpus: list[dict[str, Any]]) -> str:
    """`nvidia-smi -q -x`, in the parts that matter."""
    body = "".join(_smi_gpu(number, gpu) for number, gpu in enumerate(gpus))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>Sat Nov 29 12:00:00 2025</timestamp>\n\t<driver_version>{driver}</driver_version>\n"
        f"\t<cuda_version>{cuda}</cuda_version>\n\t<attached_gpus>{len(gpus)}</attached_gpus>\n{body}</nvidia_smi_log>\n"
    )


def _smi_gpu(number: int, gpu: dict[str, Any]) -> str:
    bus_id = f"0000{gpu['pci']}".upper()
    generation, lanes = gpu["link"]
    generation_max, lanes_max = gpu["link_max"]
    return f"""\t<gpu id="{bus_id}">
		<product_name>{gpu["name"]}</product_name>
		<product_brand>{gpu["brand"]}</product_brand>
		<product_architecture>{gpu["architecture"]}</product_architecture>
		<persistence_mode>{gpu["persistence"]}</persistence_mode>
		<addressing_mode>HMM</addressing_mode>
		<mig_mode>
			<current_mig>{gpu["mig"]}</current_mig>
			<pending_mig>{gpu["mig"]}</pending_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
		<serial>N/A</serial>
		<uuid>GPU-00000000-0000-0000-0000-{number + 1:012d}</uuid>
		<minor_number>{number}</minor_number>
		<gpu_virtualization_mode>
			<virtualization_mode>None</virtualization_mode>
			<host_vgpu_mode>N/A</host_vgpu_mode>
		</gpu_virtualization_mode>
		<pci>
			<pci_bus>{bus_id[9:11]}</pci_bus>
			<pci_device>{bus_id[12:14]}</pci_device>
			<pci_domain>{bus_id[4:8]}</pci_domain>
			<pci_bus_id>{bus_id}</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>{generation_max}</max_link_gen>
					<current_link_gen>{generation}</current_link_gen>
					<device_current_link_gen>{generation}</device_current_link_gen>
					<max_device_link_gen>{gpu["device_generation"]}</max_device_link_gen>
					<max_host_link_gen>5</max_host_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>{lanes_max}x</max_link_width>
					<current_link_width>{lanes}x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
			<replay_counter>0</replay_counter>
		</pci>
		<performance_state>P8</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_applications_clocks_setting>Not Active</clocks_event_reason_applications_clocks_setting>
			<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
			<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
			<clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
			<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
			<clocks_event_reason_display_clocks_setting>Not Active</clocks_event_reason_display_clocks_setting>
		</clocks_event_reasons>
		<fb_memory_usage>
			<total>{gpu["memory_mib"]} MiB</total>
			<reserved>{gpu["reserved_mib"]} MiB</reserved>
			<used>{gpu["used_mib"]} MiB</used>
			<free>{gpu["memory_mib"] - gpu["reserved_mib"] - gpu["used_mib"]} MiB</free>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>{gpu["bar1_mib"]} MiB</total>
			<used>1 MiB</used>
			<free>{gpu["bar1_mib"] - 1} MiB</free>
		</bar1_memory_usage>
		<compute_mode>Default</compute_mode>
		<ecc_mode>
			<current_ecc>{gpu["ecc"]}</current_ecc>
			<pending_ecc>{gpu["ecc"]}</pending_ecc>
		</ecc_mode>
		<temperature>
			<gpu_temp>{gpu["temperature"]} C</gpu_temp>
		</temperature>
		<gpu_power_readings>
			<power_state>P8</power_state>
			<current_power_limit>{gpu["power"][0]} W</current_power_limit>
			<requested_power_limit>{gpu["power"][0]} W</requested_power_limit>
			<default_power_limit>{gpu["power"][1]} W</default_power_limit>
			<min_power_limit>{gpu["power"][3]} W</min_power_limit>
			<max_power_limit>{gpu["power"][2]} W</max_power_limit>
		</gpu_power_readings>
		<clocks>
			<graphics_clock>{gpu["clocks"][0]} MHz</graphics_clock>
			<sm_clock>{gpu["clocks"][0]} MHz</sm_clock>
			<mem_clock>{gpu["clocks"][2]} MHz</mem_clock>
		</clocks>
		<max_clocks>
			<graphics_clock>{gpu["clocks"][1]} MHz</graphics_clock>
			<sm_clock>{gpu["clocks"][1]} MHz</sm_clock>
			<mem_clock>{gpu["clocks"][3]} MHz</mem_clock>
		</max_clocks>
		<processes>
{"".join(map(_smi_process, gpu["processes"]))}\t\t</processes>
	</gpu>
"""


def _smi_process(process: tuple[int, str, str, int]) -> str:
    pid, kind, name, memory_mib = process
    return f"""\t\t\t<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>{pid}</pid>
				<type>{kind}</type>
				<process_name>{name}</process_name>
				<used_memory>{memory_mib} MiB</used_memory>
			</process_info>
"""


def smi_topology(words: list[list[str]], cpus: list[str], nodes: list[str]) -> str:
    """`nvidia-smi topo -m`; its header is underlined."""
    names = [f"GPU{number}" for number in range(len(words))]
    head = "\t".join(["", *(f"\x1b[4m{name}" if number == 0 else name for number, name in enumerate(names))])
    rows = [
        "\t".join([name, *(f" {word} " if word == "X" else word for word in row), cpu, node, "\tN/A"])
        for name, row, cpu, node in zip(names, words, cpus, nodes, strict=True)
    ]
    return (
        f"{head}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        + "\n".join(rows)
        + "\n\nLegend:\n\n  X    = Self\n"
    )


def smi_p2p(count: int, word: str) -> str:
    """`nvidia-smi topo -p2p`: the same word for each pair."""
    head = "\t".join(f"GPU{number}" for number in range(count))
    rows = [
        f" GPU{row}\t" + "\t".join("X" if row == column else word for column in range(count)) + "\t"
        for row in range(count)
    ]
    return f" \t\x1b[4m{head}\t\x1b[0m\n" + "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"


def rtx_pro_6000_x8() -> Box:
    """The reference box: eight PCIe GPUs on two sockets, four PCIe switches of two GPUs each, set up as it should be."""
    box = Box(
        "rtx-pro-6000-x8",
        "8x NVIDIA RTX PRO 6000 Blackwell Server Edition, PCIe 5.0 x16, no NVLink; GPUs 0-3 at NUMA node 0, 4-7 at "
        "node 1, two to a PCIe switch; 2x AMD EPYC 9355, 768 GiB; Ubuntu 24.04; IOMMU in passthrough, ACS off",
        "documentation: data sheets, kernel and driver documentation. Never seen.",
    )
    box.answers.update(
        uname={"release": "6.8.0-45-generic", "machine": "x86_64", "name": "box"},
        root=True,
        cpus={"count": 128, "usable": 128},
        limits={
            "memlock_bytes": {"soft": "unlimited", "hard": "unlimited"},
            "nofile": {"soft": 1048576, "hard": 1048576},
        },
        addresses={"box": ["192.0.2.10"]},
        programs={
            "numactl": "/usr/bin/numactl",
            "gcc": "/usr/bin/gcc",
            "systemctl": "/usr/bin/systemctl",
            "nvidia-smi": "/usr/bin/nvidia-smi",
        },
        listeners=[{"port": 22, "address": "0.0.0.0", "pid": 1893, "command": "program-1"}],
        running={"nvidia-cuda-mps-server": False},
        names={"/sys/kernel/iommu_groups": [str(number) for number in range(96)]},
    )
    for path, total, free in (("/", 1920, 1704), ("/srv/models", 7680, 6900)):
        box.disk(path, total * 10**9, free * 10**9)
    box.disk("/dev/shm", 377 * GIB, 377 * GIB)
    box.directories("/tmp", "/var", "/var/tmp", "/opt", "/srv", "/home", "/run/systemd/system")
    # As the reference inventory names it. What is in it is unknown.
    box.directories("/srv/models/DeepSeek-V4-Flash-NVFP4")
    box.python("/usr/bin/python3", "3.12.3")
    box.numactl(2)
    box.command(
        "systemctl show --property=DefaultLimitMEMLOCK --property=DefaultLimitNOFILE",
        "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=524288\n",
    )
    flags = "fpu sse4_2 avx avx2 avx512f avx512bw avx512vl avx512_bf16 avx512_vnni"
    box.files.update(
        {
            "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu',
            "/proc/1/comm": "systemd",
            "/proc/1/cgroup": "0::/init.scope",
            "/proc/2/comm": "kthreadd",
            "/proc/cmdline": "iommu=pt",
            "/proc/cpuinfo": "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9355 32-Core Processor\n"
            f"flags\t\t: {flags}",
            "/proc/meminfo": f"MemTotal: {755 * GIB // 1024} kB\nMemFree: {738 * GIB // 1024} kB\n"
            f"MemAvailable: {745 * GIB // 1024} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB",
            "/proc/self/cgroup": "0::/recorded",
            "/proc/sys/kernel/numa_balancing": "0",
            "/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
            "/proc/sys/vm/swappiness": "60",
            "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        }
    )
    box.huge_pages("/sys/kernel/mm/hugepages")
    box.node(0, "0-31,64-95", 377 * GIB, 369 * GIB, "10 32")
    box.node(1, "32-63,96-127", 378 * GIB, 369 * GIB, "32 10")
    for cpu in range(128):
        box.files[f"/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"] = "performance"
    gpus = []
    # Each host bridge has a root port with a switch: upstream port, two downstream ports, two GPUs. Without ACS the
    # switch and all below it are one IOMMU group.
    for number, (bus, group) in enumerate({0x00: 14, 0x40: 33, 0x80: 57, 0xC0: 76}.items()):
        node = number // 2
        root_port, upstream = f"0000:{bus:02x}:01.1", f"0000:{bus + 1:02x}:00.0"
        box.device(root_port, [], node, "0x060400", "0x1022", group)
        box.device(upstream, [root_port], node, "0x060400", "0x1000", group + 1)
        for index in range(2):
            downstream, address = f"0000:{bus + 2:02x}:{index:02x}.0", f"0000:{bus + 3 + index:02x}:00.0"
            box.device(downstream, [root_port, upstream], node, "0x060400", "0x1000", group + 1)
            box.device(address, [root_port, upstream, downstream], node, "0x030200", "0x10de", group + 1)
            # An idle card lowers its link to save power.
            for end in (downstream, address):
                box.pcie_link(end, (1, 16), (5, 16))
            box.files[f"{PCI}/{downstream}/config{recording.HEX}"] = configuration_space(0xC030, 0)
            gpus.append(address)
        for end in (root_port, upstream):
            box.pcie_link(end, (5, 16), (5, 16))
        box.files[f"{PCI}/{root_port}/config{recording.HEX}"] = configuration_space(0x14AB, 0)
        box.files[f"{PCI}/{upstream}/config{recording.HEX}"] = configuration_space(0xC030, None)
        box.files[f"/sys/kernel/iommu_groups/{group + 1}/type"] = "identity"
    for function in range(2):
        name, address = f"eno{function + 1}np{function}", f"0000:06:00.{function}"
        box.device(address, ["0000:00:03.1"], 0, "0x020000", "0x8086", None)
        box.links[f"/sys/class/net/{name}"] = f"../../devices/pci0000:00/0000:00:03.1/{address}/net/{name}"
        box.links[f"/sys/class/net/{name}/device/driver"] = "../../../../../bus/pci/drivers/ixgbe"
        box.files[f"/sys/class/net/{name}/mtu"] = "1500"
        box.files[f"/sys/class/net/{name}/operstate"] = "down" if function else "up"
        box.files[f"/sys/class/net/{name}/speed"] = "-1" if function else "10000"
    card = {
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "brand": "NVIDIA RTX",
        "architecture": "Blackwell",
        "persistence": "Enabled",
        "mig": "Disabled",
        "ecc": "Enabled",
        "memory_mib": 97887,
        "reserved_mib": 637,
        "used_mib": 0,
        "bar1_mib": 131072,
        "temperature": 31,
        "power": ("600.00", "600.00", "600.00", "300.00"),
        "clocks": (180, 2430, 405, 12481),
        "link": (1, 16),
        "link_max": (5, 16),
        "device_generation": 5,
        "processes": [],
    }
    box.command("/usr/bin/nvidia-smi -q -x", smi_xml("580.95.05", "13.0", [{**card, "pci": pci} for pci in gpus]))
    box.command(
        "/usr/bin/nvidia-smi --query-gpu=pci.bus_id,compute_cap --format=csv,noheader",
        "".join(f"0000{pci.upper()}, 12.0\n" for pci in gpus),
    )
    words = [
        ["X" if a == b else "PIX" if a // 2 == b // 2 else "NODE" if a // 4 == b // 4 else "SYS" for b in range(8)]
        for a in range(8)
    ]
    cpus = [("0-31,64-95", "32-63,96-127")[gpu // 4] for gpu in range(8)]
    box.command("/usr/bin/nvidia-smi topo -m", smi_topology(words, cpus, [str(gpu // 4) for gpu in range(8)]))
    for way in "rw":
        box.command(f"/usr/bin/nvidia-smi topo -p2p {way}", smi_p2p(8, "OK"))
    return box


def laptop() -> Box:
    """A laptop with one GPU, as it comes: an ordinary user, a desktop on the GPU, nothing set up for serving."""
    box = Box(
        "laptop",
        "1x NVIDIA GeForce RTX 4070 Laptop GPU with a desktop on it, PCIe 4.0 x8; Intel Core Ultra 7 155H, 32 GiB, "
        "swap; Ubuntu 24.04, looked at by an ordinary user; IOMMU translates, no numactl, no compiler",
        "documentation: data sheets, kernel and driver documentation. Never seen.",
    )
    home = "/home/user-1"
    box.answers.update(
        uname={"release": "6.11.0-29-generic", "machine": "x86_64", "name": "box"},
        cpus={"count": 22, "usable": 22},
        limits={
            "memlock_bytes": {"soft": 4 * GIB, "hard": 4 * GIB},
            "nofile": {"soft": 1024, "hard": 1048576},
        },
        addresses={"box": ["127.0.1.1"]},
        programs={"systemctl": "/usr/bin/systemctl", "nvidia-smi": "/usr/bin/nvidia-smi"},
        listeners=[{"port": 631, "address": "127.0.0.1", "pid": None, "command": ""}],
        running={"nvidia-cuda-mps-server": False},
        names={"/sys/kernel/iommu_groups": [str(number) for number in range(20)]},
    )
    box.disk("/", 1000 * 10**9, 60 * 10**9, writable=False)
    box.disk("/dev/shm", 16 * GIB, 15 * GIB)
    box.directories("/tmp", "/var/tmp", home)
    box.directories("/var", "/opt", "/srv", "/home", "/run/systemd/system", writable=False)
    box.python("/usr/bin/python3", "3.12.3", headers=False)
    box.command(
        "systemctl show --property=DefaultLimitMEMLOCK --property=DefaultLimitNOFILE",
        "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=524288\n",
    )
    box.files.update(
        {
            "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu',
            "/proc/1/comm": "systemd",
            "/proc/1/cgroup": "0::/init.scope",
            "/proc/2/comm": "kthreadd",
            "/proc/cmdline": "",
            "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Core(TM) Ultra 7 155H\n"
            "flags\t\t: fpu sse4_2 avx avx2 avx_vnni",
            "/proc/meminfo": f"MemTotal: {31 * GIB // 1024} kB\nMemFree: {4 * GIB // 1024} kB\n"
            f"MemAvailable: {17 * GIB // 1024} kB\nSwapTotal: {8 * GIB // 1024} kB\nSwapFree: {7 * GIB // 1024} kB",
            "/proc/self/cgroup": "0::/recorded",
            "/proc/sys/kernel/numa_balancing": "0",
            "/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
            "/proc/sys/vm/swappiness": "60",
            "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        }
    )
    box.huge_pages("/sys/kernel/mm/hugepages")
    box.node(0, "0-21", 31 * GIB, 4 * GIB, "10")
    for cpu in range(22):
        box.files[f"/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"] = "powersave"
    root_port, card = "0000:00:01.0", "0000:01:00.0"
    box.device(root_port, [], -1, "0x060400", "0x8086", 2)
    box.device(card, [root_port], -1, "0x030000", "0x10de", 15)
    box.pcie_link(root_port, (1, 8), (5, 8))
    box.pcie_link(card, (1, 8), (4, 16))
    box.files["/sys/kernel/iommu_groups/15/type"] = "DMA-FQ"
    # An ordinary user is shown the first 64 bytes.
    space = recording.from_hex(configuration_space(0x7ECC, 0x1D))[:64]
    box.files[f"{PCI}/{root_port}/config{recording.HEX}"] = recording.to_hex(space)
    box.device("0000:00:14.3", [], -1, "0x028000", "0x8086", 11)
    box.links["/sys/class/net/wlp0s20f3"] = "../../devices/pci0000:00/0000:00:14.3/net/wlp0s20f3"
    box.links["/sys/class/net/wlp0s20f3/device/driver"] = "../../../bus/pci/drivers/iwlwifi"
    box.files["/sys/class/net/wlp0s20f3/mtu"] = "1500"
    box.files["/sys/class/net/wlp0s20f3/operstate"] = "up"
    gpu = {
        "name": "NVIDIA GeForce RTX 4070 Laptop GPU",
        "brand": "GeForce",
        "architecture": "Ada Lovelace",
        "persistence": "Disabled",
        "mig": "N/A",
        "ecc": "N/A",
        "memory_mib": 8188,
        "reserved_mib": 405,
        "used_mib": 212,
        "bar1_mib": 8192,
        "temperature": 44,
        "power": ("80.00", "80.00", "140.00", "5.00"),
        "clocks": (210, 3105, 405, 8001),
        "link": (1, 8),
        "link_max": (4, 8),
        "device_generation": 4,
        "processes": [(2481, "G", "/usr/bin/gnome-shell", 200)],
        "pci": card,
    }
    box.command("/usr/bin/nvidia-smi -q -x", smi_xml("570.195.03", "12.8", [gpu]))
    box.command("/usr/bin/nvidia-smi --query-gpu=pci.bus_id,compute_cap --format=csv,noheader", f"0000{card}, 8.9\n")
    box.command("/usr/bin/nvidia-smi topo -m", smi_topology([["X"]], ["0-21"], ["0"]))
    for way in "rw":
        box.command(f"/usr/bin/nvidia-smi topo -p2p {way}", smi_p2p(1, "OK"))
    return box


BOXES = (rtx_pro_6000_x8, laptop)


def main() -> None:
    for make in BOXES:
        box = make()
        shutil.rmtree(HERE / box.name, ignore_errors=True)
        for name, text in box.tree().items():
            path = HERE / box.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(HERE / box.name)


if __name__ == "__main__":
    main()
