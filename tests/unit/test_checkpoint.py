# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is not whole is found out without loading it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.checkpoint import checkpoint_faults, shard_fault


def write_shard(path: Path, *tensors: str, bytes_each: int = 16) -> None:
    header = {
        name: {"dtype": "BF16", "shape": [8], "data_offsets": [index * bytes_each, (index + 1) * bytes_each]}
        for index, name in enumerate(tensors)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(bytes_each * len(tensors)))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "tokenizer.json").write_text("{}")
    weight_map = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    write_shard(tmp_path / "model-1.safetensors", "a", "b")
    write_shard(tmp_path / "model-2.safetensors", "c")
    return tmp_path


def test_a_whole_checkpoint_has_no_fault(sharded: Path) -> None:
    assert checkpoint_faults(str(sharded)) == []


def test_one_file_without_an_index_is_whole_as_well(sharded: Path) -> None:
    for name in ("model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"):
        (sharded / name).unlink()
    assert checkpoint_faults(str(sharded)) == [f"{sharded} holds no weights (no *.safetensors, no index)"]
    write_shard(sharded / "model.safetensors", "a")
    assert checkpoint_faults(str(sharded)) == []


def test_every_missing_shard_is_named(sharded: Path) -> None:
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (sharded / name).unlink()
    assert checkpoint_faults(str(sharded)) == [
        "model-1.safetensors is missing (model.safetensors.index.json names it)",
        "model-2.safetensors is missing (model.safetensors.index.json names it)",
    ]


def test_a_truncated_shard_is_found_by_its_size(sharded: Path) -> None:
    shard = sharded / "model-2.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    (fault,) = checkpoint_faults(str(sharded))
    assert f"model-2.safetensors is truncated: it has {len(whole) - 1} of {len(whole)} bytes" in fault


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is truncated: it has 0 bytes"),
        (b"\x10\0\0\0\0\0\0\0{}", "is truncated: it has 10 bytes and a header of 16"),
        (b"\xff" * 8, "is no safetensors file: its header would be too long"),
        (b"\x02\0\0\0\0\0\0\0xx", "is no safetensors file: its header is not JSON"),
        (b"\x02\0\0\0\0\0\0\0[]", "is no safetensors file: its header is not a mapping"),
        (b"\x08\0\0\0\0\0\0\0" + b'{"a":{}}', "its header has no data_offsets"),
        (b"\x02\0\0\0\0\0\0\0{}x", "is too long: it has 11 of 10 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    ],
)
def test_a_file_that_is_no_whole_shard_says_why(tmp_path: Path, content: bytes, words: str) -> None:
    shard = tmp_path / "model.safetensors"
    shard.write_bytes(content)
    assert words in str(shard_fault(str(shard)))


def test_a_dangling_link_is_named_as_such(sharded: Path) -> None:
    (sharded / "model-2.safetensors").unlink()
    (sharded / "model-2.safetensors").symlink_to("../blobs/gone")
    assert checkpoint_faults(str(sharded)) == [
        "model-2.safetensors is a dangling link (model.safetensors.index.json names it)"
    ]


def test_a_shard_that_lacks_a_tensor_of_the_index_is_found(sharded: Path) -> None:
    write_shard(sharded / "model-1.safetensors", "b")
    (fault,) = checkpoint_faults(str(sharded))
    assert fault.startswith("model-1.safetensors lacks the tensor a ")


def test_config_tokenizer_and_index_are_each_reported(sharded: Path) -> None:
    (sharded / "config.json").write_text("{")
    (sharded / "tokenizer.json").unlink()
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    faults = checkpoint_faults(str(sharded))
    assert [fault.split()[0] for fault in faults] == ["config.json", str(sharded), "model.safetensors.index.json"]


def test_a_path_that_is_not_there_or_no_directory_is_one_fault(tmp_path: Path) -> None:
    assert checkpoint_faults(str(tmp_path / "x")) == [f"{tmp_path / 'x'} does not exist"]
    (tmp_path / "f").write_text("")
    assert checkpoint_faults(str(tmp_path / "f")) == [f"{tmp_path / 'f'} is not a directory"]


def test_a_directory_name_with_brackets_is_no_pattern(sharded: Path) -> None:
    odd = sharded.parent / "model [v1]"
    sharded.rename(odd)
    assert checkpoint_faults(str(odd)) == []


def test_where_the_engine_makes_the_weights_the_rest_must_be_there_all_the_same(sharded: Path) -> None:
    for shard in [*sharded.glob("*.safetensors"), sharded / "model.safetensors.index.json"]:
        shard.unlink()
    assert checkpoint_faults(str(sharded), weights=False) == []
    (sharded / "tokenizer.json").unlink()
    assert "holds no tokenizer" in checkpoint_faults(str(sharded), weights=False)[0]
