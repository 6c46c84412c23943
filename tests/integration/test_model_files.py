# SPDX-License-Identifier: Apache-2.0
"""The role model: checkpoints that are there, and a hub on this machine with the real huggingface_hub and supervisor.

The hub at huggingface.co is not reached from here; tests/hub_server.py speaks what of its interface is needed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import page_cache, processes

from tests.checkpoints import MIB, checkpoint, written
from tests.hub_server import Hub, Repository, Weather

from .conftest import (
    BIN,
    CHECKOUT,
    ON_HOST,
    Answer,
    Host,
    Target,
    ansible_environment,
    end_everything_of,
    every_process,
)

# Of a download whose controller is killed; a deployment has a minute.
LEASE_S = 15.0
TOKEN = "hf_" + "Secret0123" * 3
COMMIT, OTHER_COMMIT = "1" * 40, "2" * 40
SHARD = "model-00002-of-00002.safetensors"
REPO = "owner/tiny"
LOCK = CHECKOUT / "roles" / "engine" / "files" / "locks" / "cpu.txt"


def pinned_hub_version() -> str:
    """The version of huggingface_hub that the engine's lock names."""
    (version,) = re.findall(r"^huggingface-hub==(\S+)", LOCK.read_text(), re.MULTILINE)
    return str(version)


def brings_the_hub(python: Path) -> bool:
    asks = "import huggingface_hub, sys; sys.exit(huggingface_hub.__version__ != sys.argv[1])"
    return python.exists() and subprocess.run([python, "-c", asks, pinned_hub_version()], check=False).returncode == 0


@pytest.fixture(scope="session")
def small_environment() -> Path:
    """An environment with that huggingface_hub and nothing of the engine, on the system's own Python."""
    folder = Path("~/.cache/pdlab-tests").expanduser() / f"hub-{pinned_hub_version()}"
    if not brings_the_hub(folder / "bin" / "python"):
        uv, system = str(BIN / "uv"), "/usr/bin/python3"
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", system, str(folder)], check=True)
        wanted = ["--python", str(folder / "bin" / "python"), f"huggingface-hub=={pinned_hub_version()}"]
        subprocess.run([uv, "pip", "install", "--quiet", *wanted], check=True)
    return folder


