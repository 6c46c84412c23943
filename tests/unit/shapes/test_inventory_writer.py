# SPDX-License-Identifier: Apache-2.0
"""The writer of inventories: values survive, comments stay comments, nothing is ever overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pdlab.box_shape import Shape, shape_of
from pdlab.inventory_writer import (
    TEMPLATE_MARKS,
    Box,
    InventoryError,
    files_of,
    rehearsal_settings,
    write_inventory,
    yaml_comment,
    yaml_value,
)

from .test_box_shape import box

HERE = Box("gpubox", "192.0.2.11", "root", become=False, root=True, source="root@192.0.2.11")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40).filter(
    lambda text: not any(m in text for m in TEMPLATE_MARKS)
)


def variables(shape: Shape, **more: Any) -> dict[str, Any]:
    files = files_of(more.get("box", HERE), shape, Path("gpubox"), "/opt/pdlab", "room", more.get("model"))
    loaded: dict[str, Any] = yaml.safe_load(files["group_vars/pdlab.yml"])
    return loaded


@given(text=TEXTS)
def test_a_text_is_read_back_as_it_was(text: str) -> None:
    written = yaml_value(text)
    assert "\n" not in written
    assert yaml.safe_load(f"key: {written}") == {"key": text}
    assert yaml.safe_load(f"key: {yaml_value([text, 1, True])}") == {"key": [text, 1, True]}


@pytest.mark.parametrize(
    "text", ["no", "1e3", "", "~", "a: b", "#x", "'", "0x1", "2001-01-01", "x\ny", "\n", "\x85", "\ufeff"]
)
def test_a_text_that_looks_like_something_else_stays_a_text(text: str) -> None:
    assert yaml.safe_load(f"{{key: {yaml_value(text)}}}") == {"key": text}


@given(text=st.text(max_size=60))
def test_a_comment_is_one_line_of_comment_whatever_was_seen(text: str) -> None:
    assert yaml.safe_load(f"# {yaml_comment(text)}\nkey: 1\n") == {"key": 1}


def test_what_ansible_would_expand_is_refused() -> None:
    for text in ("/srv/{{ x }}", "{% if %}", "{# #}"):
        with pytest.raises(InventoryError, match="would be a template"):
            yaml_value(text)


def test_a_written_inventory_says_how_the_box_is_reached() -> None:
    def host(box_: Box) -> dict[str, Any]:
        text = files_of(box_, shape_of(box(0, 0)), Path("x"), "/opt/pdlab", "room", None)["hosts.yml"]
        (found,) = yaml.safe_load(text)["all"]["children"]["pdlab"]["hosts"].values()
        return dict(found or {})

    assert host(HERE) == {"ansible_host": "192.0.2.11", "ansible_user": "root"}
    with_sudo = Box("b", "192.0.2.11", None, become=True, root=True, source="x")
    assert host(with_sudo) == {"ansible_host": "192.0.2.11", "ansible_become": True}
    here = Box("this-machine", None, None, become=False, root=True, source="this machine")
    assert host(here) == {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }


def test_the_rehearsal_that_init_writes_is_the_shipped_one() -> None:
    written, shipped = variables(shape_of(box())), rehearsal_settings()
    for name in ("pd_rehearsal", "pd_device", "pd_server_args", "pd_server_env", "pd_answers", "pd_benchmark"):
        assert written[name] == shipped[name], name
    assert [server.get("args") for server in written["pd_servers"]] == [
        server.get("args") for server in shipped["pd_servers"]
    ]


def test_every_choice_is_explained_in_a_comment() -> None:
    shape = shape_of(box(0, 1, ports=[{"port": 8000, "command": "nginx\n- evil: true"}]))
    text = files_of(HERE, shape, Path("gpubox"), "/opt/pdlab", "room", None)["group_vars/pdlab.yml"]
    for said in ("2 GPUs (NVIDIA X", "# GPU 0: at NUMA node 0", "8000 is held by nginx - evil: true", "CHANGE THIS"):
        assert said in text
    assert "evil" not in yaml.safe_load(text)
    assert max(len(line) for line in text.splitlines()) <= 160


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    files = {"hosts.yml": "a", "group_vars/pdlab.yml": "b"}
    mine = tmp_path / "mine"
    write_inventory(mine, files)
    assert (mine / "group_vars" / "pdlab.yml").read_text() == "b"
    for there in (mine, mine / "hosts.yml"):
        with pytest.raises(InventoryError, match="overwrites nothing"):
            write_inventory(there, {"hosts.yml": "new"})
    (tmp_path / "empty").mkdir()
    write_inventory(tmp_path / "empty", files)
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(InventoryError):
        write_inventory(tmp_path / "link", files)
    assert (mine / "hosts.yml").read_text() == "a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link", "mine"]


def test_a_place_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InventoryError, match="cannot be written"):
        write_inventory(tmp_path / "file" / "box", {"hosts.yml": "a"})
