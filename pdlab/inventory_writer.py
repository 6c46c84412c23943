# SPDX-License-Identifier: Apache-2.0
"""Writes an inventory for one box: the only place that writes YAML for people, with comments.

Values go through `value`, comments through `comment`; nothing else of what was seen reaches the text.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from pdlab.box_shape import Shape
from pdlab.collection import inventories

# What makes Ansible take a text for a template.
TEMPLATE_MARKS = ("{{", "{%", "{#")


class InventoryError(Exception):
    """An inventory that cannot be written; the message says why and what to do."""


@dataclass(frozen=True)
class Box:
    """How a box is called and reached. `address` None is this machine; `root`: whether pdlab was root there.

    `become`: it became root by sudo. `source`: where the facts come from, for a comment.
    """

    name: str
    address: str | None
    user: str | None
    become: bool
    root: bool
    source: str


def files_of(box: Box, shape: Shape, folder: Path, root: str, root_why: str, model: str | None) -> dict[str, str]:
    """The inventory's files: {path in its folder: text}. Raises InventoryError for a value that Ansible would expand."""
    environment = Environment(
        loader=PackageLoader("pdlab"),
        autoescape=False,  # noqa: S701 - YAML, not HTML
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(value=yaml_value, comment=yaml_comment, template=yaml_template)
    known: dict[str, Any] = {
        "box": box,
        "shape": shape,
        "folder": str(folder),
        "root": root,
        "root_why": root_why,
        "model": model,
        "served_name": Path(model).name.lower() if model else "model",
        "rehearsal": rehearsal_settings() if shape.device == "cpu" else {},
    }
    templates = {"hosts.yml": "hosts.yml.j2", "group_vars/pdlab.yml": "pdlab.yml.j2"}
    return {name: environment.get_template(template).render(**known) for name, template in templates.items()}


def write_inventory(folder: Path, files: dict[str, str]) -> None:
    """Write all files or none. Raises InventoryError when `folder` is there and not empty, or cannot be written."""
    refuse_folder(folder)
    made = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        for name, text in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(text, encoding="utf-8")
        # rename(2) replaces an empty directory, and no other.
        made.rename(folder)
    except OSError as error:
        raise InventoryError(f"{folder} cannot be written: {error.strerror}; name another with -o") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def refuse_folder(folder: Path) -> None:
    """Raise InventoryError when there is something at `folder` that writing would change."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise InventoryError(f"{folder} is there already, and pdlab overwrites nothing; name another with -o")


def yaml_value(value: Any) -> str:
    """A value on one line as YAML reads it back. Raises InventoryError for a text that Ansible would expand."""
    for text in _texts(value):
        if any(mark in text for mark in TEMPLATE_MARKS):
            raise InventoryError(f"{text!r} would be a template to Ansible; write it without {{{{, {{% and {{#")
    return _dumped(value)


def yaml_template(value: str) -> str:
    """A template of Ansible's, written as such."""
    return _dumped(value)


def yaml_comment(text: str) -> str:
    """What may stand behind a `#`: one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


class _OneLine(yaml.SafeDumper):
    """Texts with line breaks or control characters in double quotes, where they are escaped and not folded."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_OneLine.add_representer(str, _OneLine.represent_str)


def _dumped(value: Any) -> str:
    # Line breaks beyond ASCII would be folded like others.
    plain = all(text.isprintable() for text in _texts(value))
    dumped = yaml.dump(
        value,
        Dumper=_OneLine,
        default_flow_style=True,
        allow_unicode=plain,
        width=float("inf"),
        sort_keys=False,
        explicit_end=False,
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in _texts(item)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def rehearsal_settings() -> dict[str, Any]:
    """The variables of the shipped rehearsal, as they are written there."""
    loaded: dict[str, Any] = yaml.safe_load((inventories() / "local" / "group_vars" / "pdlab.yml").read_text())
    return loaded
