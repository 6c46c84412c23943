# SPDX-License-Identifier: Apache-2.0
"""--tags and --skip-tags on a deployment: a role with what it needs, or all but that role."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
ROLES = ("host", "engine", "kv_transfer", "model", "collectives", "reference", "servers", "router", "observability")
# Tasks of the role servers that prepare the host for whatever runs there.
SHARED = ("Environment of supervisor", "Account that the servers run as")


def tasks(*flags: str) -> list[str]:
    """The tasks that a deployment would play, as `role : task` or `task`."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "playbooks/deploy.yml", "--list-tasks", *flags],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_CONFIG": "ansible.cfg", "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = [line.split("\tTAGS:")[0].strip() for line in done.stdout.splitlines() if "\tTAGS:" in line]
    return [re.sub(r"^pdlab\.pdlab\.", "", line) for line in found if not line.startswith("play #")]


def role_of(task: str) -> str | None:
    role, colon, name = task.partition(" : ")
    return role if colon and name not in SHARED else None


@pytest.fixture(scope="module")
def listed() -> dict[tuple[str, ...], list[str]]:
    asked: list[tuple[str, ...]] = [()]
    asked += [("--skip-tags", role) for role in (*ROLES, "kv_transfer,collectives", "deploy")]
    asked += [("--tags", role) for role in ("host", "kv_transfer", "router")]
    asked += [("--tags", "deploy", "--skip-tags", "kv_transfer")]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(asked, pool.map(lambda flags: tasks(*flags), asked), strict=True))


def test_the_roles_are_those_of_the_playbook() -> None:
    (play,) = yaml.safe_load((CHECKOUT / "playbooks" / "deploy.yml").read_text())
    played = [
        task["ansible.builtin.import_role"]["name"] for task in play["tasks"] if "ansible.builtin.import_role" in task
    ]
    assert {name.removeprefix("pdlab.pdlab.") for name in played} == set(ROLES)


def test_skipping_a_roles_tag_leaves_out_that_role_and_nothing_else(listed: dict[tuple[str, ...], list[str]]) -> None:
    whole = listed[()]
    assert {role_of(task) for task in whole} == {None, *ROLES}
    for role in ROLES:
        assert listed["--skip-tags", role] == [task for task in whole if role_of(task) != role], role
    two = listed["--skip-tags", "kv_transfer,collectives"]
    assert two == [task for task in whole if role_of(task) not in ("kv_transfer", "collectives")]
    assert listed["--skip-tags", "deploy"] == []
    assert listed["--tags", "deploy", "--skip-tags", "kv_transfer"] == listed["--skip-tags", "kv_transfer"]


def test_asking_for_a_roles_tag_plays_what_it_needs_too(listed: dict[tuple[str, ...], list[str]]) -> None:
    needed = {"host": {"host"}, "kv_transfer": {"engine", "kv_transfer"}, "router": {"engine", "router"}}
    for role, roles in needed.items():
        found = listed["--tags", role]
        assert {role_of(task) for task in found} - {None} == roles
        assert "Hold the host for this run" in found and found[-1] == "Close the stage"
