# SPDX-License-Identifier: Apache-2.0
"""The parts of the rehearsal in the engine's own Python, each by itself: seconds instead of a whole deployment.

That Python is PDLAB_TEST_ENGINE_PYTHON, or else the one that the other tests of this folder have built.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
UTILS = CHECKOUT / "plugins" / "module_utils"
ROOT = Path(os.environ.get("PDLAB_TEST_ROOT", Path.home() / ".cache" / "pdlab-e2e"))
LIMIT_S = 400


@pytest.fixture(scope="module")
def engine() -> str:
    """The engine's interpreter."""
    python = os.environ.get("PDLAB_TEST_ENGINE_PYTHON") or str(ROOT / "engine" / "bin" / "python")
    if not os.access(python, os.X_OK):
        pytest.fail(f"no engine at {python}: deploy one, or name its Python in PDLAB_TEST_ENGINE_PYTHON")
    return python


def run(python: str, *arguments: str, platform: str | None = "pdlab_cpu") -> str:
    """stdout of a run in the engine's Python, from a neutral folder; a failure shows stderr."""
    env = {name: value for name, value in os.environ.items() if name not in ("SGLANG_PLATFORM", "PYTHONPATH")}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"} | ({"SGLANG_PLATFORM": platform} if platform else {})
    done = subprocess.run([python, *arguments], capture_output=True, text=True, timeout=LIMIT_S, env=env, cwd="/")
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


@pytest.fixture(scope="module")
def canary(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A canary of seed 5."""
    folder = tmp_path_factory.mktemp("canary") / "model"
    assert "canary model in" in run(engine, "-m", "pdlab_rehearsal.canary", str(folder), "--seed", "5")
    return folder


def test_a_seed_gives_the_same_weights_twice_and_replaces_an_older_canary(engine: str, canary: Path) -> None:
    first = {path.name: path.read_bytes() for path in canary.iterdir()}
    run(engine, "-m", "pdlab_rehearsal.canary", str(canary), "--seed", "5")
    assert {path.name: path.read_bytes() for path in canary.iterdir()} == first
    assert [path.name for path in canary.parent.iterdir()] == [canary.name]


def test_the_canary_is_the_llama_that_others_take_it_for(engine: str, canary: Path) -> None:
    code = """
import sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from pdlab_rehearsal import canary, llama
folder = sys.argv[1]
theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
ours = llama.Llama(llama.Shape(vocab_size=theirs.config.vocab_size))
ours.load_state_dict({name: weight.float() for name, weight in load_file(folder + "/model.safetensors").items()})
tokenizer = AutoTokenizer.from_pretrained(folder)
text = tokenizer.apply_chat_template([{"role": "user", "content": "Who are you?"}], tokenize=False,
                                     add_generation_prompt=True)
assert text == canary.prompt_text("Who are you?"), text
ids = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids * 40])
with torch.inference_mode():
    print(float((theirs(ids).logits - ours.lm_head(ours.model(ids))).abs().max()))
"""
    assert float(run(engine, "-c", code, str(canary)).split()[-1]) < 1e-3


def test_a_canary_of_more_heads_is_the_same_model_and_every_rank_has_kv_cache_that_counts(
    engine: str, canary: Path
) -> None:
    code = """
import sys, torch
from safetensors.torch import load_file
from pdlab_rehearsal import canary, llama
weights = load_file(sys.argv[1] + "/model.safetensors")
narrow = llama.Llama(llama.Shape(vocab_size=weights["lm_head.weight"].shape[0])).to(torch.bfloat16)
narrow.load_state_dict(weights)
wide = canary.with_heads(narrow, 8)
print(wide.shape.config(eos_token_id=1, pad_token_id=0)["num_key_value_heads"], canary.wrong_answers(wide, canary.make_tokenizer()))
# Of four ranks with two heads each, none can be left out.
for rank in range(4):
    torn = canary.with_heads(narrow, 8)
    torn.model.layers[1].self_attn.v_proj.weight.data[rank * 128 : (rank + 1) * 128] = 0
    ids = torch.arange(5, 69).reshape(1, -1)
    with torch.inference_mode():
        print(float((wide.model(ids) - torn.model(ids)).abs().max()) > 0.1)
