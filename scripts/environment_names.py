# SPDX-License-Identifier: Apache-2.0
"""Record which environment variables an installed engine knows: tests/unit/data/environment-sglang-VERSION.json.gz.

Run with the engine's own Python, from the checkout: ENGINE/bin/python scripts/environment_names.py

sglang: the fields of its registry (srt/environ.py) and what else its source reads by name. NCCL: the names in
libnccl. UCX: its own list of options, asked of the libraries that come with nixl, and the names in its CUDA module.
torch, setproctitle, huggingface_hub: the names in their libraries and constants. No GPU is needed.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "unit" / "data"
_FIELD = re.compile(r"^ {4}([A-Z][A-Z0-9_]+) = Env", re.MULTILINE)
_READ = re.compile(
    r"(?:environ(?:\.get|\.setdefault)?|getenv|get_bool_env_var|get_int_env_var)[\[(]\s*\"([A-Z][A-Z0-9_]+)\""
)
_UCX = re.compile(r"^UCX_[A-Z0-9_]+", re.MULTILINE)
# UCX's flags for a list that is printed with values and hidden options (ucs/config/parser.h).
_WITH_VALUES_AND_HIDDEN = 1 | 8


def package(name: str) -> Path:
    """The folder of an installed package. Raises SystemExit when this Python does not have it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{name} is not installed here; run this with the engine's own Python")
    return Path(next(iter(spec.submodule_search_locations)))


def sglang_names(root: Path) -> list[str]:
    """Fields of sglang's registry, and variables that its source reads or sets by name."""
    registry = (root / "srt" / "environ.py").read_text(encoding="utf-8")
    found = set(_FIELD.findall(registry))
    for path in (root / "srt").rglob("*.py"):
        found.update(_READ.findall(path.read_text(encoding="utf-8", errors="replace")))
    return sorted(found)


def ucx_names(root: Path) -> list[str]:
    """What UCX's own printer lists, as `ucx_info -c` does; and of its CUDA module, which needs a driver, the texts."""
    mode = os.RTLD_LAZY | os.RTLD_GLOBAL
    libraries = {
        name: ctypes.CDLL(str(next(root.glob(f"lib{name}-*.so*"))), mode=mode) for name in ("ucp", "ucs", "uct")
    }
    for module in (root / "ucx").glob("libuct_*.so*"):
        try:
            ctypes.CDLL(str(module), mode=mode)
        except OSError:
            continue

    class Head(ctypes.Structure):
        _fields_ = [("next", ctypes.c_void_p), ("previous", ctypes.c_void_p)]

    libc, ucs = ctypes.CDLL(None), libraries["ucs"]
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = [ctypes.c_void_p]
    printer = ucs.ucs_config_parser_print_all_opts
    printer.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p]
    with tempfile.NamedTemporaryFile() as kept:
        stream = libc.fopen(kept.name.encode(), b"w")
        printer(
            stream, b"UCX_", _WITH_VALUES_AND_HIDDEN, ctypes.byref(Head.in_dll(ucs, "ucs_config_global_list")), None
        )
        libc.fclose(stream)
        names = set(_UCX.findall(Path(kept.name).read_text(encoding="utf-8", errors="replace")))
    # The CUDA module cannot be loaded without a driver. Its options stand in it as texts, its table's prefix apart.
    for module in (root / "ucx").glob("libuct_cuda.so*"):
        texts = set(re.findall(rb"\0([A-Z][A-Z0-9_]{4,40})(?=\0)", module.read_bytes()))
        names.update(f"UCX_CUDA_IPC_{text.decode()}" for text in texts)
    return sorted(names)


def names_in(files: Iterable[Path], pattern: bytes) -> list[str]:
    """The names in some files that match a pattern."""
    return sorted({name.decode() for path in files for name in re.findall(pattern, path.read_bytes())})


def main() -> int:
    """Write the record and say where."""
    sglang, release = package("sglang"), version("sglang")
    site = sglang.parent
    torch = [*site.glob("torch/lib/libc10*.so"), *site.glob("torch/lib/libtorch_cuda.so")]
    record = {
        "sglang": {"version": release, "names": sglang_names(sglang)},
        "nccl": {
            "version": version("nvidia-nccl-cu13"),
            "names": names_in(site.glob("nvidia/nccl/lib/libnccl.so*"), rb"NCCL_[A-Z0-9_]{2,}"),
        },
        "ucx": {"version": f"nixl-cu13 {version('nixl-cu13')}", "names": ucx_names(site / "nixl_cu13.libs")},
        "torch": {"version": version("torch"), "names": names_in(torch, rb"PYTORCH_[A-Z0-9_]{3,}")},
        "setproctitle": {
            "version": version("setproctitle"),
            "names": names_in(site.glob("setproctitle/*.so"), rb"SPT_[A-Z]+"),
        },
        "huggingface_hub": {
            "version": version("huggingface_hub"),
            "names": names_in([site / "huggingface_hub" / "constants.py"], rb"\bHF_[A-Z_]+"),
        },
    }
    path = FOLDER / f"environment-sglang-{release}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    print(path, {name: len(part["names"]) for name, part in record.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
