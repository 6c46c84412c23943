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
    warmup_load,
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
    argv = client_argv({**GOOD_POINT, "limits": [{"ttft_ms": 500}]}, {**TARGET, "sglang": version})
    assert ("--goodput" in argv, "--cache-report" in argv) == (there, True)


def test_the_deployed_engine_says_its_version(tmp_path: Path) -> None:
    assert deployed_version(str(tmp_path)) is None
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "pdlab-lock.json").write_text('{"packages": {"sglang": "0.5.17"}}')
    assert deployed_version(str(tmp_path)) == "0.5.17"


def test_the_clients_command_line_asks_for_exactly_this_point() -> None:
    argv = client_argv(GOOD_POINT, TARGET)
    assert argv[:3] == ["/opt/pdlab/engine/bin/python", "-m", "sglang.benchmark.serving"]
    seen = flags(argv)
    assert (seen["--gsp-question-len"], seen["--gsp-output-len"], seen["--gsp-range-ratio"]) == (
        ["63"],
        ["32"],
        ["1.0"],
    )
    assert (seen["--max-concurrency"], seen["--num-prompts"], seen["--seed"]) == (["4"], ["12"], ["42"])
    assert seen["--tokenize-prompt"] == []
    assert seen["--tokenizer"] == ["/opt/pd lab/models/canary"]
    assert seen["--output-details"] == [] and seen["--cache-report"] == []
    # Warmed up and emptied before the client is let go, for every pair and every worker.
    assert seen["--warmup-requests"] == ["0"] and "--flush-cache" not in seen
    assert "--disable-tqdm" not in seen


@pytest.mark.parametrize("ratio", [0, 0.0, 0.5, 1, 1.0])
def test_the_range_ratio_is_always_passed(ratio: float) -> None:
    argv = client_argv({**GOOD_POINT, "range_ratio": ratio}, TARGET)
    flag = "--random-range-ratio" if ratio < 1 else "--gsp-range-ratio"
    assert argv[argv.index(flag) + 1] == str(float(ratio))


def test_no_two_prompts_are_alike_where_the_client_can_draw_each_id_by_itself() -> None:
    seen = flags(client_argv(GOOD_POINT, TARGET))
    assert seen["--dataset-name"] == ["generated-shared-prefix"]
    # A prefix of one token for each prompt: no prefix is shared.
    assert (seen["--gsp-num-groups"], seen["--gsp-prompts-per-group"]) == (["12"], ["1"])
    assert seen["--gsp-system-prompt-len"] == ["1"]


@pytest.mark.parametrize("change", [{"range_ratio": 0.5}, {"input_len": 1}, {"sglang": "0.5.17"}])
def test_elsewhere_prompts_are_the_clients_random_ids(change: dict[str, Any]) -> None:
    target = {**TARGET, "sglang": change.get("sglang")}
    assert flags(client_argv({**GOOD_POINT, **change}, target))["--dataset-name"] == ["random-ids"]


def test_further_flags_are_passed_on_and_those_of_the_point_are_refused() -> None:
    argv = client_argv(GOOD_POINT, {**TARGET, "args": {"tag": "a b", "top-p": 0.9}})
    assert flags(argv)["--top-p"] == ["0.9"]
    assert flags(argv)["--tag"] == ["a b"]
    with pytest.raises(ValueError, match="random_range_ratio, --seed"):
        client_argv(GOOD_POINT, {**TARGET, "args": {"random_range_ratio": 0.5, "--seed": 1}})


def test_every_flag_that_is_passed_belongs_to_the_point() -> None:
    own = {flag[2:] for flag in flags(client_argv(GOOD_POINT, TARGET))}
    assert own - OWN_FLAGS == {"ready-check-timeout-sec"}


def test_a_warm_up_has_the_points_own_concurrency_and_two_requests_for_each_pair() -> None:
    assert warmup_load(GOOD_POINT) == (4, 4)
    assert warmup_load({**GOOD_POINT, "concurrency": 64}) == (64, 64)
    assert warmup_load({**GOOD_POINT, "concurrency": 1}, pairs=12) == (24, 1)
    assert warmup_load(GOOD_POINT, requests=9) == (9, 4)
    assert warmup_load(OPEN_POINT) == (8, 8)
    assert warmup_load({**OPEN_POINT, "rate_s": 0.1}, pairs=2) == (4, 1)
    assert warmup_load({**OPEN_POINT, "rate_s": 900}) == (64, 64)


OPEN_POINT: dict[str, Any] = {**GOOD_POINT, "loop": "open", "concurrency": None, "rate_s": 2.0}


def test_an_open_loop_asks_for_a_rate_and_for_no_limit_of_requests_in_flight() -> None:
    seen = flags(client_argv(OPEN_POINT, TARGET))
    assert seen["--request-rate"] == ["2.0"] and "--max-concurrency" not in seen
    assert "--request-rate" not in flags(client_argv(GOOD_POINT, TARGET))


def test_the_first_limits_of_a_point_are_the_clients_goodput() -> None:
    limits = [{"ttft_ms": 500, "tpot_ms": 12.5, "e2e_ms": None}, {"e2e_ms": 9000}]
    assert flags(client_argv({**GOOD_POINT, "limits": limits}, TARGET))["--goodput"] == ["ttft:500", "tpot:12.5"]
    assert flags(client_argv({**GOOD_POINT, "limits": [{"e2e_ms": 9000}]}, TARGET))["--goodput"] == ["e2el:9000"]
    assert "--goodput" not in flags(client_argv({**GOOD_POINT, "limits": []}, TARGET))


def test_prompts_that_share_prefixes_have_exactly_the_points_length() -> None:
    point = {**GOOD_POINT, "dataset": "shared-prefix", "prefix_groups": 3, "prefix_len": 48}
    seen = flags(client_argv(point, TARGET))
    assert seen["--dataset-name"] == ["generated-shared-prefix"]
    assert (seen["--gsp-num-groups"], seen["--gsp-prompts-per-group"]) == (["3"], ["4"])
    assert (seen["--gsp-system-prompt-len"], seen["--gsp-question-len"]) == (["48"], ["16"])
    assert seen["--gsp-range-ratio"] == ["1.0"] and "--random-input-len" not in seen


def test_the_client_gets_what_an_existing_engine_needs_to_be_imported() -> None:
    needed = {"SGLANG_IS_FLASHINFER_AVAILABLE": "false"}
    found = client_environment("/usr/bin/python3", ["/srv/site"], needed)
    assert found["SGLANG_IS_FLASHINFER_AVAILABLE"] == "false" and found["PYTHONPATH"] == "/srv/site"
    assert "SGLANG_IS_FLASHINFER_AVAILABLE" not in client_environment("/usr/bin/python3")


def test_the_client_never_asks_a_model_hub() -> None:
    environment = client_environment(TARGET["python"])
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert environment["PATH"].startswith("/opt/pdlab/engine/bin:")
    assert json.dumps(environment)