@pytest.fixture(scope="session")
def hub_python(request: pytest.FixtureRequest) -> str:
    """A Python with that huggingface_hub: the tests' engine where there is one."""
    root = Path(os.environ.get("PDLAB_TEST_ROOT", "~/.cache/pdlab-e2e")).expanduser()
    engine = root / "engine" / "bin" / "python"
    if brings_the_hub(engine):
        return str(engine)
    folder: Path = request.getfixturevalue("small_environment")
    return str(folder / "bin" / "python")


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with one private repository."""
    with Hub({REPO: repository()}) as up:
        yield up


def repository() -> Repository:
    small, other = checkpoint(24 * MIB, seed=1), checkpoint(1 * MIB, seed=2)
    commits = {COMMIT: small, OTHER_COMMIT: other}
    return Repository(commits, tags={"v1": COMMIT}, branches={"trial": COMMIT}, token=TOKEN)


class Box:
    """This machine with a root of its own, to which the role deploys."""

    def __init__(self, root: Path, python: str, hub: Hub) -> None:
        self.root, self.hub = root, hub
        self.run_dir = root / "run"
        self.path = root / "models" / "tiny"
        self.options: dict[str, Any] = {
            "model_source": "hub",
            "model_repo": REPO,
            "model_revision": COMMIT,
            "model_endpoint": hub.url,
            "model_path": str(self.path),
            "model_root": str(root),
            "model_python": python,
            "model_manager": "supervisor",
            "model_record_dir": str(self.run_dir),
            "model_token": "{{ pd_hub_token }}",
        }
        # Where pdlab keeps supervisor; building it is another test's business.
        venv = root / "supervisor" / "venv" / "bin"
        venv.mkdir(parents=True)
        (venv / "supervisord").symlink_to(BIN / "supervisord")

    def command(
        self, *flags: str, token: str = TOKEN, hosts: str = "box", lease_s: float | None = None, **options: Any
    ) -> list[str]:
        """A play of the role; with `lease_s` of its module alone, which has that option and the role has not."""
        playbook = self.root / "play.yml"
        what: dict[str, Any] = {"roles": [{"role": "pdlab.pdlab.model", "vars": {**self.options, **options}}]}
        if lease_s is not None:
            asked = {name.removeprefix("model_"): value for name, value in self.options.items()}
            asked |= {"service_manager": asked.pop("manager"), "run_dir": asked.pop("record_dir"), "lease_s": lease_s}
            what = {"tasks": [{"pdlab.pdlab.model_files": asked}]}
        playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, **what}]))
        inventory = self.root / "hosts.json"
        each = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "pd_hub_token": token}
        inventory.write_text(json.dumps({"all": {"hosts": {host: each for host in hosts.split(",")}}}))
        # A JSON inventory needs a name that Ansible's YAML plug-in takes.
        return [str(BIN / "ansible-playbook"), "-i", str(inventory), str(playbook), *flags]

    def play(self, *flags: str, **options: Any) -> Play:
        done = subprocess.run(
            self.command(*flags, **options), cwd=CHECKOUT, env=ansible_environment(),
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        return Play(done.returncode, done.stdout + done.stderr)

    def start(self, *flags: str, lease_s: float | None = None) -> subprocess.Popen[bytes]:
        command = self.command(*flags, lease_s=lease_s)
        log = (self.root / "play.log").open("wb")
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=ansible_environment(), stdout=log, stderr=log, start_new_session=True
        )

    def record(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.run_dir / "records" / "model-box.json").read_text())
        return value

    def part_bytes(self) -> int:
        found = 0
        for part in self.path.glob(f".pdlab-download/{SHARD}.*.part"):
            with contextlib.suppress(FileNotFoundError):
                found += part.stat().st_size
        return found

    def downloads(self) -> list[int]:
        script = str(self.root / "state" / "download" / "hub_download.py")
        return [pid for pid, argv in every_process() if script in argv]

    def everything_written(self) -> Iterator[tuple[Path, bytes]]:
        """What lies below the root now; a file or folder that goes while one looks is not there (rglob would raise)."""
        for folder, _folders, names in os.walk(self.root):
            for path in (Path(folder) / name for name in names if name != "hosts.json"):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file() and not path.is_symlink():
                        yield path, path.read_bytes()


class Play:
    """How a play ended."""

    def __init__(self, rc: int, output: str) -> None:
        self.rc, self.output = rc, output
        recap = re.search(r"changed=(\d+)", output)
        self.changed = int(recap[1]) if recap else None


@pytest.fixture
def box(hub: Hub, hub_python: str) -> Iterator[Box]:
    root = Path(tempfile.mkdtemp(prefix="pdlab-it-"))
    yield Box(root, hub_python, hub)
    end_everything_of(root)
    shutil.rmtree(root, ignore_errors=True)


def until(holds: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.1)


# --- what must work --------------------------------------------------------------------------------------------------


def test_a_pinned_revision_is_fetched_once_and_a_second_run_asks_nobody(box: Box) -> None:
    first = box.play("--diff")
    assert (first.rc, first.changed) == (0, 1), first.output
    for name, data in box.hub.repositories[REPO].commits[COMMIT].items():
        assert (box.path / name).read_bytes() == data
        assert (box.path / name).stat().st_mode & 0o777 == 0o644, "the servers' account must be able to read it"
    record = box.record()
    assert (record["commit"], record["files"], record["download"]["ok"]) == (COMMIT, 6, True)
    assert f"+{box.path}: {REPO} at {COMMIT}" in first.output
    assert not (box.path / ".pdlab-download").exists()
    assert box.downloads() == []
    asked = len(box.hub.requests)
    second = box.play()
    assert (second.rc, second.changed) == (0, 0), second.output
    assert box.record()["fingerprint"] == record["fingerprint"]
    assert len(box.hub.requests) == asked


def test_the_token_is_in_no_file_output_command_line_or_environment_and_reaches_the_hub_alone(box: Box) -> None:
    box.hub.weather.bytes_per_s = 16 * MIB
    play = box.start("-vvvv", "--diff")
    until(box.downloads)
    seen = set()
    while play.poll() is None:
        for pid, argv in every_process():
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                if str(box.root) in " ".join(argv) or str(box.root).encode() in environment:
                    seen.add(pid)
                    assert TOKEN not in " ".join(argv)
                    assert TOKEN.encode() not in environment
        for path, data in box.everything_written():
            assert TOKEN.encode() not in data, path
        time.sleep(0.1)
    assert play.returncode == 0, (box.root / "play.log").read_text()
    assert len(seen) > 3, "the download's processes were not looked at"
    assert TOKEN not in (box.root / "play.log").read_text()
    assert {request.token for request in box.hub.requests if request.path.startswith("/api/models")} == {TOKEN}
    assert {request.token for request in box.hub.requests if request.network} == {None}


def test_a_tag_is_fetched_as_its_commit_and_may_be_written_as_the_commit_later(box: Box) -> None:
    assert box.play(model_revision="v1").rc == 0
    assert box.record()["commit"] == COMMIT
    again = box.play(model_revision=COMMIT)
    assert (again.rc, again.changed) == (0, 0), again.output


def test_a_connection_that_is_cut_in_mid_file_goes_on_where_it_was(box: Box) -> None:
    box.hub.weather = Weather(cut_after={SHARD: 15 * MIB}, cuts_left=1)
    assert box.play().rc == 0
    ranges = [request.range for request in box.hub.asked(SHARD) if request.network]
    assert ranges[0] is None
    assert len(ranges) == 2 and ranges[1] is not None and int(ranges[1].strip("bytes=-")) >= 10 * MIB


def test_a_download_that_is_killed_in_mid_file_goes_on_at_the_next_deployment(box: Box) -> None:
    box.hub.weather.bytes_per_s = 6 * MIB
    play = box.start()
    until(box.part_bytes)
    for each in box.downloads():
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    assert play.wait(60) != 0
    assert "What came over stays" in (box.root / "play.log").read_text()
    kept = box.part_bytes()
    assert kept > 0
    box.hub.weather = Weather()
    box.hub.requests.clear()
    assert box.play().rc == 0
    assert [request.range for request in box.hub.asked(SHARD) if request.network] == [f"bytes={kept}-"]
    assert (box.path / SHARD).read_bytes() == box.hub.repositories[REPO].commits[COMMIT][SHARD]


def test_a_hub_that_ignores_ranges_still_gives_the_right_file(box: Box) -> None:
    box.hub.weather = Weather(cut_after={SHARD: 15 * MIB}, cuts_left=1, ignores_ranges=True)
    assert box.play().rc == 0
    assert (box.path / SHARD).read_bytes() == box.hub.repositories[REPO].commits[COMMIT][SHARD]


def test_progress_is_shown_while_it_runs(box: Box) -> None:
    box.hub.weather.bytes_per_s = 3 * MIB
    play = box.play()
    assert play.rc == 0, play.output
    lines = re.findall(r"pdlab-progress: model box  fetching [\d.]+ of 48\.0 MiB  \d/6 files", play.output)
    assert lines, play.output


def test_a_download_ends_when_its_controller_is_gone_and_the_next_run_goes_on(box: Box) -> None:
    box.hub.weather.bytes_per_s = 0.1 * MIB
    play = box.start(lease_s=LEASE_S)
    # Then it runs by itself. Before, it is still a part of who starts it.
    until(lambda: box.hub.asked(SHARD))
    # Ansible's workers have sessions of their own.
    for pid in [play.pid, *processes.process_tree(play.pid)]:
        if pid not in box.downloads():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    play.wait(20)
    # Nobody renews the lease now; until it ends, the download goes on.
    gone = time.monotonic()
    until(lambda: not box.downloads(), seconds=LEASE_S + 40)
    assert time.monotonic() - gone > LEASE_S / 2
    status = json.loads((box.root / "state" / "download" / "status.json").read_text())
    assert status["reason"] == "lease"
    box.hub.weather = Weather()
    assert box.play().rc == 0


def test_ctrl_c_ends_the_download_at_once_and_keeps_what_came_over(box: Box) -> None:
    # So slow that the file is not whole before the end comes, on a busy machine either.
    box.hub.weather.bytes_per_s = 1 * MIB
    play = box.start()
    until(box.part_bytes)
    os.killpg(play.pid, signal.SIGINT)
    play.wait(60)
    until(lambda: not box.downloads(), seconds=20)
    assert box.part_bytes() > 0


def test_check_mode_says_how_much_would_come_over_and_makes_nothing(box: Box) -> None:
    play = box.play("--check", "--diff")
    assert (play.rc, play.changed) == (0, 1), play.output
    assert box.record()["download"]["to_fetch_bytes"] == sum(
        len(data) for data in box.hub.repositories[REPO].commits[COMMIT].values()
    )
    assert not box.path.exists()
    assert not (box.root / "state").exists()
    assert not box.hub.asked(SHARD)


def test_a_shard_that_was_damaged_is_fetched_again_and_nothing_else(box: Box) -> None:
    assert box.play().rc == 0
    with (box.path / SHARD).open("r+b") as stream:
        stream.truncate(1000)
    box.hub.requests.clear()
    again = box.play()
    assert (again.rc, again.changed) == (0, 1), again.output
    assert f"{SHARD} has 1000 of" in box.record()["reason"]
    assert [request.path.rsplit("@")[-1] for request in box.hub.requests if request.network] == [SHARD]
    assert box.play().changed == 0


def test_excluded_files_stay_away(box: Box) -> None:
    play = box.play(model_exclude=["README*"])
    assert play.rc == 0, play.output
    assert not (box.path / "README.md").exists()
    assert box.play(model_exclude=["README*"]).changed == 0


def test_files_that_somebody_else_put_there_are_taken_as_they_are_when_they_are_right(box: Box) -> None:
    box.path.mkdir(parents=True)
    (box.path / SHARD).write_bytes(box.hub.repositories[REPO].commits[COMMIT][SHARD])
    assert box.play().rc == 0
    assert not [request for request in box.hub.asked(SHARD) if request.network]


# --- what must be refused --------------------------------------------------------------------------------------------


def refused(play: Play, *words: str) -> None:
    assert play.rc != 0
    text = " ".join(play.output.split())
    for word in words:
        assert word in text, play.output


def test_a_wrong_token_is_named_and_not_shown(box: Box) -> None:
    wrong = "hf_" + "Wrong98765" * 3
    play = box.play("-vvv", token=wrong)
    refused(play, "refuses the token of pd_hub_token", "(401)")
    assert wrong not in play.output
    assert all(wrong.encode() not in data for _, data in box.everything_written())


def test_without_a_token_a_private_repository_says_to_set_one(box: Box) -> None:
    refused(box.play(model_token=""), f"shows no repository {REPO}", "set pd_hub_token")


def test_an_unknown_revision_and_an_unknown_tag_are_refused(box: Box) -> None:
    refused(box.play(model_revision="3" * 40), "has no revision")
    refused(box.play(model_revision="v9"), "has no tag 'v9' (its tags: v1)")


def test_a_branch_is_refused_with_the_commit_to_write_instead(box: Box) -> None:
    refused(box.play(model_revision="trial"), "is a branch", COMMIT)


def test_another_revision_in_the_same_folder_is_refused(box: Box) -> None:
    assert box.play().rc == 0
    before = {path.name: path.stat().st_mtime_ns for path in box.path.iterdir()}
    refused(box.play(model_revision=OTHER_COMMIT), "is not replaced in place")
    assert {path.name: path.stat().st_mtime_ns for path in box.path.iterdir()} == before


def test_somebody_elses_other_files_are_never_written_over(box: Box) -> None:
    box.path.mkdir(parents=True)
    (box.path / "config.json").write_text("mine")
    refused(box.play(), "config.json", "pdlab did not fetch")
    refused(box.play(), "config.json", "pdlab did not fetch")
    assert [path.name for path in box.path.iterdir()] == ["config.json"]


def test_a_file_that_is_changed_on_its_way_is_refused(box: Box) -> None:
    box.hub.weather.corrupt = {SHARD}
    refused(box.play(), f"{SHARD} came over twice", "changes what it carries")
    assert not (box.path / SHARD).exists()


def test_a_hub_that_cannot_be_reached_is_named_with_the_ways_out(box: Box) -> None:
    refused(box.play(model_endpoint="http://127.0.0.1:9"), "http://127.0.0.1:9 cannot be reached", "source: local")


def test_a_truncated_shard_on_the_hub_is_found_after_the_download(box: Box) -> None:
    files = box.hub.repositories[REPO].commits[OTHER_COMMIT]
    files[SHARD] = files[SHARD][:-100]
    refused(box.play(model_revision=OTHER_COMMIT), f"{SHARD} is truncated")


@pytest.fixture
def small_disk(box: Box) -> Iterator[Path]:
    """A file system of 32 MiB where the model is to lie."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    box.path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(box.path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount")
    try:
        yield box.path
    finally:
        subprocess.run(["umount", "-l", str(box.path)], check=True)


