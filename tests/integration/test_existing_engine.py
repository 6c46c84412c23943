# SPDX-License-Identifier: Apache-2.0
"""An engine that somebody else made: looked at in its own Python, with a stand-in for SGLang."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import BIN, CHECKOUT, ansible_environment

REHEARSAL = CHECKOUT / "roles" / "rehearsal" / "files"


def distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}.py,sha256=x,1\n")
    (site / f"{name}.py").write_text(f"VERSION = {version!r}\n")


class Play:
    """Runs the module through Ansible, as a role does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "root" / "engine"
        self.site = folder / "site"
        for name, version in (("sglang", "0.5.17"), ("nixl", "1.5.1"), ("sglang_router", "0.3.2")):
            distribution(self.site, name, version)

    def __call__(self, *flags: str, **options: Any) -> dict[str, Any]:
        arguments = {"path": str(self.path), "python": sys.executable, "pythonpath": [str(self.site)], **options}
        book = self.folder / "play.json"
        tasks = [{"pdlab.pdlab.existing_engine": arguments}]
        book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        done = subprocess.run(
            [
                BIN / "ansible-playbook", "-i", "localhost,", "-c", "local", book, "-v", *flags,
                "-e", f"ansible_python_interpreter={sys.executable}",
            ],
            env={
                **ansible_environment(), "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
                "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        line = next((x for x in done.stdout.splitlines() if x.startswith(("ok:", "changed:", "fatal:"))), done.stdout)
        return {**json.loads(line.partition("=> ")[2]), "failed": line.startswith("fatal:")}


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def test_it_is_noted_once_and_nothing_is_installed_into_it(play: Play) -> None:
    before = sorted(path.name for path in play.site.iterdir())
    assert play("--check")["changed"] and not play.path.exists()
    first = play()
    assert first["changed"] and not first["failed"], first
    assert first["versions"] == {"sglang": "0.5.17", "nixl": "1.5.1", "sglang-router": "0.3.2"}
    assert first["python_version"] == ".".join(map(str, sys.version_info[:3]))
    second = play()
    assert (second["changed"], second["fingerprint"]) == (False, first["fingerprint"])
    assert sorted(path.name for path in play.site.iterdir()) == before


def test_what_is_missing_is_named_all_at_once_with_where_it_was_looked_for(play: Play) -> None:
    for name in ("nixl", "sglang_router"):
        shutil.rmtree(next(play.site.glob(f"{name}-*.dist-info")))
    result = play()
    assert result["failed"]
    assert "has no nixl or nixl-cu12 or nixl-cu13; no sglang-router or smg" in result["msg"]
    assert str(play.site) in result["msg"]
    assert not play(needs=["sglang"])["failed"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"python": "/nowhere/python"}, "/nowhere/python is missing or cannot be run"),
        ({"pythonpath": ["/nowhere/site"]}, "/nowhere/site: no such folder"),
        ({"python": "/bin/true"}, "/bin/true does not work"),
    ],
)
def test_an_interpreter_or_folder_that_is_not_there_is_named(play: Play, options: dict[str, Any], said: str) -> None:
    result = play(**options)
    assert result["failed"] and said in result["msg"]


def test_another_version_or_other_files_of_the_engine_are_another_engine(play: Play) -> None:
    seen = [play()["fingerprint"]]
    (play.site / "sglang-0.5.17.dist-info" / "RECORD").write_text("sglang.py,sha256=y,2\n")
    seen.append(play()["fingerprint"])
    (play.site / "nixl-1.5.1.dist-info").rename(play.site / "nixl-1.6.0.dist-info")
    changed = play()
    assert changed["changed"] and changed["versions"]["nixl"] == "1.6.0"
    seen.append(changed["fingerprint"])
    assert len(set(seen)) == 3


def test_another_version_than_the_inventory_says_is_refused_before_anything_is_noted(play: Play) -> None:
    assert play("--check", sglang="0.5.17")["failed"] is False
    result = play(sglang="0.5.23")
    assert result["failed"] and "has sglang 0.5.17, and pd_engine.existing.sglang says 0.5.23" in result["msg"]
    assert not play.path.exists()


def test_a_local_distribution_lies_beside_it_with_its_entry_points(play: Play) -> None:
    result = play(distributions=[str(REHEARSAL)])
    extras = play.path / "extras"
    assert result["changed"] and result["pythonpath"] == [str(play.site), str(extras)]
    code = (
        "import importlib.metadata as m, pdlab_rehearsal; "
        "print([e.name for e in m.entry_points(group='sglang.srt.platforms')])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(extras)}, capture_output=True, text=True, check=False
    )
    assert "pdlab_cpu" in done.stdout, done.stdout + done.stderr
    assert play(distributions=[str(REHEARSAL)])["changed"] is False
    shutil.rmtree(extras)
    again = play(distributions=[str(REHEARSAL)])
    assert again["changed"] and again["reason"] == "the local distributions are gone"
    assert extras.is_dir()


def test_it_takes_the_place_of_an_environment_that_pdlab_built(play: Play) -> None:
    play.path.mkdir(parents=True)
    (play.path / "pdlab-lock.json").write_text('{"lock_sha256": "x", "fingerprint": "y"}')
    result = play()
    assert result["reason"] == "an environment that pdlab built stood here"
    assert play()["changed"] is False
