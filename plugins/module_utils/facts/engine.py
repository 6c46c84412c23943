# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in the engine's environment, read from its files: nothing is imported, no interpreter is started."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Source

_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>\d[^-]*)\.dist-info")
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"](\d+)\.(\d+)", re.MULTILINE)


def read_engine(source: Source, python: str | None, pythonpath: Sequence[str] = ()) -> dict[str, Any] | None:
    """{"python", "sglang", "torch", "nixl", "cuda_build", "ucx_cuda"} of an environment's interpreter.

    `pythonpath`: folders that stand in front of its own. Below a prefix such as /usr, Debian's dist-packages count, too.
    None when it was not asked for or is not there. `cuda_build` is torch's, as in "cu130"; None for a build without
    CUDA. `ucx_cuda` tells whether UCX's CUDA transports lie beside the NIXL that is installed; None without NIXL.
    """
    if not python or not source.exists(python):
        return None
    home = posixpath.dirname(posixpath.dirname(python))
    folder = next((name for name in source.names(f"{home}/lib") if re.fullmatch(r"python3\.\d+", name)), None)
    own = [f"{home}/lib/{folder}/site-packages", f"{home}/local/lib/{folder}/dist-packages"] if folder else []
    names = {path: source.names(path) for path in (*pythonpath, *own, f"{home}/lib/python3/dist-packages")}
    versions: dict[str, str] = {}
    where: dict[str, str] = {}
    for path, entries in names.items():
        for found in filter(None, map(_DISTRIBUTION.fullmatch, entries)):
            # The first folder wins, as in Python's own import.
            if where.setdefault(found["name"].lower(), path) == path:
                versions[found["name"].lower()] = found["version"]
    nixl = sorted(name for name in versions if re.fullmatch(r"nixl(_cu\d+)?", name))
    torch = versions.get("torch")
    return {
        "python": _python_version(source, home) or (folder[len("python") :] if folder else None),
        "sglang": versions.get("sglang"),
        "torch": torch,
        "nixl": versions[nixl[-1]] if nixl else None,
        "cuda_build": _cuda_build(source, where["torch"], torch) if torch else None,
        "ucx_cuda": _has_ucx_cuda(source, {where[name]: names[where[name]] for name in nixl}) if nixl else None,
    }


def _python_version(source: Source, home: str) -> str | None:
    found = re.search(
        r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", source.text(f"{home}/pyvenv.cfg") or "", re.MULTILINE
    )
    return found.group(1) if found else None


def _cuda_build(source: Source, packages: str, torch: str | None) -> str | None:
    found = _CUDA.search(source.text(f"{packages}/torch/version.py") or "")
    if found:
        return f"cu{found.group(1)}{found.group(2)}"
    local = (torch or "").partition("+")[2]
    return local if local.startswith("cu") else None


def _has_ucx_cuda(source: Source, names: Mapping[str, Sequence[str]]) -> bool | None:
    """A wheel carries its libraries in NAME.libs (auditwheel's layout), UCX's modules in ucx/ below it."""
    libraries = [(path, name) for path, entries in names.items() for name in entries]
    folders = [f"{path}/{name}/ucx" for path, name in libraries if re.fullmatch(r"\.?nixl.*\.libs", name)]
    modules = [module for folder in folders for module in source.names(folder)]
    if not any(module.startswith("libuct") for module in modules):
        # Built from source, it uses a UCX that lies elsewhere.
        return None
    return any(module.startswith("libuct_cuda") and ".so" in module for module in modules)
