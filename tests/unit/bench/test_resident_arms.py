# SPDX-License-Identifier: Apache-2.0
"""Arms that stay up beside each other need ports of their own."""

from __future__ import annotations

from typing import Any

import pytest

from pdlab.bench.arms_document import ArmsDocument, ArmsError, new_document

NOTHING: dict[str, Any] = {"benchmark": None, "search": False, "inventory": "i", "limit": None, "extra_vars": []}


def server(
    name: str, port: int, nccl_port: int, bootstrap_port: int | None = None, host: str = "box1"
) -> dict[str, Any]:
    return {"name": name, "host": host, "port": port, "nccl_port": nccl_port, "bootstrap_port": bootstrap_port}


def plan(*others: dict[str, Any]) -> dict[str, Any]:
    pd = [server("prefill-0", 30000, 21000, 8998), server("decode-0", 30001, 21001)]
    arms = [
        {"name": "pd", "servers": pd, "fingerprint": "a"},
        {"name": "dp2", "servers": list(others), "fingerprint": "b"},
    ]
    return {"arms": arms, "benchmark": {"name": "quick", "points": [{"seed": 42}]}}


def document(resident: bool, *others: dict[str, Any]) -> ArmsDocument:
    return new_document(plan(*others), ["pd", "dp2"], 1, **NOTHING, resident=resident)


@pytest.mark.parametrize(
    ("other", "port"),
    [
        (server("colocated-0", 30000, 21010), 30000),
        (server("colocated-0", 30010, 21001), 21001),
        (server("colocated-0", 30010, 8998), 8998),
    ],
)
def test_a_port_in_two_arms_is_refused_only_where_both_are_up(other: dict[str, Any], port: int) -> None:
    assert document(False, other).resident is False
    with pytest.raises(ArmsError, match=f"colocated-0 of dp2 and [a-z0-9-]+ of pd both have port {port}"):
        document(True, other)


def test_ports_of_their_own_another_host_or_the_same_server_in_both_arms_are_right() -> None:
    assert document(True, server("colocated-0", 30010, 21010)).resident is True
    assert document(True, server("colocated-0", 30000, 21000, host="box2")).resident is True
    assert document(True, server("decode-0", 30001, 21001)).resident is True


def test_a_document_of_before_says_that_arms_were_not_resident() -> None:
    known = document(False, server("colocated-0", 30010, 21010)).model_dump(mode="json")
    del known["resident"]
    assert ArmsDocument.model_validate(known).resident is False
