# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints that are whole: real safetensors files with an index, of any size."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

MIB = 1024 * 1024


def safetensors(tensors: dict[str, bytes], dtype: str = "U8") -> bytes:
    """A safetensors file of one-dimensional tensors."""
    header, offset = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": dtype, "shape": [len(data)], "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def checkpoint(shard_bytes: int = 64, shards: int = 2, seed: int = 0, **config: Any) -> dict[str, bytes]:
    """All files of a checkpoint, by name; `config` goes into config.json."""
    numbers = random.Random(seed)
    names = [f"model-{number + 1:05d}-of-{shards:05d}.safetensors" for number in range(shards)]
    files = {
        name: safetensors({f"layer.{number}.weight": numbers.randbytes(shard_bytes)})
        for number, name in enumerate(names)
    }
    index = {"weight_map": {f"layer.{number}.weight": name for number, name in enumerate(names)}}
    return {
        "config.json": json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", **config}).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer.json": b"{}",
        "README.md": b"A test's model.\n",
        **files,
    }


def written(folder: Path, files: dict[str, bytes]) -> Path:
    """Put files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
