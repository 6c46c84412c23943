# SPDX-License-Identifier: Apache-2.0
"""A recording says what its box says, and nothing about its owner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import pci, recorder, recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.redaction import Redaction
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

CHECKOUT = Path(__file__).resolve().parents[3]
REFERENCE = CHECKOUT / "tests" / "boxes" / "rtx-pro-6000-x8"
MODULE = "ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recorder"
# What changes from one look to the next, and what is personal.
VOLATILE = ("available_bytes", "free_bytes", "memory_free_bytes", "swap_free_bytes")
PERSONAL = ("kernel", "hostname", "init", "pythons")


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in (*VOLATILE, *PERSONAL)}
    return [steady(item) for item in value] if isinstance(value, list) else value


def test_a_bare_python_without_ansible_records_this_machine_and_reads_the_same_facts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", MODULE, str(tmp_path / "box")],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT / ".collections")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    asked: dict[str, Any] = {"numa_nodes": [0], "paths": ["/opt/nothing-there"]}
    here, there = read_facts(Source(), asked), read_facts(Recording(tmp_path / "box"), asked)
    assert steady(there) == steady(here)
    assert yaml.safe_load((tmp_path / "box" / "box.yml").read_text())["kind"] == "recorded"


def test_a_recording_describes_its_box_in_plain_words() -> None:
    facts = read_facts(Recording(CHECKOUT / "tests" / "boxes" / "h200-x1"), {"numa_nodes": [0]})
    assert "1x NVIDIA H200, 16 CPUs (Intel(R) Xeon(R) Processor), 1 NUMA node," in " ".join(
        recorder.description(facts, 0.0).split()
    )


def test_a_directory_that_holds_something_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(FileExistsError):
        recorder.write_recording({"box.yml": ""}, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["/etc/cron.d/mine", "root/../../mine"])
def test_a_host_cannot_write_outside_of_the_recording(tmp_path: Path, name: str) -> None:
    with pytest.raises(PermissionError, match="outside"):
        recorder.write_recording({"box.yml": "", name: ""}, str(tmp_path / "box"))
    assert list(tmp_path.iterdir()) == []


def box_of_somebody(tmp_path: Path) -> Path:
    """The reference box with an owner."""
    box = tmp_path / "owned"
    shutil.copytree(REFERENCE, box)
    answers = json.loads((box / "answers.json").read_text())
    answers["uname"]["name"] = "acme-gpu7.example.com"
    answers["uname"]["release"] = "6.8.0-45-generic-acme1"
    answers["addresses"] = {"acme-gpu7.example.com": ["10.1.2.3", "fe80::1234:5678"]}
    answers["listeners"] = [{"port": 5432, "address": "10.1.2.3", "pid": 77, "command": "postgres -D /home/alice/db"}]
    answers["programs"]["numactl"] = "/home/alice/bin/numactl"
    answers["directories"]["/mnt/acme-secret"] = {"writable": True}
    (box / "answers.json").write_text(json.dumps(answers))
    (box / "root/proc/self/mounts").write_text("/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /mnt/acme-secret xfs rw 0 0\n")
    (box / "root/proc/self/cgroup").write_text("0::/user.slice/acme.scope\n")
    (box / "root/proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz root=UUID=0badcafe ip=10.1.2.3 iommu=pt acme.key=7\n")
    query = box / "commands/nvidia-smi-q-x.out"
    text = query.read_text().replace("<serial>N/A<", "<serial>1324523001234<")
    text = text.replace("</fb_memory_usage>", "</fb_memory_usage>\n<supported_clocks><x>1</x></supported_clocks>", 1)
    text = text.replace("GPU-00000000-0000-0000-0000-000000000001", "GPU-a6cf0363-7150-4fd1-6737-d2266c51c9ec")
    text = text.replace(
        "<processes>",
        "<processes><process_info><pid>7</pid><type>C</type><process_name>python3 /home/alice/acme.py</process_name>"
        "<used_memory>1 MiB</used_memory></process_info>",
        1,
    )
    query.write_text(text)
    config = box / "root" / pci.DEVICES[1:] / "0000:02:00.0/config.hex"
    space = bytearray(recording.from_hex(config.read_text()))
    # A serial number capability behind ACS: cards build it from their MAC.
    space[0x14A:0x14C] = (1 | 0x160 << 4).to_bytes(2, "little")
    space[0x160:0x16C] = (0x0003 | 1 << 16).to_bytes(4, "little") + b"SERIALNO"
    config.write_text(recording.to_hex(bytes(space)))
    return box


def test_a_recording_of_a_gpu_box_keeps_every_fact_and_nothing_personal(tmp_path: Path) -> None:
    box = box_of_somebody(tmp_path)
    files = recorder.record(time.time(), Recording(box))
    recorder.write_recording(files, str(tmp_path / "made"))
    everything = "\n".join([*files, *files.values()])
    for secret in ("acme", "alice", "10.1.2.3", "fe80", "1324523001234", "a6cf0363", "0badcafe", "postgres", "train"):
        assert secret not in everything, secret
    assert "supported_clocks" not in everything
    assert b"SERIALNO".hex(" ") not in everything

    before, after = read_facts(Recording(box), {}), read_facts(Recording(tmp_path / "made"), {})
    assert after["kernel"] == {"release": "6.8.0-45-generic", "machine": "x86_64", "command_line": "iommu=pt"}
    assert after["hostname"] == {"name": "box", "addresses": ["192.0.2.1", "2001:db8::1"]}
    assert after["gpu"]["gpus"][0]["uuid"] == "GPU-00000000-0000-0000-0000-000000000001"
    assert after["gpu"]["gpus"][0]["processes"][0]["command"] == "program-1"
    assert after["pci_bridges"] == before["pci_bridges"]
    assert after["pci_bridges"]["0000:02:00.0"]["acs"] is not None
    for facts in (before, after):
        del facts["kernel"], facts["hostname"], facts["numactl"]["path"]
        for gpu in facts["gpu"]["gpus"]:
            del gpu["uuid"], gpu["processes"]
    assert after == before


def test_the_same_detail_has_the_same_stand_in_everywhere() -> None:
    redaction = Redaction("gpu7.lab", ["bob"])
    first = redaction.text("gpu7 at 10.0.0.5 and 10.0.0.6, 00:1b:21:aa:bb:cc, /home/bob, /home/eve/x")
    assert first == "box at 192.0.2.1 and 192.0.2.2, 00:00:5e:00:53:01, /home/user-1, /home/user-2/x"
    assert redaction.text("10.0.0.6 enx001b21aabbcc gpu7.lab bob") == "192.0.2.2 enx00005e005302 box user-1"


@pytest.mark.parametrize(
    "text",
    [
        "0::/",
        "127.0.0.1 0.0.0.0 :: ::1",
        "00000000:01:00.0 0000:c1:00.0",
        "580.95.05 97.02.1a.00.03 12:30:45",
        "node 0 size: 4699 MB",
        "ubuntu nvidia gpu",
    ],
)
def test_what_only_looks_like_a_detail_stays(text: str) -> None:
    assert Redaction("gpu", ["ubuntu", "nvidia"]).text(text) == text


def test_the_command_line_records_this_machine(tmp_path: Path) -> None:
    pdlab = str(Path(sys.executable).parent / "pdlab")
    for expected, words in ((0, "files. Look through them"), (1, "is not empty; name another directory")):
        done = subprocess.run(
            [pdlab, "record-box", "-o", str(tmp_path / "box")], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == expected, done.stderr
        assert words in " ".join((done.stdout + done.stderr).split())
    assert read_facts(Recording(tmp_path / "box"), {})["cpu"]["count"] == os.cpu_count()
