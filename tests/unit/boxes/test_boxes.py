# SPDX-License-Identifier: Apache-2.0
"""Every reader of facts on every box of tests/boxes, and boxes with a fault made from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recording import Recording

from tests.boxes import from_documentation, from_recording

BOXES = Path(__file__).resolve().parents[2] / "boxes"
ALL = sorted(path.parent for path in BOXES.glob(f"*/{recording.BOX}"))
REFERENCE = BOXES / "rtx-pro-6000-x8"
Edit = Callable[[Path], Any]


def facts_of(path: Path, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = read_facts(Recording(path), {"numa_nodes": [0, 1], **asked})
    return found


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[Path, Edit], dict[str, Any]]:
    """The facts of a box after an edit of its files."""

    def edit(box: Path, change: Edit) -> dict[str, Any]:
        copy = tmp_path / box.name
        shutil.copytree(box, copy)
        change(copy)
        return facts_of(copy)

    return edit


def replace(name: str, old: str, new: str) -> Edit:
    """An edit: these words in one file, which must hold them."""

    def change(box: Path) -> None:
        text = (box / name).read_text()
        assert old in text
        (box / name).write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize("box", ALL, ids=lambda box: box.name)
def test_a_box_says_what_it_is_and_whether_anybody_saw_it(box: Path) -> None:
    about = yaml.safe_load((box / recording.BOX).read_text())
    assert set(about) >= {"what", "kind", "from"}
    assert about["kind"] in ("recorded", "documented", "derived")
    if about["kind"] == "recorded":
        assert "when" in about


@pytest.mark.parametrize("box", ALL, ids=lambda box: box.name)
def test_every_reader_runs_on_every_box(box: Path) -> None:
    facts = facts_of(box)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]["count"] >= facts["cpu"]["usable"] >= 1
    assert facts["memory"]["total_bytes"] > facts["memory"]["available_bytes"] > 0
    assert facts["kernel"]["release"] and facts["kernel"]["command_line"] is not None
    assert facts["distribution"]["id"]
    assert facts["numa"][0]["cpus"]
    assert facts["numactl"]["path"] is None or facts["numactl"]["nodes"]["0"]["ok"] is not None
    assert facts["paths"]["/tmp"]["free_bytes"] > 0
    assert facts["shm"]["total_bytes"] > 0
    assert facts["ephemeral_ports"][0] < facts["ephemeral_ports"][1]
    assert facts["pythons"][0]["version"]
    assert facts["limits"]["process"]["nofile"]["hard"]
    for gpu in facts["gpu"]["gpus"] or []:
        assert gpu["pci"] in facts["gpu"]["pci_devices"]
        assert all(gpu[key] is not None for key in ("compute_capability", "numa_node", "memory_total_mib", "processes"))
        assert set(gpu["bridges"]) <= set(facts["pci_bridges"])


@pytest.mark.parametrize("make", from_documentation.BOXES, ids=lambda make: make.__name__)
def test_a_box_from_documentation_is_what_its_script_writes(make: Callable[[], from_documentation.Box]) -> None:
    box = make()
    there = {
        str(path.relative_to(BOXES / box.name)): path.read_text()
        for path in (BOXES / box.name).rglob("*")
        if path.is_file()
    }
    assert there == box.tree(), "run: python tests/boxes/from_documentation.py"


def test_a_derived_box_is_what_its_script_makes_of_the_recording() -> None:
    made = BOXES / from_recording.NAME
    there = {str(path.relative_to(made)): path.read_text() for path in made.rglob("*") if path.is_file()}
    assert there == from_recording.tree(), "run: python tests/boxes/from_recording.py"


def test_the_derived_box_has_eight_gpus_like_the_two_that_were_seen_and_says_that_nobody_saw_it() -> None:
    small, large = facts_of(BOXES / "h200-x2"), facts_of(BOXES / "h200-x8")
    seen, gpus = small["gpu"]["gpus"], large["gpu"]["gpus"]
    assert [gpu["index"] for gpu in gpus] == list(range(8))
    assert len({gpu["pci"] for gpu in gpus}) == len({gpu["uuid"] for gpu in gpus}) == 8
    own = {"index", "pci", "uuid"}
    for gpu in gpus:
        like = seen[gpu["index"] % 2]
        assert {key: gpu[key] for key in gpu.keys() - own} == {key: like[key] for key in like.keys() - own}
    assert set(large["gpu"]["topology"].values()) == {"NV18"} and len(large["gpu"]["topology"]) == 8 * 7
    assert set(large["gpu"]["p2p"]["write"].values()) == {"OK"}
    assert large["gpu"]["nvlink"] is True
    assert (large["cpu"]["count"], large["memory"]["total_bytes"]) == (128, 560 * 1024**3)
    about = yaml.safe_load((BOXES / "h200-x8" / recording.BOX).read_text())
    assert about["kind"] == "derived" and "h200-x2" in about["from"] and "Never seen" in about["from"]


def test_a_recorded_box_with_one_gpu_has_no_pair_of_gpus_and_no_link_of_which_anything_is_known() -> None:
    facts = facts_of(BOXES / "h200-x1")
    (gpu,) = facts["gpu"]["gpus"]
    assert (gpu["name"], gpu["compute_capability"], gpu["memory_total_mib"]) == ("NVIDIA H200", "9.0", 143771)
    assert (gpu["numa_node"], gpu["processes"], gpu["mig"]) == (-1, [], False)
    assert (facts["gpu"]["topology"], facts["gpu"]["p2p"]) == ({}, {"read": {}, "write": {}})
    assert facts["gpu"]["nvlink"] is False
    assert (facts["cpu"]["count"], len(facts["numa"]), facts["container"]) == (16, 1, "docker")


def test_the_reference_box_has_eight_gpus_at_two_nodes_and_nothing_in_their_way() -> None:
    facts = facts_of(REFERENCE)
    gpus = facts["gpu"]["gpus"]
    assert [gpu["numa_node"] for gpu in gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {gpu["compute_capability"] for gpu in gpus} == {"12.0"}
    assert {(gpu["pcie"]["generation_max"], gpu["pcie"]["width"]) for gpu in gpus} == {(5, 16)}
    topology = facts["gpu"]["topology"]
    assert [topology[f"0-{other}"] for other in range(1, 8)] == ["PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert set(facts["gpu"]["p2p"]["write"].values()) == {"OK"}
    assert facts["gpu"]["nvlink"] is False and facts["gpu"]["mps"] is False
    assert facts["iommu"] == {"enabled": True, "mode": "passthrough", "groups": 96}
    assert len(facts["pci_bridges"]) == 16
    assert all(bridge["acs_readable"] for bridge in facts["pci_bridges"].values())
    assert not any(on for bridge in facts["pci_bridges"].values() for on in (bridge["acs"] or {}).values())
    assert facts["limits"]["services"] == {"memlock_bytes": 8388608, "nofile": 524288}
    assert facts["cpu"]["governor"] == {"performance": 128}
    assert [node["distances"] for node in facts["numa"]] == [[10, 32], [32, 10]]


def test_a_link_that_came_up_slow_shows_beside_its_maximum(edited: Any) -> None:
    old = '<gpu id="00000000:84:00.0">'
    slow = "<max_link_gen>5</max_link_gen>"

    def change(box: Path) -> None:
        path = box / "commands" / "nvidia-smi-q-x.out"
        before, found, after = path.read_text().partition(old)
        after = after.replace(slow, "<max_link_gen>4</max_link_gen>", 1).replace("16x</current", "8x</current", 1)
        path.write_text(before + found + after)

    gpus = edited(REFERENCE, change)["gpu"]["gpus"]
    assert gpus[5]["pcie"] == {
        "generation": 1,
        "generation_max": 4,
        "device_generation_max": 5,
        "width": 8,
        "width_max": 16,
    }
    assert gpus[4]["pcie"]["width"] == 16


def test_a_foreign_process_on_gpu_5_is_there_and_only_there(edited: Any) -> None:
    process = (
        "<processes>\n\t\t\t<process_info><pid>4711</pid><type>C</type><process_name>python3 train.py</process_name>"
        "<used_memory>40960 MiB</used_memory></process_info>"
    )

    def change(box: Path) -> None:
        path = box / "commands" / "nvidia-smi-q-x.out"
        parts = path.read_text().split("<processes>")
        path.write_text("<processes>".join(parts[:6]) + process + "<processes>".join(parts[6:]))

    gpus = edited(REFERENCE, change)["gpu"]["gpus"]
    assert [len(gpu["processes"]) for gpu in gpus] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert gpus[5]["processes"][0] == {
        "pid": 4711,
        "command": "python3 train.py",
        "memory_mib": 40960,
        "type": "C",
        "own": False,
    }


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (
            replace("root/sys/kernel/iommu_groups/58/type", "identity", "DMA-FQ"),
            lambda facts: facts["iommu"]["mode"] == "translated",
        ),
        (
            replace("root/sys/bus/pci/devices/0000:82:01.0/config.hex", "5f 00 00 00", "5f 00 1d 00"),
            lambda facts: facts["pci_bridges"]["0000:82:01.0"]["acs"]["request_redirect"],
        ),
        (
            lambda box: (box / "root/sys/bus/pci/devices/0000:82:01.0/config.hex").unlink(),
            lambda facts: facts["pci_bridges"]["0000:82:01.0"] == {"acs": None, "acs_readable": False},
        ),
        (
            replace("commands/nvidia-smi-topo-p2p-w.out", " GPU1\tOK", " GPU1\tCNS"),
            lambda facts: facts["gpu"]["p2p"]["write"]["1-0"] == "CNS" and facts["gpu"]["p2p"]["read"]["1-0"] == "OK",
        ),
        (
            replace("root/sys/bus/pci/devices/0000:03:00.0/numa_node", "0", "-1"),
            lambda facts: facts["gpu"]["gpus"][0]["numa_node"] == -1,
        ),
        (
            replace("answers.json", '"nvidia-cuda-mps-server": false', '"nvidia-cuda-mps-server": true'),
            lambda facts: facts["gpu"]["mps"] is True,
        ),
        (
            replace("answers.json", '"nvidia-smi": "/usr/bin/nvidia-smi"', '"nvidia-smi": null'),
            lambda facts: facts["gpu"]["gpus"] is None and len(facts["gpu"]["pci_devices"]) == 8,
        ),
        (
            lambda box: shutil.rmtree(box / "root/sys/bus"),
            lambda facts: facts["gpu"]["gpus"][0]["numa_node"] is None and facts["pci_bridges"] != {},
        ),
    ],
    ids=["translation", "redirect", "unreadable", "no-p2p", "no-node", "mps", "no-driver", "no-sysfs"],
)
def test_a_small_edit_makes_a_box_with_a_fault(edited: Any, change: Edit, seen: Callable[[Any], bool]) -> None:
    assert seen(edited(REFERENCE, change))


def test_a_folder_that_is_no_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} is no recording of a box: links.json"):
        Recording(tmp_path)
    shutil.copytree(REFERENCE, tmp_path / "box")
    (tmp_path / "box" / "answers.json").write_text('{"uname": {}}')
    with pytest.raises(ValueError, match=r"answers.json lacks addresses, clock_synchronised, .*"):
        Recording(tmp_path / "box")


def test_bytes_survive_being_written_as_hex() -> None:
    data = bytes(range(256)) + bytes(3840)
    written = recording.to_hex(data)
    assert recording.from_hex(written) == data
    assert len(written.splitlines()) == 17
