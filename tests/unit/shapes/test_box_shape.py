# SPDX-License-Identifier: Apache-2.0
"""What `pdlab init` chooses for a box: whole GPUs that belong together, equal servers, free ports, and why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.box_shape import SGLANG_RANDOM_PORTS, candidate_ports, root_of, shape_of


def box(*nodes: int | None, **more: Any) -> dict[str, Any]:
    """Facts of a box with one GPU at each of these NUMA nodes."""
    gpus = [
        {"index": i, "name": "NVIDIA X", "numa_node": node, "memory_total_mib": 97887} for i, node in enumerate(nodes)
    ]
    known = sorted({node for node in nodes if node is not None and node >= 0}) or [0]
    return {
        "gpu": {"gpus": gpus, "pci_devices": [], "error": None, "p2p": None, "nvlink": False, **more.pop("gpu", {})},
        "numa": [{"node": node} for node in known],
        "ports": [],
        "ephemeral_ports": [32768, 60999],
        **more,
    }


def servers(facts: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(server.name, server.gpus) for server in shape_of(facts).servers]


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([0, 0], {"prefill-0": [0], "decode-0": [1]}),
        ([0, 1], {"prefill-0": [0], "decode-0": [1]}),
        ([0, 0, 0], {"prefill-0": [0], "decode-0": [1], "decode-1": [2]}),
        ([0, 0, 0, 0], {"prefill-0": [0, 1], "decode-0": [2, 3]}),
        ([0, 0, 1, 1], {"prefill-0": [0, 1], "decode-0": [2, 3]}),
        ([0] * 4 + [1] * 4, {"prefill-0": [0, 1, 2, 3], "decode-0": [4, 5, 6, 7]}),
        ([0] * 8, {"prefill-0": [0, 1, 2, 3], "decode-0": [4, 5, 6, 7]}),
        ([0, 0, 1, 1, 2, 2, 3, 3], {"prefill-0": [0, 1], "prefill-1": [2, 3], "decode-0": [4, 5], "decode-1": [6, 7]}),
        ([1, 1, 1, 1, 0, 0, 0, 0], {"prefill-0": [4, 5, 6, 7], "decode-0": [0, 1, 2, 3]}),
        ([0, 0, 0, 1, 1, 1], {"prefill-0": [0, 1], "decode-0": [3, 4]}),
    ],
)
def test_prefill_has_one_node_and_decode_the_other(nodes: list[int], wanted: dict[str, list[int]]) -> None:
    assert dict(servers(box(*nodes))) == wanted


def test_gpus_that_are_numbered_across_the_nodes_are_counted_in_steps() -> None:
    shape = shape_of(box(0, 1, 0, 1, 0, 1, 0, 1))
    assert [(server.gpus, server.step) for server in shape.servers] == [([0, 2, 4, 6], 2), ([1, 3, 5, 7], 2)]


def test_gpus_that_do_not_reach_each_other_form_no_group() -> None:
    reach = {f"{a}-{b}": "OK" if a // 2 == b // 2 else "CNS" for a in range(4) for b in range(4) if a != b}
    split = box(0, 0, 0, 0, gpu={"p2p": {"read": reach, "write": reach}})
    assert list(shape_of(split).arms) == ["dp2"], "no tensor parallelism over GPUs that do not reach each other"
    assert servers(split) == [("prefill-0", [0, 1]), ("decode-0", [2, 3])]
    nobody = dict.fromkeys(reach, "CNS")
    assert [gpus for _name, gpus in servers(box(0, 0, 0, 0, gpu={"p2p": {"read": nobody, "write": nobody}}))] == [
        [0], [1], [2], [3],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([0, 0], {"tp2": [([0, 1], 1, False)], "dp2": [([0], 1, False), ([1], 1, False)]}),
        (
            [0] * 4 + [1] * 4,
            {
                "tp8": [([0, 1, 2, 3, 4, 5, 6, 7], 1, True)],
                "dp2": [([0, 1, 2, 3], 1, False), ([4, 5, 6, 7], 1, False)],
            },
        ),
        ([0, 1, 0, 1], {"tp4": [([0, 1, 2, 3], 1, True)], "dp2": [([0, 2], 2, False), ([1, 3], 2, False)]}),
        # Three are no power of two; GPU 2 lies between the others and belongs to none.
        ([0, 0, 0], {"dp3": [([0], 1, False), ([1], 1, False), ([2], 1, False)]}),
        ([0, 0, 0, 1, 1, 1], {"dp2": [([0, 1], 1, False), ([3, 4], 1, False)]}),
        ([None, None], {"tp2": [([0, 1], 1, False)], "dp2": [([0], 1, False), ([1], 1, False)]}),
    ],
)
def test_the_same_gpus_without_disaggregation_are_the_arms_to_compare_with(
    nodes: list[int | None], wanted: dict[str, list[tuple[list[int], int, bool]]]
) -> None:
    shape = shape_of(box(*nodes))
    assert {
        name: [(server.gpus, server.step, server.unbound) for server in arm] for name, arm in shape.arms.items()
    } == wanted
    for arm in shape.arms.values():
        assert {server.role for server in arm} == {"colocated"}
        ports = [port for server in arm for port in (server.port, server.nccl_port)]
        assert len(ports) == len(set(ports)), "servers of one arm run at once"
        assert set(ports) <= {port for server in shape.servers for port in (server.port, server.nccl_port)}
        assert all(server.bootstrap_port is None for server in arm)


def test_one_gpu_is_shared_and_that_is_said() -> None:
    shape = shape_of(box(0))
    assert shape.shared
    assert [server.gpus for server in shape.servers] == [[0], [0]]
    assert "say nothing about disaggregation" in " ".join(shape.notes)


def test_a_box_without_gpus_rehearses_and_that_is_said() -> None:
    shape = shape_of(box())
    assert shape.device == "cpu"
    assert "REHEARSAL" in " ".join(shape.notes)
    silent = box(gpu={"gpus": None, "pci_devices": ["0000:01:00.0"], "error": "no driver"})
    assert "the driver does not show them: no driver" in " ".join(shape_of(silent).notes)


def test_gpus_of_another_model_and_those_cut_up_by_mig_are_left_out_and_named() -> None:
    facts = box(0, 0, 0, 0)
    facts["gpu"]["gpus"][0]["name"] = "NVIDIA T4"
    facts["gpu"]["gpus"][3]["mig"] = True
    shape = shape_of(facts)
    assert [server.gpus for server in shape.servers] == [[1], [2]]
    notes = " ".join(shape.notes)
    assert "GPU 3 is cut up by MIG" in notes
    assert "GPU 0 is of another model" in notes


def test_a_firmware_that_keeps_silent_on_a_box_with_several_nodes_leaves_the_servers_unbound() -> None:
    silent = box(-1, -1, numa=[{"node": 0}, {"node": 1}])
    assert [server.unbound for server in shape_of(silent).servers] == [True, True]
    assert [server.unbound for server in shape_of(box(-1, -1)).servers] == [False, False]


def test_ports_are_free_and_nobody_hands_them_out() -> None:
    held = [{"port": port, "command": "nginx"} for port in (8000, 8001, 8998, 30000)]
    shape = shape_of(box(0, 1, ports=held))
    prefill, decode = shape.servers
    assert (shape.router_port, prefill.bootstrap_port, prefill.port, decode.port) == (8002, 8999, 30010, 30001)
    assert "router: 8002, because 8000 is held by nginx." in shape.port_notes
    for port in (prefill.nccl_port, shape.prometheus_port):
        assert port not in SGLANG_RANDOM_PORTS
    moved = shape_of(box(0, 1, ephemeral_ports=[30000, 30005])).servers
    assert [server.port for server in moved] == [30010, 30011]


def test_a_box_on_which_no_port_is_free_says_so() -> None:
    shape = shape_of(box(0, 1, ports=[{"port": port, "command": None} for port in candidate_ports()]))
    assert "router: no free port found near 8000; choose one." in shape.port_notes


def test_the_directory_is_the_first_that_can_be_written_and_has_room() -> None:
    room = {"writable": True, "free_bytes": 100 * 1024**3}
    full = {"writable": True, "free_bytes": 1024**3}
    facts = {"root": True, "paths": {"/opt/pdlab": full, "/srv/pdlab": room, "/h/.local/share/pdlab": room}}
    assert root_of(facts, "/h") == ("/srv/pdlab", "100 GiB are free there")
    assert root_of({**facts, "root": False}, "/h")[0] == "/h/.local/share/pdlab"
    assert root_of({"root": True, "paths": {"/opt/pdlab": full}}, None)[0] == "/opt/pdlab"


@given(nodes=st.lists(st.integers(min_value=-1, max_value=3), min_size=2, max_size=16))
def test_whatever_the_box_servers_are_equal_whole_and_in_one_node(nodes: list[int]) -> None:
    shape = shape_of(box(*nodes))
    used = [gpu for server in shape.servers for gpu in server.gpus]
    assert len(used) == len(set(used)) <= len(nodes)
    assert len({len(server.gpus) for server in shape.servers}) == 1
    assert {server.role for server in shape.servers} == {"prefill", "decode"}
    for server in shape.servers:
        assert len({nodes[gpu] for gpu in server.gpus}) == 1
        assert server.gpus == list(range(server.gpus[0], server.gpus[-1] + 1, server.step))
        assert len(server.gpus) & (len(server.gpus) - 1) == 0


def test_the_chip_and_how_gpus_are_joined_go_into_the_inventory() -> None:
    facts = box(0, 0, gpu={"nvlink": True})
    facts["gpu"]["gpus"][0]["compute_capability"] = "9.0"
    shape = shape_of(facts)
    assert (shape.compute_capability, shape.collectives) == ("9.0", "nvlink")
    assert shape_of(box(0)).collectives == "pcie"
    assert shape_of(box()).collectives is None
