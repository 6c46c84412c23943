# SPDX-License-Identifier: Apache-2.0
"""Put the locked uv into a directory with nothing but Python's standard library: for machines without pip.

python3 scripts/get_uv.py VERSION LOCK DIRECTORY

The wheel comes from PyPI and must have one of the hashes that LOCK gives for uv.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import sys
import urllib.request
import zipfile
from pathlib import Path

INDEX = "https://pypi.org/simple/uv/"
TAGS = {
    ("Linux", "x86_64"): "manylinux_2_17_x86_64",
    ("Linux", "aarch64"): "manylinux_2_28_aarch64",
    ("Darwin", "arm64"): "macosx_11_0_arm64",
    ("Darwin", "x86_64"): "macosx_10_12_x86_64",
}


def locked_hashes(lock: str, version: str) -> set[str]:
    """The SHA-256 hashes of uv in a requirements file with hashes. Raises ValueError when it locks another version."""
    match = re.search(rf"^uv=={re.escape(version)} \\\n((?:    --hash=sha256:[0-9a-f]+(?: \\)?\n)+)", lock, re.M)
    if match is None:
        raise ValueError(f"the lock does not hold uv=={version} with hashes")
    return set(re.findall(r"sha256:([0-9a-f]+)", match[1]))


def main(version: str, lock: Path, directory: Path) -> None:
    """Fetch, check, unpack the binary."""
    hashes = locked_hashes(lock.read_text(encoding="utf-8"), version)
    tag = TAGS.get((platform.system(), platform.machine()))
    if tag is None:
        sys.exit(f"no uv for {platform.system()} {platform.machine()} is known here; install uv yourself")
    with urllib.request.urlopen(INDEX, timeout=60) as reply:
        page = reply.read().decode()
    link = re.search(rf'href="(https://[^"#]+/uv-{re.escape(version)}-py3-none-[^"#]*{tag}[^"#]*\.whl)', page)
    if link is None:
        sys.exit(f"{INDEX} has no wheel of uv {version} for {tag}; install uv yourself")
    url = link[1]
    with urllib.request.urlopen(url, timeout=300) as reply:  # noqa: S310 - a https address that PyPI gave
        wheel = reply.read()
    if hashlib.sha256(wheel).hexdigest() not in hashes:
        sys.exit(f"{url} has none of the hashes in {lock}")
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        name = next(item for item in archive.namelist() if item.endswith("/scripts/uv"))
        target = directory / "uv"
        target.write_bytes(archive.read(name))
    target.chmod(0o755)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
