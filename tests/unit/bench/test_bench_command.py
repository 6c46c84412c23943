# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_command import (
    OWN_FLAGS,
    client_argv,
    client_environment,
    warmup_requests,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_versions import deployed_version

from tests.unit.bench.recorded import GOOD_POINT

TARGET: dict[str, Any] = {
    "python": "/opt/pdlab/engine/bin/python",
    "base_url": "http://127.0.0.1:8000",
    "served_name": "canary",
    "tokenizer": "/opt/pd lab/models/canary",
    "output_file": "/opt/pdlab/bench/r/c4-n12.jsonl",
}


def flags(argv: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in argv[3:]:
        if item.startswith("--"):
            found[item] = []
        else:
            found[list(found)[-1]].append(item)
    return found


@pytest.mark.parametrize(("version", "there"), [("0.5.17", False), ("0.5.23", True), (None, True)])
def test_a_flag_that_an_older_client_lacks_is_left_out(version: str | None, there: bool) -> None:
    argv = client_argv(GOOD_POINT, {**TARGET, "sglang": version})
    assert ("--flush-cache-timeout" in argv, "--flush-cache" in argv) == (there, True)


def test_the_deployed_engine_says_its_version(tmp_path: Path) -> None:
    assert deployed_version(str(tmp_path)) is None
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "pdlab-lock.json").write_text('{"packages": {"sglang": "0.5.17"}}')
    assert deployed_version(str(tmp_path)) == "0.5.17"


def test_the_clients_command_line_asks_for_exactly_this_point() -> None:
    argv = client_argv(GOOD_POINT, TARGET)
    assert argv[:3] == ["/opt/pdlab/engine/bin/python", "-m", "sglang.benchmark.serving"]
    seen = flags(argv)
    assert seen["--random-range-ratio"] == ["1.0"]
    assert (seen["--random-input-len"], seen["--random-output-len"]) == (["64"], ["32"])
    assert (seen["--max-concurrency"], seen["--num-prompts"], seen["--seed"]) == (["4"], ["12"], ["42"])
    assert seen["--dataset-name"] == ["random-ids"] and seen["--tokenize-prompt"] == []
    assert seen["--tokenizer"] == ["/opt/pd lab/models/canary"]
    assert seen["--output-details"] == [] and seen["--flush-cache"] == []
    assert "--disable-tqdm" not in seen


@pytest.mark.parametrize("ratio", [0, 0.0, 0.5, 1, 1.0])
def test_the_range_ratio_is_always_passed(ratio: float) -> None:
    argv = client_argv({**GOOD_POINT, "range_ratio": ratio}, TARGET)
    assert argv[argv.index("--random-range-ratio") + 1] == str(float(ratio))


def test_further_flags_are_passed_on_and_those_of_the_point_are_refused() -> None:
    argv = client_argv(GOOD_POINT, {**TARGET, "args": {"goodput": ["ttft:500", "tpot:50"], "tag": "a b"}})
    assert flags(argv)["--goodput"] == ["ttft:500", "tpot:50"]
    assert flags(argv)["--tag"] == ["a b"]
    with pytest.raises(ValueError, match="random_range_ratio, --seed"):
        client_argv(GOOD_POINT, {**TARGET, "args": {"random_range_ratio": 0.5, "--seed": 1}})


def test_every_flag_that_is_passed_belongs_to_the_point() -> None:
    own = {flag[2:] for flag in flags(client_argv(GOOD_POINT, TARGET))}
    assert own - OWN_FLAGS == {"ready-check-timeout-sec", "flush-cache-timeout"}


def test_the_warm_up_meets_every_pair_twice_and_comes_near_the_points_load() -> None:
    assert warmup_requests(1) == 2
    assert warmup_requests(4) == 4
    assert warmup_requests(64) == 16
    assert warmup_requests(1, pairs=12) == 24
    argv = client_argv(GOOD_POINT, {**TARGET, "warmup": 0})
    assert flags(argv)["--warmup-requests"] == ["0"]


def test_the_client_never_asks_a_model_hub() -> None:
    environment = client_environment(TARGET["python"], "/opt/pdlab")
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert environment["PATH"].startswith("/opt/pdlab/engine/bin:")
    assert json.dumps(environment)
