# SPDX-License-Identifier: Apache-2.0
"""Where the Ansible side of pdlab lies: in the checkout when there is one, otherwise inside the installed wheel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent if (PACKAGE.parent / "galaxy.yml").is_file() else None
DEFAULT_INVENTORY = "local"


def ansible_config() -> Path:
    """The ansible.cfg that every run uses, so that a stranger's configuration cannot bend it."""
    return CHECKOUT / "ansible.cfg" if CHECKOUT else PACKAGE / "ansible.cfg"


def collection_root() -> Path:
    """The collection itself: roles, plugins, playbooks."""
    return CHECKOUT or PACKAGE.parent / "ansible_collections" / "pdlab" / "pdlab"


def inventories() -> Path:
    """Directory of the inventories that pdlab ships."""
    return CHECKOUT / "inventory" if CHECKOUT else PACKAGE / "inventory"


def resolve_inventory(name: str | None) -> Path:
    """The inventory that a user means: a path, or the name of a shipped one ("gpu", "inventory/gpu").

    Raises FileNotFoundError with what there is.
    """
    if name is None:
        return inventories() / DEFAULT_INVENTORY
    given = Path(name).expanduser()
    shipped = inventories() / given.name
    if given.exists():
        return given.resolve()
    if shipped.exists() and str(given) in (given.name, f"inventory/{given.name}"):
        return shipped
    known = ", ".join(sorted(path.name for path in inventories().iterdir() if path.is_dir()))
    raise FileNotFoundError(f"inventory {name}: no such file or directory; pdlab ships: {known}")


def resolve_extra_vars(written: Iterable[str]) -> tuple[str, ...]:
    """The values of -e, files among them (`@FILE`) by their whole path: ansible-playbook runs in another directory.

    Raises FileNotFoundError for a file that is not there.
    """
    resolved = []
    for value in written:
        path = Path(value[1:]).expanduser() if value.startswith("@") else None
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"-e {value}: no such file (looked in {Path.cwd()})")
        resolved.append(f"@{path.resolve()}" if path is not None else value)
    return tuple(resolved)
