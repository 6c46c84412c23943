# SPDX-License-Identifier: Apache-2.0
"""Which pdlab makes a page here: its version, the hash of its source, the libraries whose output is in the page."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pdlab import __version__
from pdlab.collection import collection_root

LIBRARIES = ("jinja2", "markupsafe", "plotly", "pydantic", "scipy")
SOURCE_HASH = "source_sha256"

PACKAGE = Path(__file__).resolve().parent.parent


@functools.cache
def made_by() -> dict[str, str]:
    """{"pdlab": VERSION, "source_sha256": HEX, "plotly": VERSION, ...}. Equal on two machines: equal pages."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"pdlab": __version__, SOURCE_HASH: source_sha256(), "python": python}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def source_sha256() -> str:
    """One hash over pdlab's Python, the report's own files, and what both share with the modules.

    A checkout says the same version for months: its version alone does not tell which code made a page.
    """
    shared = collection_root() / "plugins" / "module_utils"
    wanted = [path for path in PACKAGE.rglob("*") if path.suffix == ".py" or (PACKAGE / "report") in path.parents]
    # A wheel carries other things below the package, which make no page.
    wanted = [path for path in wanted if "__pycache__" not in path.parts and path.is_file()]
    named = {f"pdlab/{path.relative_to(PACKAGE).as_posix()}": path for path in wanted}
    named |= {f"module_utils/{path.relative_to(shared).as_posix()}": path for path in shared.rglob("*.py")}
    whole = hashlib.sha256()
    for name in sorted(named):
        whole.update(f"{hashlib.sha256(named[name].read_bytes()).hexdigest()}  {name}\n".encode())
    return whole.hexdigest()


def differences(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs between two makers, in words; empty when they make the same pages."""
    names = sorted(then.keys() | now.keys(), key=lambda name: (name != "pdlab", name == SOURCE_HASH, name))
    found = [
        f"{name} {then.get(name, 'none')}, here {now.get(name, 'none')}"
        for name in names
        if name != SOURCE_HASH and then.get(name) != now.get(name)
    ]
    if then.get(SOURCE_HASH) != now.get(SOURCE_HASH) and not any(line.startswith("pdlab ") for line in found):
        found.insert(0, f"pdlab {then.get('pdlab', 'none')} of another source tree")
    return found
