# SPDX-License-Identifier: Apache-2.0
"""Overlays: what a manifest may say, what fits a file, what is found when somebody was there in between."""

from __future__ import annotations

import base64
import csv
import difflib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import environment_files as files
from ansible_collections.pdlab.pdlab.plugins.module_utils import overlay
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import OverlayError

OLD = {"pkg/a.py": "one\ntwo\n", "pkg/b.py": "x = 1\n"}
NEW = {"pkg/a.py": "one\nTWO\n", "pkg/b.py": "x = 2\n"}


def sha(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def diff(path: str, old: str | None, new: str | None) -> str:
    names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    lines = [(text or "").splitlines(keepends=True) for text in (old, new)]
    return "".join(difflib.unified_diff(*lines, *names))


def entry(patch: str, changes: Mapping[str, tuple[str | None, str | None]], **more: Any) -> dict[str, Any]:
    sums = {}
    for path, (old, new) in changes.items():
        both = {"before": sha(old), "after": sha(new)}
        sums[path] = {side: value for side, value in both.items() if value}
    return {"patch": patch, "distribution": "pkg", "version": "1.0", "reason": "a test", "files": sums, **more}


def made(*patches: tuple[str, Mapping[str, tuple[str | None, str | None]]]) -> dict[str, Any]:
    texts = {name: "".join(diff(path, *pair) for path, pair in changes.items()) for name, changes in patches}
    faults = Faults()
    document = overlay.document_of({"patches": [entry(*patch) for patch in patches]}, texts, faults)
    assert document is not None, list(map(str, faults))
    return document


BOTH = ("1.patch", {path: (OLD[path], NEW[path]) for path in OLD})


def reader(contents: Mapping[str, str | None]) -> overlay.Reader:
    return lambda path: None if contents.get(path) is None else str(contents[path]).encode()


def test_a_fitting_overlay_is_applied_and_taken_back() -> None:
    document = made(BOTH)
    after = overlay.applied(document, {"pkg": "1.0"}, reader(OLD))
    assert {path: content.decode() for path, content in after.items() if content} == NEW
    assert overlay.changed_files(document, reader(NEW)) == []
    back = overlay.taken_back(document, reader(NEW))
    assert {path: content.decode() for path, content in back.items() if content} == OLD


def test_patches_of_one_file_follow_each_other_and_new_and_removed_files_are_files_too() -> None:
    document = made(
        ("1.patch", {"pkg/a.py": ("one\n", "two\n"), "pkg/new.py": (None, "n\n")}),
        ("2.patch", {"pkg/a.py": ("two\n", "three\n"), "pkg/gone.py": ("g\n", None)}),
    )
    before = {"pkg/a.py": "one\n", "pkg/gone.py": "g\n"}
    after = overlay.applied(document, {"pkg": "1.0"}, reader(before))
    assert after == {"pkg/a.py": b"three\n", "pkg/new.py": b"n\n", "pkg/gone.py": None}
    back = overlay.taken_back(document, reader({"pkg/a.py": "three\n", "pkg/new.py": "n\n"}))
    assert back == {"pkg/a.py": b"one\n", "pkg/new.py": None, "pkg/gone.py": b"g\n"}


def test_a_half_applied_overlay_names_the_file_that_lacks_it() -> None:
    (fault,) = overlay.changed_files(made(BOTH), reader({**NEW, "pkg/b.py": OLD["pkg/b.py"]}))
    assert fault.startswith("pkg/b.py: the patch is not applied to it")


def test_a_file_that_somebody_changed_or_removed_is_named() -> None:
    document = made(BOTH)
    found = overlay.changed_files(document, reader({"pkg/a.py": "mine\n"}))
    assert [fault.split(" (")[0] for fault in found] == [
        "pkg/a.py: somebody changed it",
        "pkg/b.py: somebody changed it",
    ]
    assert "no such file" in found[1]


def test_every_file_that_it_does_not_fit_is_named_at_once() -> None:
    with pytest.raises(OverlayError) as error:
        overlay.applied(made(BOTH), {"pkg": "1.0"}, reader({"pkg/a.py": "other\n"}))
    lines = str(error.value).splitlines()
    assert [line.split()[0] for line in lines] == ["pkg/a.py", "pkg/b.py"]
    assert all("make the patch anew from the installed file" in line for line in lines)


def test_another_version_is_refused_before_any_file_is_looked_at() -> None:
    def read(_path: str) -> bytes | None:
        raise AssertionError

    with pytest.raises(OverlayError, match=r"for pkg 1\.0, and installed is 1\.1: make the patch anew"):
        overlay.applied(made(BOTH), {"pkg": "1.1"}, read)
    with pytest.raises(OverlayError, match="it is not installed"):
        overlay.applied(made(BOTH), {}, read)


def test_a_manifest_that_promises_another_result_is_refused() -> None:
    document = made(BOTH)
    document["patches"][0]["files"]["pkg/a.py"]["after"] = sha("something else")
    with pytest.raises(OverlayError, match="correct the manifest's `after`"):
        overlay.applied(document, {"pkg": "1.0"}, reader(OLD))


def test_all_faults_of_a_manifest_are_listed_at_once() -> None:
    texts = {"1.patch": diff("pkg/a.py", "1\n", "2\n"), "stray.patch": "x", "broken.patch": "no diff"}
    manifest = {
        "patches": [
            entry("1.patch", {"pkg/b.py": ("1\n", "2\n")}),
            {"patch": "broken.patch", "distribution": "pkg", "version": 1.0, "reason": "r", "files": {"../x": {}}},
            {"patch": "missing.patch", "distribution": "pkg", "version": "1", "reason": "r"},
        ]
    }
    faults = Faults()
    assert overlay.document_of(manifest, texts, faults) is None
    said = "\n".join(map(str, faults))
    for part in (
        "patches[1].version: is the number 1.0",
        "patches[1].files.../x: is no path below site-packages",
        "patches[2].files: is missing",
        "missing.patch is not in the overlay's folder",
        "files.pkg/a.py: only 1.patch names it",
        "files.pkg/b.py: the patch does not",
        "does not name stray.patch",
        "broken.patch: it changes no file",
    ):
        assert part in said


def test_patches_that_do_not_follow_each_other_are_a_fault() -> None:
    one, two = {"pkg/a.py": ("1\n", "2\n")}, {"pkg/a.py": ("3\n", "4\n")}
    texts = {"1.patch": diff("pkg/a.py", "1\n", "2\n"), "2.patch": diff("pkg/a.py", "3\n", "4\n")}
    faults = Faults()
    assert overlay.document_of({"patches": [entry("1.patch", one), entry("2.patch", two)]}, texts, faults) is None
    assert "is not what the patch before it leaves" in str(next(iter(faults)))


def test_no_overlay_has_an_empty_digest_and_a_reason_is_part_of_it() -> None:
    document = made(BOTH)
    assert overlay.digest(None) == overlay.digest({}) == ""
    other = {"patches": [{**document["patches"][0], "reason": "another"}]}
    assert overlay.digest(document) != overlay.digest(other)


# --- files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with one distribution whose files are hard links into a cache, as uv makes them."""
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    cache = tmp_path / "cache"
    (site / "pkg" / "__pycache__").mkdir(parents=True)
    (site / "pkg-1.0.dist-info").mkdir()
    cache.mkdir()
    record = [[path, f"sha256={index}", "1"] for index, path in enumerate(OLD)]
    rows = "".join(",".join(row) + "\n" for row in [*record, ["pkg-1.0.dist-info/RECORD", "", ""]])
    for name, text in {**OLD, "pkg-1.0.dist-info/RECORD": rows}.items():
        kept = cache / name.replace("/", "_")
        kept.write_text(text)
        os.link(kept, site / name)
    (site / "pkg" / "__pycache__" / "a.cpython-312.pyc").write_bytes(b"old")
    (site / "pkg" / "__pycache__" / "ab.cpython-312.pyc").write_bytes(b"another's")
    return tmp_path / "venv"


def test_a_changed_file_leaves_the_cache_alone_and_loses_what_was_compiled_of_it(environment: Path) -> None:
    (site,) = map(Path, files.site_packages(str(environment)))
    cache = environment.parent / "cache"
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    (site / "pkg" / "a.py").chmod(0o755)
    files.change(str(site), {"pkg/a.py": b"new\n", "pkg/sub/n.py": b"n\n"}, {"pkg/a.py": "pkg", "pkg/sub/n.py": "Pkg"})
    assert (site / "pkg" / "a.py").read_bytes() == b"new\n"
    assert (site / "pkg" / "a.py").stat().st_mode & 0o777 == 0o755
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before
    assert [path.name for path in (site / "pkg" / "__pycache__").iterdir()] == ["ab.cpython-312.pyc"]
    assert not list(site.rglob(".pdlab-*"))


def test_the_record_says_what_is_there(environment: Path) -> None:
    (site,) = map(Path, files.site_packages(str(environment)))
    files.change(
        str(site), {"pkg/a.py": b"new\n", "pkg/b.py": None, "pkg/n.py": b""}, dict.fromkeys([*OLD, "pkg/n.py"], "pkg")
    )
    with (site / "pkg-1.0.dist-info" / "RECORD").open() as stream:
        rows = {row[0]: row[1:] for row in csv.reader(stream)}
    assert set(rows) == {"pkg/a.py", "pkg/n.py", "pkg-1.0.dist-info/RECORD"}
    sum_ = base64.urlsafe_b64encode(hashlib.sha256(b"new\n").digest()).decode().rstrip("=")
    assert rows["pkg/a.py"] == [f"sha256={sum_}", "4"]
    assert not (site / "pkg" / "b.py").exists()


def test_a_copy_of_links_shares_every_file_and_keeps_symbolic_links(environment: Path) -> None:
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to("/usr/bin/python3")
    copy = environment.parent / "copy"
    files.copy_of_links(str(environment), str(copy))
    name = "lib/python3.12/site-packages/pkg/a.py"
    assert (copy / name).stat().st_ino == (environment / name).stat().st_ino
    assert (copy / "bin" / "python").readlink() == Path("/usr/bin/python3")


def test_a_file_that_leads_out_of_the_environment_is_not_read(environment: Path) -> None:
    (site,) = map(Path, files.site_packages(str(environment)))
    (site / "pkg" / "out.py").symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="leads out of"):
        files.read_below(str(site), "pkg/out.py")
    assert files.read_below(str(site), "pkg/none.py") is None


# --- the example -------------------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).resolve().parents[2] / "overlays" / "sglang-0.5.23"


def test_the_example_is_a_sound_overlay_for_the_locked_engine() -> None:
    texts = {path.name: path.read_text() for path in EXAMPLE.glob("*.patch")}
    faults = Faults()
    document = overlay.document_of(yaml.safe_load((EXAMPLE / "overlay.yml").read_text()), texts, faults)
    assert document, list(map(str, faults))
    lock = (EXAMPLE.parents[2] / "roles" / "engine" / "files" / "locks" / "cuda13.txt").read_text()
    for patch in document["patches"]:
        assert f"\n{patch['distribution']}=={patch['version']} \\\n" in lock