def test_a_disk_that_is_too_small_is_found_before_anything_is_fetched(box: Box, small_disk: Path) -> None:
    refused(box.play(), "48.0 MiB of owner/tiny are still to be fetched", "32.0 MiB are free")
    assert not box.hub.asked(SHARD)
    refused(box.play("--check"), "are still to be fetched")


def test_a_disk_that_fills_up_meanwhile_says_so_and_keeps_what_came_over(
    box: Box, small_disk: Path, hub_python: str
) -> None:
    """The check before was right, and then somebody else took the space (a quota shows in this way, too)."""
    report = box.root / "report.json"
    script = CHECKOUT / "plugins" / "module_utils" / "hub_download.py"
    (box.root / "secrets").write_text(json.dumps({"token": TOKEN}))
    # -10**9: the margin lets the check pass.
    words = ["--repo", REPO, "--revision", COMMIT, "--path", str(small_disk), "--endpoint", box.hub.url]
    more = ["--report", str(report), "--secrets", str(box.root / "secrets"), "--margin-bytes", str(-(10**9))]
    done = subprocess.run([hub_python, script, *words, *more], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    seen = json.loads(report.read_text())
    assert (seen["kind"], "No space left" in seen["message"]) == ("no_space", True), seen
    assert TOKEN not in done.stderr + done.stdout


def test_two_downloads_into_one_folder_wait_for_each_other(box: Box, hub_python: str) -> None:
    """Two hosts with one network folder: the second one finds all that the first one fetched."""
    box.hub.weather.bytes_per_s = 12 * MIB
    (box.root / "secrets").write_text(json.dumps({"token": TOKEN}))
    script = str(CHECKOUT / "plugins" / "module_utils" / "hub_download.py")
    words = ["--repo", REPO, "--revision", COMMIT, "--path", str(box.path), "--endpoint", box.hub.url]
    both = [
        subprocess.Popen(
            [hub_python, script, *words, "--report", str(box.root / name), "--secrets", str(box.root / "secrets")],
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        for name in ("one", "two")
    ]
    until(
        lambda: any("waiting" in (box.root / name).read_text() for name in ("one", "two") if (box.root / name).exists())
    )
    assert [each.wait(120) for each in both] == [0, 0]
    assert len([request for request in box.hub.asked(SHARD) if request.network]) == 1
    assert not (box.path / ".pdlab-download").exists()


def test_hosts_with_different_models_are_found(box: Box) -> None:
    one, two = (box.root / name for name in ("one", "two"))
    for folder, seed in ((one, 1), (two, 2)):
        written(folder, checkpoint(64, seed=seed))
    path = f"{{{{ '{one}' if inventory_hostname == 'a' else '{two}' }}}}"
    refused(box.play(model_source="local", model_path=path, hosts="a,b"), "The hosts hold different models", str(two))
    same = box.play(model_source="local", model_path=str(one), hosts="a,b")
    assert same.rc == 0, same.output


# --- a checkpoint that is there --------------------------------------------------------------------------------------


@pytest.fixture
def local(box: Box) -> Box:
    """The same box with a checkpoint of two large shards."""
    written(box.path, checkpoint(70 * MIB))
    box.options.update(model_source="local")
    return box


def sums(folder: Path) -> str:
    done = subprocess.run(
        ["sha256sum", *sorted(os.listdir(folder))], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_listed_model_is_hashed_once_and_a_second_run_reads_no_weights(local: Box) -> None:
    listed = local.root / "SHA256SUMS"
    listed.write_text(sums(local.path))
    first = local.play(model_sha256=str(listed))
    assert (first.rc, first.changed) == (0, 0), first.output
    assert local.record()["sha256_checked"] == 6
    before = sorted(os.listdir(local.path))
    # Whoever reads these bytes now finds other ones; their sizes and times are as they were.
    shard = local.path / SHARD
    times = shard.stat()
    with shard.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last[0] ^ 1]))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = local.play(model_sha256=str(listed))
    assert second.rc == 0, second.output
    assert sorted(os.listdir(local.path)) == before
    shard.touch()
    refused(local.play(model_sha256=str(listed)), f"{SHARD} has the SHA-256", "pd_model.sha256 says")