"""
    assert run(engine, "-c", code, str(canary)).splitlines() == ["8 []", *["True"] * 4]


def test_the_platform_is_taken_when_named_and_only_then(engine: str) -> None:
    code = "from sglang.srt.platforms import current_platform as p; print(type(p).__name__, p.is_out_of_tree())"
    assert run(engine, "-W", "ignore", "-c", code).split()[-2:] == ["RehearsalPlatform", "True"]
    assert "RehearsalPlatform" not in run(engine, "-W", "ignore", "-c", code, platform=None)


def test_the_hooks_reach_sglang_when_named_and_only_then(engine: str) -> None:
    code = """
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.disaggregation.nixl import conn
print(conn._normalize_kv_mem_kinds(None, 2), hasattr(conn.NixlKVManager.__init__, "__wrapped__"))
"""
    assert run(engine, "-W", "ignore", "-c", code).splitlines()[-1] == "['DRAM', 'DRAM'] True"
    assert run(engine, "-W", "ignore", "-c", code, platform=None).splitlines()[-1] == "['VRAM', 'VRAM'] False"


def test_host_memory_really_moves_through_nixl_and_ucx(engine: str) -> None:
    document = json.loads(run(engine, str(UTILS / "nixl_probe.py"), "--memory", "dram", "--bytes", "33554432"))
    assert document["ok"] is True
    assert document["bytes"] == 33554432
    assert document["gib_s"] > 0
    assert document["transport"]
    assert document["ucx_version"]


def test_collectives_are_timed_in_groups_of_ranks(engine: str) -> None:
    arguments = ["--backend", "gloo", "--ranks", "2,3", "--large-bytes", "1048576"]
    document = json.loads(run(engine, str(UTILS / "allreduce_probe.py"), *arguments))
    assert document["ok"] is True
    assert [row["ranks"] for row in document["groups"]] == [2, 3]
    assert all(row["latency_us"] > 0 and row["bus_gib_s"] > 0 and row["why"] is None for row in document["groups"])


def test_a_collective_that_hangs_is_told_within_the_time_limit_and_leaves_no_process(engine: str) -> None:
    arguments = ["--backend", "gloo", "--ranks", "2,3", "--timeout-s", "20"]
    argv = [engine, str(UTILS / "allreduce_probe.py"), *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as probe:
        children = Path(f"/proc/{probe.pid}/task/{probe.pid}/children")
        ranks: list[str] = []
        while len(ranks) < 2:
            assert probe.poll() is None
            ranks = children.read_text().split()
        os.kill(int(ranks[1]), signal.SIGSTOP)  # as a GPU does that waits for a peer which it cannot reach
        out, _ = probe.communicate(timeout=60)
    document = json.loads(out)
    assert probe.returncode == 1
    assert "all-reduce among 2 ranks: it hangs: " in document["why"]
    assert "rank 1 (GPU 1) in its" in document["why"]
    assert [row["ranks"] for row in document["groups"]] == [2], "no further group after a hang"
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]


def test_the_flag_table_is_that_of_the_installed_engine(engine: str, tmp_path: Path) -> None:
    run(engine, "-W", "ignore", str(UTILS / "flag_table.py"), str(tmp_path / "flags.json"))
    table = json.loads((tmp_path / "flags.json").read_text())
    flags = {name: flag for flag in table["flags"] for name in flag["names"]}
    assert table["version"] == "0.5.23"
    assert "nixl" in flags["--disaggregation-transfer-backend"]["choices"]
    assert flags["--disable-overlap-schedule"]["action"] == "store_true"
    router = {name: flag for flag in table["router"]["flags"] for name in flag["names"]}
    assert table["router"]["version"] == "0.3.2"
    assert "round_robin" in router["--policy"]["choices"]
