#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record the metrics that the installed engine and router can show, for tests that have no engine.

    PYTHON-OF-THE-ENGINE scripts/metric_names.py tests/unit/data/engine-VERSION/metric-names.json

Run it with the engine's own Python. SGLang's are read from its source: a counter shows only after it counted for the
first time, so a live server never shows all of them. The router is a compiled library, and its names stand in it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "GaugeHistogram": "gauge"}
_ROUTER_NAME = re.compile(rb"smg_(?:http|router|worker|discovery|mcp|db|manual)_[a-z_]+?(?=[A-Z])")


def package(name: str) -> Path:
    """The folder of an installed package."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{name} is not installed in {sys.executable}: run this with the engine's own Python")
    return Path(spec.origin).parent


def engine_names(folder: Path) -> dict[str, str]:
    """Each metric that a source file below `folder` makes, with its kind."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "sglang:" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
                kind = KINDS.get(node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
                given = [word.value for word in node.keywords if word.arg == "name"] + node.args[:1]
                for name in given if kind else ():
                    if isinstance(name, ast.Constant) and str(name.value).startswith("sglang:"):
                        found[str(name.value)] = str(kind)
    return found


def router_names(library: bytes) -> dict[str, str]:
    """Each metric whose description follows its name in the router's library; the kind is what its name says."""
    found = {}
    for name in sorted({match.decode() for match in _ROUTER_NAME.findall(library)}):
        kind = "counter" if name.endswith("_total") else "histogram" if name.endswith("_seconds") else "gauge"
        found[name] = kind
    return found


def main() -> None:
    library = next(package("sglang_router").glob("*.so"))
    names = {**engine_names(package("sglang") / "srt"), **router_names(library.read_bytes())}
    versions = {name: version(name) for name in ("sglang", "sglang-router")}
    document = {"versions": versions, "names": dict(sorted(names.items()))}
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{len(names)} metrics: {versions}")


if __name__ == "__main__":
    main()
