# SPDX-License-Identifier: Apache-2.0
"""What goes into a bundle: for whom, which lines of a lock, and pdlab itself."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from pdlab import bundle
from pdlab.bundle import BundleError, Target

CHECKOUT = Path(__file__).resolve().parents[3]
LOCK = """# made by hand
a==1 \\
    --hash=sha256:00 \\
    --hash=sha256:01
    # via b
old==1 ; python_full_version < '3.12' \\
    --hash=sha256:02
patch==1 ; python_full_version < '3.12.4' \\
    --hash=sha256:03
windows==1 ; sys_platform == 'win32' \\
    --hash=sha256:04
arm[x]==1 ; platform_machine == 'aarch64' and sys_platform == 'linux' \\
    --hash=sha256:05
"""


def names(lines: list[str]) -> list[str]:
    return [line.split("==")[0] for line in lines]


@pytest.mark.parametrize(
    ("python", "machine", "wanted"),
    [
        ("3.11", "x86_64", ["a", "old", "patch"]),
        # An old and a new patch release of 3.12 want different things: both go in.
        ("3.12", "x86_64", ["a", "patch"]),
        ("3.13", "aarch64", ["a", "arm[x]"]),
    ],
)
def test_the_lines_of_a_lock_are_those_of_the_target_and_not_of_this_machine(
    python: str, machine: str, wanted: list[str]
) -> None:
    target = Target((python,), machine)
    lines = bundle.for_target(LOCK, target.environments(python))
    assert names(lines) == wanted
    assert lines[0] == "a==1 --hash=sha256:00 --hash=sha256:01"
    assert all(";" not in line for line in lines)


@pytest.mark.parametrize("name", ["cuda13.txt", "cpu.txt"])
def test_the_shipped_locks_can_be_read_whole(name: str) -> None:
    text = (CHECKOUT / "roles" / "engine" / "files" / "locks" / name).read_text()
    lines = bundle.for_target(text, Target(("3.12",)).environments("3.12"))
    assert any(line.startswith("sglang==") for line in lines)
    assert all("--hash=sha256:" in line for line in lines)


def test_a_line_without_a_hash_is_refused_with_how_to_get_one() -> None:
    with pytest.raises(BundleError, match="generate-hashes"):
        bundle.for_target("a==1\n", Target(("3.12",)).environments("3.12"))


def test_the_newest_platform_comes_first_and_every_older_one_is_taken() -> None:
    tags = Target(("3.12",), "x86_64", "2.35").platforms()
    assert tags[0] == "manylinux_2_35_x86_64" and "manylinux_2_5_x86_64" in tags
    assert {"manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(tags)
    assert Target(("3.12",), "aarch64", "2.34").platforms()[-1] == "linux_aarch64"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pythons": ("312",)}, "--python 312"),
        ({"pythons": ("3.12",), "glibc": "new"}, "--glibc new"),
        ({"pythons": ("3.12",), "machine": "vax"}, "--machine vax"),
    ],
)
def test_a_target_that_pip_would_misunderstand_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(BundleError, match=said):
        Target(**options)  # type: ignore[arg-type]


def test_an_installed_distribution_is_packed_into_a_wheel_again(tmp_path: Path) -> None:
    made = bundle.installed_wheel("rich", tmp_path)
    with zipfile.ZipFile(made) as archive:
        entries = set(archive.namelist())
        info = next(name.split("/")[0] for name in entries if name.endswith("dist-info/METADATA"))
        recorded = {row[0] for row in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode()))}
    assert made.name == f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    assert recorded == entries
    assert not [name for name in entries if name.endswith((".pyc", "INSTALLER", "REQUESTED"))]


def test_the_sums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"")
    bundle.write_sums(tmp_path)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (tmp_path / "SHA256SUMS").read_text() == f"{empty}  a/b\n"
