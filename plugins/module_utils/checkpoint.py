# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a checkpoint on disk is whole, found out without loading it.

A safetensors file begins with the length of its JSON header (8 bytes, little-endian) and that header, which gives
the last byte of its last tensor: a truncated shard shows by its size (safetensors' README, "Format").
"""

from __future__ import annotations

import glob
import json
import os
import struct
from typing import Any

CONFIG = "config.json"
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf")
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "*.tiktoken",
    "tiktoken.model",
)
LFS_POINTER = b"version https://git-lfs"
# The limit of safetensors itself.
LONGEST_HEADER_BYTES = 100_000_000


def checkpoint_faults(path: str, weights: bool = True) -> list[str]:
    """Return what is wrong with the checkpoint in the directory `path`, one line a fault; empty when it is whole.

    Reads config.json, the index, and the header of every shard; no tensor. Without `weights` none need be there.
    """
    if not os.path.isdir(path):
        return [f"{path} is not a directory" if os.path.exists(path) else f"{path} does not exist"]
    try:
        names = set(os.listdir(path))
    except OSError as error:
        return [f"{path} cannot be read: {error.strerror}"]
    faults = _config_faults(path)
    if not any(glob.glob(os.path.join(glob.escape(path), pattern)) for pattern in TOKENIZERS):
        faults.append(f"{path} holds no tokenizer (none of {', '.join(TOKENIZERS)})")
    if not weights:
        return faults
    index = next((name for name in INDICES if name in names), None)
    if index is not None:
        return faults + _index_faults(path, index)
    shards = sorted(name for name in names if name.endswith(".safetensors"))
    if not shards and not any(glob.glob(os.path.join(glob.escape(path), pattern)) for pattern in OTHER_WEIGHTS):
        faults.append(f"{path} holds no weights (no *.safetensors, no index)")
    for shard in shards:
        fault = shard_fault(os.path.join(path, shard))
        faults += [f"{shard}: {fault}"] if fault else []
    return faults


def shard_fault(path: str) -> str | None:
    """Say why a safetensors file is not whole, or None when it is."""
    fault, _header = _read_header(path)
    return fault


def header_of(path: str) -> dict[str, Any]:
    """The tensors of a whole safetensors file, each with dtype, shape and data_offsets; empty for any other file."""
    _fault, header = _read_header(path)
    return header


def _read_header(path: str) -> tuple[str | None, dict[str, Any]]:
    """(what is wrong, the tensors by their names) of a safetensors file."""
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(8)
            if (start + stream.read(32)).startswith(LFS_POINTER):
                return "is a Git LFS pointer, not the weights: fetch them with `git lfs pull`", {}
            if size < 8:
                return f"is truncated: it has {size} bytes", {}
            (length,) = struct.unpack("<Q", start)
            if length > LONGEST_HEADER_BYTES:
                return "is no safetensors file: its header would be too long", {}
            stream.seek(8)
            header = json.loads(stream.read(length)) if 8 + length <= size else None
    except FileNotFoundError:
        return "is a dangling link" if os.path.islink(path) else "is missing", {}
    except OSError as error:
        return f"cannot be read: {error.strerror}", {}
    except ValueError:
        return "is no safetensors file: its header is not JSON", {}
    if header is None:
        return f"is truncated: it has {size} bytes and a header of {length}", {}
    if not isinstance(header, dict):
        return "is no safetensors file: its header is not a mapping", {}
    try:
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
    except (KeyError, IndexError, TypeError):
        return "is no safetensors file: its header has no data_offsets", {}
    if size != whole:
        return f"is {'truncated' if size < whole else 'too long'}: it has {size} of {whole} bytes", {}
    return None, {name: entry for name, entry in header.items() if name != "__metadata__"}


def _config_faults(path: str) -> list[str]:
    fault, config = _read_json(os.path.join(path, CONFIG))
    if fault:
        return [f"{CONFIG} {fault}"]
    if not config.get("architectures") and not config.get("model_type"):
        return [f"{CONFIG} names neither architectures nor model_type"]
    return []


def _index_faults(path: str, index: str) -> list[str]:
    """Every shard that the index names and that is missing, truncated, or lacks a tensor."""
    fault, content = _read_json(os.path.join(path, index))
    weight_map = content.get("weight_map")
    if fault:
        return [f"{index} {fault}"]
    if not isinstance(weight_map, dict) or not weight_map:
        return [f"{index} has no weight_map"]
    wanted: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        wanted.setdefault(str(shard), set()).add(tensor)
    faults = []
    for shard in sorted(wanted):
        full = os.path.join(path, shard)
        if not shard.endswith(".safetensors"):
            faults += [] if os.path.exists(full) else [f"{shard} is missing ({index} names it)"]
            continue
        fault, tensors = _read_header(full)
        lacking = sorted(wanted[shard] - set(tensors))
        if fault:
            faults.append(f"{shard} {fault} ({index} names it)")
        elif lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            faults.append(f"{shard} lacks the tensor {lacking[0]}{more} ({index} says it is there)")
    return faults


def _read_json(path: str) -> tuple[str | None, dict[str, Any]]:
    """(what is wrong, the content) of a JSON file that holds a mapping."""
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    except FileNotFoundError:
        return "is missing", {}
    except OSError as error:
        return f"cannot be read: {error.strerror}", {}
    except ValueError as error:
        return f"is no JSON: {error}", {}
    return (None, content) if isinstance(content, dict) else ("holds no mapping", {})
