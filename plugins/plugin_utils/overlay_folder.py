# SPDX-License-Identifier: GPL-3.0-or-later
"""An overlay's folder on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import MANIFEST, document_of


def read_overlay(name: Any) -> dict[str, Any] | None:
    """The overlay in a folder, as a document; None without a name. Raises AnsibleActionFail with all of its faults."""
    if not name:
        return None
    folder = Path(str(name)).expanduser()
    try:
        manifest = yaml.safe_load((folder / MANIFEST).read_text(encoding="utf-8"))
        texts = {path.name: path.read_bytes().decode() for path in sorted(folder.glob("*.patch"))}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AnsibleActionFail(
            f"the overlay {folder} cannot be read: {error}. It is a folder on the controller with {MANIFEST} "
            "and patches in UTF-8, as docs/rebuild.md shows."
        ) from error
    faults = Faults()
    document = document_of(manifest, texts, faults)
    if document is None:
        lines = "\n".join(f"- {fault}" for fault in faults)
        raise AnsibleActionFail(f"the overlay {folder} has faults; nothing was touched:\n{lines}")
    return document
