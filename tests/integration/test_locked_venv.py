# SPDX-License-Identifier: Apache-2.0
"""Environments from a lock, with the real uv and a small real package."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
UV = BIN / "uv"


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lock with one small package, made by uv itself."""
    folder = tmp_path_factory.mktemp("lock")
    (folder / "small.in").write_text("supervisor==4.3.0\n")
    argv = [UV, "pip", "compile", "-q", "--universal", "--python-version", "3.11", "--generate-hashes"]
    subprocess.run([*argv, "small.in", "-o", "small.txt"], cwd=folder, check=True)
    return folder / "small.txt"


class Play:
    """Runs the module through Ansible, as a role does."""

    def __init__(self, folder: Path, lock: Path) -> None:
        self.folder = folder
        self.path = folder / "venv"
        self.options: dict[str, Any] = {"path": str(self.path), "lock": str(lock), "uv": str(UV)}

    def __call__(self, *flags: str, prefix: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
        tasks = [{"pdlab.pdlab.locked_venv": {**self.options, **options}}]
        play = [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]
        book = self.folder / "play.json"
        book.write_text(json.dumps(play))
        env = {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_LOCALHOST_WARNING": "0",
        }
        inventory = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
        done = subprocess.run(
            [
                *prefix,
                BIN / "ansible-playbook",
                *inventory,
                book,
                "-v",
                *flags,
                "-e",
                "ansible_callback_result_format=json",
            ],
            env={**env, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
            capture_output=True,
            text=True,
            check=False,
        )
        line = next((x for x in done.stdout.splitlines() if x.startswith(("ok:", "changed:", "fatal:"))), done.stdout)
        return {**json.loads(line.partition("=> ")[2]), "failed": line.startswith("fatal:")}

    def run_in_it(self, *arguments: str) -> str:
        return subprocess.run(
            [self.path / "bin" / "python", *arguments], capture_output=True, text=True, check=True
        ).stdout


@pytest.fixture
def play(tmp_path: Path, lock: Path) -> Play:
    return Play(tmp_path, lock)


def test_check_mode_says_what_would_be_built_and_builds_nothing(play: Play) -> None:
    result = play("--check", "--diff")
    assert result["changed"] and result["reason"] == "it does not exist"
    assert not play.path.exists()


def test_it_is_built_once_and_then_left_alone(play: Play) -> None:
    first = play()
    assert first["changed"] and first["packages"] == {"supervisor": "4.3.0"}
    assert play.run_in_it("-c", "import supervisor; print(supervisor.__name__)").strip() == "supervisor"
    second = play()
    assert not second["changed"]
    assert second["fingerprint"] == first["fingerprint"]


def test_its_commands_work_after_it_was_moved_into_place(play: Play) -> None:
    play()
    done = subprocess.run([play.path / "bin" / "supervisord", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4.3.0"


def test_a_package_that_somebody_removed_is_put_back(play: Play) -> None:
    play()
    shutil.rmtree(next((play.path / "lib").glob("python*/site-packages/supervisor-*.dist-info")))
    result = play()
    assert result["changed"] and "not the ones that were installed" in result["reason"]
    assert play()["changed"] is False


def test_a_half_made_environment_is_never_taken_for_a_whole_one(play: Play) -> None:
    play()
    (play.path / "pdlab-lock.json").unlink()
    assert play("--check")["reason"] == "it was never completed, or not made by pdlab"
    assert play()["changed"]


def test_another_lock_builds_anew_and_a_failed_build_leaves_the_old_one_working(play: Play, lock: Path) -> None:
    play()
    broken = play.folder / "broken.txt"
    broken.write_text(lock.read_text().replace("sha256:0", "sha256:1").replace("sha256:4", "sha256:5"))
    failed = play(lock=str(broken))
    assert failed["failed"] and "hash" in failed["msg"].lower()
    assert play.run_in_it("-c", "import supervisor; print('there')").strip() == "there"
    assert play()["changed"] is False


def test_an_interpreter_that_is_too_old_is_refused_with_what_was_looked_at(play: Play) -> None:
    result = play(python_minimum="3.99")
    assert result["failed"]
    assert "3.99" in result["msg"] and "/usr/bin/python3" in result["msg"]
    assert not play.path.exists()


def test_a_local_distribution_comes_on_top_and_a_changed_one_builds_anew(play: Play, tmp_path: Path) -> None:
    source = tmp_path / "dist"
    shutil.copytree(CHECKOUT / "roles" / "rehearsal" / "files", source)
    result = play(distributions=[str(source)])
    assert result["changed"] and "pdlab-rehearsal" in result["packages"]
    assert play(distributions=[str(source)])["changed"] is False
    (source / "src" / "pdlab_rehearsal" / "more.py").write_text("X = 1\n")
    again = play(distributions=[str(source)])
    assert again["reason"] == "the local distributions changed"
    assert play.run_in_it("-c", "from pdlab_rehearsal.more import X; print(X)").strip() == "1"


# --- overlay -----------------------------------------------------------------------------------------------------

# A word more in supervisord's own --version: harmless, and seen from outside.
PATCHED = "supervisor/options.py"
VERSION_LINE = "self.stdout.write('%s\\n' % VERSION)"


def write_overlay(folder: Path, site: Path, path: str, old: str, new: str) -> Path:
    """An overlay with one patch, made from the installed file as the documentation says."""
    folder.mkdir(exist_ok=True)
    before = (site / path).read_text()
    assert before.count(old) == 1
    after = before.replace(old, new)
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path)
    (folder / "0001-say-it.patch").write_text("".join(lines))
    sums = {side: hashlib.sha256(text.encode()).hexdigest() for side, text in (("before", before), ("after", after))}
    entry = {
        "patch": "0001-say-it.patch",
        "distribution": "supervisor",
        "version": "4.3.0",
        "reason": "a test sees that it is there",
        "files": {path: sums},
    }
    (folder / "overlay.yml").write_text(json.dumps({"patches": [entry]}))
    return folder


def site_of(play: Play) -> Path:
    return next((play.path / "lib").glob("python*/site-packages"))


def said_version(play: Play) -> str:
    done = subprocess.run([play.path / "bin" / "supervisord", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def overlaid(play: Play) -> Play:
    """An environment without its overlay yet; the folder `overlay` lies beside it."""
    play()
    write_overlay(
        play.folder / "overlay", site_of(play), PATCHED, VERSION_LINE, VERSION_LINE.replace("%s", "%s patched")
    )
    return play


def test_an_overlay_is_applied_left_alone_and_taken_back(overlaid: Play) -> None:
    original = site_of(overlaid) / PATCHED
    kept = overlaid.folder / "hard-link"
    os.link(original, kept)
    before, record = kept.read_bytes(), (site_of(overlaid) / "supervisor-4.3.0.dist-info" / "RECORD").read_text()
    plain = overlaid()
    overlay = str(overlaid.folder / "overlay")

    would = overlaid("--check", overlay=overlay)
    assert would["changed"] and would["reason"] == "an overlay is to be applied"
    assert said_version(overlaid) == "4.3.0"

    applied = overlaid(overlay=overlay)
    assert applied["changed"] and applied["overlay"][0]["reason"] == "a test sees that it is there"
    assert applied["fingerprint"] != plain["fingerprint"]
    assert said_version(overlaid) == "4.3.0 patched"
    assert overlaid(overlay=overlay)["changed"] is False
    # What the file was a hard link to, uv's cache for one, is as it was.
    assert kept.read_bytes() == before

    back = overlaid()
    assert back["changed"] and back["reason"] == "the overlay is to be taken back"
    assert back["fingerprint"] == plain["fingerprint"]
    assert (site_of(overlaid) / PATCHED).read_bytes() == before
    assert (site_of(overlaid) / "supervisor-4.3.0.dist-info" / "RECORD").read_text() == record
    assert said_version(overlaid) == "4.3.0"
    assert overlaid()["changed"] is False


def test_another_overlay_takes_the_place_of_the_first(overlaid: Play) -> None:
    overlay, site = overlaid.folder / "overlay", site_of(overlaid)
    other = overlaid.folder / "other"
    write_overlay(other, site, PATCHED, VERSION_LINE, VERSION_LINE.replace("%s", "%s otherwise"))
    overlaid(overlay=str(overlay))
    result = overlaid(overlay=str(other))
    assert result["changed"] and result["reason"] == "the overlay changed"
    assert said_version(overlaid) == "4.3.0 otherwise"


def test_an_environment_is_built_with_its_overlay_at_once(play: Play, overlaid: Play) -> None:
    shutil.rmtree(play.path)
    result = play(overlay=str(play.folder / "overlay"))
    assert result["reason"] == "it does not exist"
    assert said_version(play) == "4.3.0 patched"
    assert play(overlay=str(play.folder / "overlay"))["changed"] is False


@pytest.mark.parametrize("how", ["changed", "half applied"])
def test_a_patched_file_that_is_not_what_the_overlay_made_it_is_an_error_that_a_rebuild_mends(
    overlaid: Play, how: str
) -> None:
    overlay = str(overlaid.folder / "overlay")
    before = (site_of(overlaid) / PATCHED).read_bytes()
    overlaid(overlay=overlay)
    target = site_of(overlaid) / PATCHED
    content = before if how == "half applied" else target.read_bytes() + b"# mine\n"
    target.unlink()
    target.write_bytes(content)
    for flags in ((), ("--check",)):
        result = overlaid(*flags, overlay=overlay)
        assert result["failed"]
        what = "the patch is not applied to it" if how == "half applied" else "somebody changed it"
        assert f"{PATCHED}: {what}" in result["msg"] and "pdlab rebuild" in result["msg"]
    assert overlaid(overlay=overlay, rebuild=True)["changed"]
    assert said_version(overlaid) == "4.3.0 patched"
    assert overlaid(overlay=overlay)["changed"] is False


def test_an_overlay_that_does_not_fit_changes_nothing_and_names_the_file(overlaid: Play) -> None:
    overlay = overlaid.folder / "overlay"
    manifest = json.loads((overlay / "overlay.yml").read_text())
    manifest["patches"][0]["files"][PATCHED]["before"] = "0" * 64
    (overlay / "overlay.yml").write_text(json.dumps(manifest))
    result = overlaid(overlay=str(overlay))
    assert result["failed"] and f"{PATCHED} is not the file that 0001-say-it.patch was made for" in result["msg"]
    assert said_version(overlaid) == "4.3.0"
    assert overlaid()["changed"] is False
    manifest["patches"][0]["version"] = "4.2.0"
    (overlay / "overlay.yml").write_text(json.dumps(manifest))
    result = overlaid(overlay=str(overlay))
    assert result["failed"] and "is for supervisor 4.2.0, and installed is 4.3.0" in result["msg"]


def test_an_overlay_with_faults_is_refused_with_all_of_them_before_the_target_is_asked(overlaid: Play) -> None:
    overlay = overlaid.folder / "overlay"
    (overlay / "0002-stray.patch").write_text("--- a\n")
    (overlay / "overlay.yml").write_text("patches: [{patch: 0003.patch, distribution: supervisor}]")
    result = overlaid(overlay=str(overlay))
    assert result["failed"]
    for part in ("0003.patch is not in the overlay's folder", "version: is missing", "does not name 0002-stray.patch"):
        assert part in result["msg"]
    gone = overlaid(overlay="/nowhere/overlay")
    assert gone["failed"] and "/nowhere/overlay" in gone["msg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_with_a_wheelhouse_it_is_built_without_a_network(play: Play, lock: Path) -> None:
    wheels = play.folder / "wheels"
    pip = [UV, "tool", "run", "--from", "pip", "pip"]
    subprocess.run(
        [*pip, "download", "-q", "--require-hashes", "--only-binary", ":all:", "-d", wheels, "-r", lock], check=True
    )
    alone = ("unshare", "--net", "--")
    cache = {"UV_CACHE_DIR": str(play.folder / "cache")}
    os.environ.update(cache)
    try:
        without = play(prefix=alone)
        assert without["failed"], "an index was reached without a network"
        result = play(prefix=alone, wheelhouse=str(wheels))
    finally:
        os.environ.pop("UV_CACHE_DIR")
    assert result["changed"] and result["packages"] == {"supervisor": "4.3.0"}, result


def test_a_wheelhouse_that_is_not_there_is_named(play: Play) -> None:
    result = play(wheelhouse="/nowhere/wheels")
    assert result["failed"] and "/nowhere/wheels" in result["msg"]


def test_absent_removes_it_and_says_nothing_the_second_time(play: Play) -> None:
    play()
    assert play(state="absent")["changed"]
    assert not play.path.exists()
    assert play(state="absent")["changed"] is False