def test_without_a_root_to_remember_in_a_list_is_hashed_in_one_go(local: Box) -> None:
    mapping = {line.split()[1]: line.split()[0] for line in sums(local.path).splitlines()}
    options = {"source": "local", "path": str(local.path), "sha256": mapping, "slice_s": 0.001}
    command = [str(BIN / "ansible"), "localhost", "-i", "localhost,", "-c", "local", "-m", "pdlab.pdlab.model_files"]
    environment = {**ansible_environment(), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    done = subprocess.run(
        [*command, "-a", json.dumps(options)], cwd=CHECKOUT, env=environment, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sha256_checked: 6" in done.stdout or '"sha256_checked": 6' in done.stdout


def test_a_list_may_stand_in_the_inventory_and_a_missing_file_is_named(local: Box) -> None:
    mapping = {line.split()[1]: line.split()[0] for line in sums(local.path).splitlines()}
    assert local.play(model_sha256=mapping).rc == 0
    refused(local.play(model_sha256={**mapping, "gone.safetensors": "0" * 64}), "gone.safetensors is missing")


def test_a_list_that_is_none_is_named_with_its_line(local: Box) -> None:
    (local.root / "list").write_text("nonsense\n")
    refused(local.play(model_sha256=str(local.root / "list")), "pd_model.sha256", "line 1")


def test_another_quantization_than_declared_is_refused(local: Box) -> None:
    refused(local.play(model_quantization="modelopt_nvfp4"), "pd_model.quantization is modelopt_nvfp4", "says none")
    assert local.play(model_quantization="none").rc == 0


def test_a_truncated_shard_is_refused_at_every_run_until_it_is_whole(local: Box) -> None:
    whole = (local.path / SHARD).read_bytes()
    (local.path / SHARD).write_bytes(whole[:-1])
    for _ in range(2):
        refused(local.play(), f"{SHARD} is truncated")
    (local.path / SHARD).write_bytes(whole)
    assert local.play().rc == 0


@contextlib.contextmanager
def kept_in_memory(paths: Iterable[Path]) -> Iterator[None]:
    """Files in the page cache that stay there: on a machine that is busy the kernel drops what was read but once."""
    locked = 0x2000  # MAP_LOCKED, which Python's mmap has no name for
    with contextlib.ExitStack() as held:
        for path in paths:
            with path.open("rb") as stream:
                held.enter_context(mmap.mmap(stream.fileno(), 0, mmap.MAP_SHARED | locked, mmap.PROT_READ))
        yield


def test_a_warm_up_reads_what_is_cold_and_check_mode_reads_nothing(local: Box) -> None:
    assert local.play().rc == 0
    cold = [local.path / name for name in sorted(os.listdir(local.path)) if name.endswith(".safetensors")]
    for path in cold:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if any(page_cache.resident_share(str(path)) for path in cold):
        pytest.skip("this file system keeps its pages")
    size = sum(path.stat().st_size for path in cold)
    checked = local.play("--check", model_warm_up=True)
    assert checked.rc == 0, checked.output
    assert local.record()["warm_up"] == {"cold_bytes": size, "read_bytes": 0}
    assert not any(page_cache.resident_share(str(path)) for path in cold)
    first = local.play(model_warm_up=True)
    assert (first.rc, first.changed) == (0, 0), first.output
    assert local.record()["warm_up"] == {"cold_bytes": size, "read_bytes": size}
    with kept_in_memory(cold):
        assert local.play(model_warm_up=True).rc == 0
    assert local.record()["warm_up"] == {"cold_bytes": 0, "read_bytes": 0}


# --- on a host with systemd, over ssh --------------------------------------------------------------------------------


def test_under_systemd_the_download_is_a_unit_that_shows_no_token_and_is_gone_afterwards(
    systemd_target: Target, host: Host, small_environment: Path
) -> None:
    """Where the token is looked for: every process, every unit, the job's folder, the journal."""
    environment, model = f"{ON_HOST}/hub", f"{systemd_target.root}/models/tiny"
    host.put(small_environment, environment)
    route = subprocess.run(["ip", "route", "get", host.address], capture_output=True, text=True, check=True).stdout
    here = re.search(r"src (\S+)", route)
    assert here is not None
    look = (
        "cat > /run/pattern; systemctl show pdlab-job-model -p ActiveState --value;"
        " grep -lsf /run/pattern /proc/*/environ /proc/*/cmdline /etc/systemd/system/pdlab-*"
        f" {systemd_target.root}/state/download/* --devices=skip;"
        " systemctl show pdlab-job-model | grep -cf /run/pattern; journalctl -q | grep -cf /run/pattern; rm /run/pattern"
    )
    with Hub({REPO: repository()}, address=here[1]) as hub:
        hub.weather.bytes_per_s = 8 * MIB
        options = {
            **{"source": "hub", "repo": REPO, "revision": "v1", "endpoint": hub.url, "token": TOKEN},
            **{"path": model, "root": systemd_target.root, "python": f"{environment}/bin/python"},
            # The host's disk is small.
            "margin_gib": 0.1,
        }
        answers: list[Answer] = []
        play = threading.Thread(target=lambda: answers.append(systemd_target.run("pdlab.pdlab.model_files", options)))
        play.start()
        until(lambda: "active" in host.run("systemctl is-active pdlab-job-model || true").split())
        until(lambda: hub.asked(SHARD) or answers)
        assert not answers, answers[0].data
        assert host.run(look, stdin=TOKEN, check=False).split() == ["active", "0", "0"]
        play.join(120)
        (first,) = answers
        assert not first.failed, first.data
        assert (first["changed"], first["commit"]) == (True, COMMIT)
        assert TOKEN not in json.dumps(first.data)
        again = systemd_target.run("pdlab.pdlab.model_files", options)
    assert (again.failed, again["changed"]) == (False, False), again.data
    assert host.run("ls /etc/systemd/system | grep pdlab-job || true") == ""
    assert "pdlab-job-model" not in host.run("systemctl list-units --all --plain --no-legend 'pdlab-*'")
