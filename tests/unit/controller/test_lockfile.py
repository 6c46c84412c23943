# SPDX-License-Identifier: Apache-2.0
"""Lock files: written, read, refused, compared; and what a rebuild tells."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import digest
from hypothesis import given
from hypothesis import strategies as st

from pdlab import lockfile
from pdlab.exit_codes import Exit
from pdlab.lockfile import LockError, LockFile
from pdlab.rebuild import Change, definition_parts, host_changes

REQUIREMENTS = "a==1 \\\n    --hash=sha256:0\n"
SUM = hashlib.sha256(REQUIREMENTS.encode()).hexdigest()
OVERLAY = {
    "patches": [
        {
            "patch": "1.patch",
            "distribution": "a",
            "version": "1",
            "reason": "why",
            "files": {"a.py": {"before": None, "after": "0" * 64}},
            "text": "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x = '\u00e9'\t# tab \n",
        }
    ]
}


def made(**engine: Any) -> LockFile:
    return LockFile.model_validate(
        {
            "schema_version": 1,
            "pdlab": "0.1.0",
            "made": "2026-01-01T00:00:00+00:00",
            "device": "cuda",
            "model": {"source": "local", "served_name": "m"},
            "requirements": {SUM: REQUIREMENTS},
            "overlays": {digest(OVERLAY): OVERLAY},
            "hosts": {
                "box1": {
                    "root": "/opt/pdlab",
                    "engine": {
                        "python_version": "3.12.3",
                        "requirements": SUM,
                        "overlay": digest(OVERLAY),
                        "fingerprint": "f",
                        "packages": {"a": "1"},
                        **engine,
                    },
                    "model": {"path": "/m", "fingerprint": "mf", "files": 3, "bytes": 10},
                    "services": {
                        "prefill-0": {
                            "role": "prefill",
                            "unit": "pdlab-prefill-0",
                            "argv": ["python", "-m", "sglang.launch_server", "--page-size", "16", "--enable-metrics"],
                            "environment": {"A": "1"},
                        }
                    },
                }
            },
        }
    )


def changed(lock: LockFile, path: str, value: Any) -> LockFile:
    """A copy with one value replaced, by a path such as hosts/box1/root."""
    document = lock.model_dump(mode="json")
    *way, last = path.split("/")
    place = document
    for key in way:
        place = place[key]
    place[last] = value
    return LockFile.model_validate(document)


def test_a_lock_is_read_as_it_was_written_and_its_requirements_are_readable_lines(tmp_path: Path) -> None:
    path = tmp_path / "pdlab.lock.yml"
    lockfile.write_lock(made(), path)
    assert lockfile.read_lock(path) == made()
    assert "    --hash=sha256:0\n" in path.read_text()
    assert path.read_text().startswith("# SPDX")
    assert [entry.name for entry in tmp_path.iterdir()] == ["pdlab.lock.yml"]


@given(st.text(alphabet=st.sampled_from("a \t\n\r\u2028\x85é'\"#:-|>{}\\"), max_size=40))
def test_any_text_of_requirements_and_patches_survives(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("lock") / "l.yml"
    sum_ = hashlib.sha256(text.encode()).hexdigest()
    lock = changed(changed(made(), "requirements", {sum_: text}), "hosts/box1/engine/requirements", sum_)
    lockfile.write_lock(lock, path)
    assert lockfile.read_lock(path).requirements == {sum_: text}


def test_the_engines_sources_become_files_again(tmp_path: Path) -> None:
    places = lockfile.materialize(made(), tmp_path)
    assert Path(places["box1"]["lock"]).read_bytes().decode() == REQUIREMENTS
    overlay = Path(places["box1"]["overlay"])
    patch = OVERLAY["patches"][0]
    assert (overlay / "1.patch").read_bytes().decode() == patch["text"]
    manifest = yaml.safe_load((overlay / "overlay.yml").read_text())
    assert manifest["patches"][0]["files"] == {"a.py": {"after": "0" * 64}}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("--hash=sha256:0", "--hash=sha256:1", "was changed by hand: requirements"),
        ("schema_version: 1", "schema_version: 2", "schema_version"),
        ("device: cuda", "device: cuda\nextra: 1", "extra"),
        ("hosts:", "hosts: [", "is no YAML"),
    ],
)
def test_a_file_that_is_no_lock_or_was_edited_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "l.yml"
    lockfile.write_lock(made(), path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(LockError, match=said) as error:
        lockfile.read_lock(path)
    assert error.value.status is Exit.USAGE


def test_a_file_that_is_not_there_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="pdlab lock -o"):
        lockfile.read_lock(tmp_path / "none.yml")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("device", "cpu", "device: locked cuda, found cpu"),
        ("model/revision", "abc", "model revision: locked nothing, found abc"),
        ("hosts/box1/root", "/srv/x", "box1: root: locked /opt/pdlab, found /srv/x"),
        ("hosts/box1/engine/existing", {"python": "/p"}, "box1: engine existing"),
        ("hosts/box1/services/prefill-0/environment", {"B": "2"}, "env A: locked 1, found nothing"),
        ("hosts/box1/services", {}, "box1: service prefill-0: locked there, found not there"),
        (
            "hosts/box1/services/prefill-0/argv",
            ["python", "-m", "sglang.launch_server", "--page-size", "32"],
            "--page-size: locked 16, found 32",
        ),
        ("hosts", {}, "host box1: locked there, found not in the inventory"),
    ],
)
def test_every_kind_of_difference_between_lock_and_inventory_is_named(path: str, value: Any, said: str) -> None:
    found = [str(item) for item in lockfile.against_inventory(made(), changed(made(), path, value))]
    assert any(said in line for line in found), found


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("hosts/box1/engine/python_version", "3.12.4", "engine python_version: locked 3.12.3, found 3.12.4"),
        ("hosts/box1/engine/packages", {"a": "2", "b": "1"}, "package a: locked 1, found 2"),
        ("hosts/box1/engine/fingerprint", None, "engine fingerprint: locked f, found nothing"),
        ("hosts/box1/model/fingerprint", "other", "model fingerprint: locked mf, found other"),
    ],
)
def test_every_kind_of_difference_between_lock_and_box_is_named(path: str, value: Any, said: str) -> None:
    found = [str(item) for item in lockfile.against_box(made(), changed(made(), path, value))]
    assert any(said in line for line in found), found


def test_what_the_lock_brings_along_is_a_note_and_no_difference() -> None:
    now = changed(changed(made(), "hosts/box1/engine/requirements", None), "pdlab", "9.9")
    assert lockfile.against_inventory(made(), now) == []
    assert len(lockfile.notes(made(), now)) == 2
    assert lockfile.against_box(made(), made()) == lockfile.notes(made(), made()) == []


def test_what_looks_like_a_secret_is_a_hash_that_can_be_compared() -> None:
    environment = lockfile.sealed_environment({"HF_TOKEN": "s3cret", "TOKENIZERS_PARALLELISM": "false", "MONKEY": "1"})
    assert environment["HF_TOKEN"] == lockfile.sealed("s3cret") and "s3cret" not in str(environment)
    assert environment["TOKENIZERS_PARALLELISM"] == "false" and environment["MONKEY"] == "1"
    argv = ["p", "--api-key", "s3cret", "--tokenizer-path", "/m", "--admin-api-key=s3cret", "--api-key", "--port", "1"]
    sealed = lockfile.sealed_argv(argv)
    assert "s3cret" not in str(sealed) and sealed[4] == "/m" and sealed[-1] == "1" and sealed[0] == "p"


# --- what a rebuild tells ----------------------------------------------------------------------------------------


def test_both_managers_definitions_come_apart_into_settings_and_environment() -> None:
    systemd = (
        '# Engine: abc\n[Service]\nExecStart=:"python" -m x --port 1 --api-key s3cret\n'
        'Environment="A=b c"\nEnvironment=HF_TOKEN=s3cret\nRestartSec=15\n'
    )
    supervisor = '; Engine: abc\n[program:x]\ncommand=/usr/bin/env -i "A=b c" HF_TOKEN=s3cret python -m x --port 1\n'
    for text in (systemd, supervisor):
        settings, environment = definition_parts(text)
        assert environment["A"] == "b c" and settings["--port"] == "1" and settings["Engine"] == "abc"
        assert "s3cret" not in str((settings, environment))
    assert definition_parts(systemd)[0]["RestartSec"] == "15"


def state(**more: Any) -> dict[str, Any]:
    return {
        "engine": {"state": "complete", "packages": {"a": "1"}, "fingerprint": "f", "leftovers": []},
        "overlay": {"patches": [], "faults": []},
        "model": {"path": "/m", "state": "present", "fingerprint": "m", "files": 1, "bytes": 1},
        "services": {"pdlab-x": {"manager": "systemd", "state": "running", "definition": "ExecStart=p --n 1\n"}},
        **more,
    }


def test_nothing_is_told_of_a_box_that_was_right() -> None:
    assert host_changes("box", state(), state()) == []


def test_every_part_that_differed_is_told() -> None:
    before = state(
        engine={"state": "incomplete", "packages": {"a": "2", "b": "1"}, "leftovers": ["/r/engine.new"]},
        overlay={"patches": [], "faults": ["a.py: somebody changed it (x)"]},
        model={"path": "/m", "state": "absent", "fingerprint": None, "files": 0, "bytes": 0},
        services={
            "pdlab-x": {"manager": "systemd", "state": "failed", "definition": "ExecStart=p --n 2\n"},
            "pdlab-old": {"manager": "supervisor", "state": "running", "definition": ""},
        },
    )
    told = host_changes(
        "box", before, state(overlay={"patches": [{"patch": "1.patch", "reason": "why"}], "faults": []})
    )
    for wanted in (
        Change("box", "engine", "state", "incomplete", "complete"),
        Change("box", "engine", "leftovers", "/r/engine.new", None),
        Change("box", "package", "a", "2", "1"),
        Change("box", "package", "b", "1", None),
        Change("box", "overlay", "a.py", "somebody changed it (x)", "as the overlay makes it"),
        Change("box", "overlay", "1.patch", None, "why"),
        Change("box", "model", "state", "absent", "present"),
        Change("box", "service pdlab-x", "state", "failed", "running"),
        Change("box", "definition pdlab-x", "--n", "2", "1"),
        Change("box", "service", "pdlab-old", "running", None),
    ):
        assert wanted in told, told
