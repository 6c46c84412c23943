# SPDX-License-Identifier: Apache-2.0
"""Write the published JSON Schemas: docs/schemas/<name>.json, one a document that pdlab prints with --json.

python scripts/schemas.py            write them
python scripts/schemas.py --check    write nothing, exit 1 and name those that differ
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pdlab import explanation, preflight, status, topology
from pdlab.export import table
from pdlab.ledger import explained, manifest, verify
from pdlab.results import model as results

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"

Schemas = dict[str, dict[str, Any]]

# Each entry gives JSON Schemas by document name. A new document is one more row here.
REGISTRY: list[Callable[[], Schemas]] = [
    results.schemas,
    lambda: {"plan": topology.Plan.model_json_schema()},
    lambda: {"preflight": preflight.Preflight.model_json_schema()},
    lambda: {"export": table.Export.model_json_schema()},
    lambda: {"manifest": manifest.Manifest.model_json_schema()},
    lambda: {"figure": explained.Explained.model_json_schema(mode="serialization")},
    lambda: {"verify-run": verify.RunVerification.model_json_schema()},
    lambda: {"status": status.Status.model_json_schema()},
    explanation.schemas,
]


def published() -> dict[str, str]:
    """The text of each schema file, by its name."""
    found: dict[str, str] = {}
    for source in REGISTRY:
        for name, schema in source().items():
            head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"pdlab/{name}.json"}
            found[f"{name}.json"] = json.dumps({**head, **schema}, indent=2) + "\n"
    return found


def stale(folder: Path = FOLDER) -> list[str]:
    """The files in `folder` that differ from the models: changed, missing, or of a document that is no more."""
    wanted = published()
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main(arguments: list[str]) -> int:
    differ = stale()
    if arguments == ["--check"]:
        for name in differ:
            print(f"docs/schemas/{name} is not what the models say; run: python scripts/schemas.py", file=sys.stderr)
        return 1 if differ else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = published()
    for name in differ:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
        print(f"docs/schemas/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
